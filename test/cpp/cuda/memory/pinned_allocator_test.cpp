// The caching allocator of pinned memory on a simulated device.
#include "tapegrad/cuda/memory/pinned_allocator.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <thread>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"

using namespace tapegrad;
using namespace tapegrad::cuda;

TEST_CASE("pinned memory is used again when the copies from it are done") {
  simulated::SimulatedDriver driver;
  PinnedAllocator a(driver);
  StreamHandle stream = driver.create_stream(0, 0);
  auto* device = static_cast<char*>(driver.allocate(0, 4096));
  auto* p = static_cast<char*>(a.allocate(1000));
  CHECK(driver.is_pinned(p));
  CHECK(a.owns(p + 999));
  std::memset(p, 1, 1000);
  driver.copy(device, p, 1000, CopyKind::HostToDevice, stream);
  a.note_use(p + 10, {stream, 0});
  a.free(p);
  CHECK_FALSE(a.owns(p));
  auto* q = static_cast<char*>(a.allocate(1000));  // the copy has not run: other memory
  CHECK(q != p);
  std::memset(q, 2, 1000);
  driver.synchronize_stream(stream);
  char back[2] = {};
  driver.copy(back, device, 2, CopyKind::DeviceToHost, stream);
  CHECK(back[1] == 1);
  CHECK(a.allocate(900) == p);  // of the same size class, free by now
  CHECK(a.stats().num_host_alloc == 2);
  CHECK(a.stats().allocated == 2048);
  a.free(p);
  a.free(q);
  a.empty_cache();
  CHECK(a.stats().reserved == 0);
  CHECK(driver.calls("free_pinned") == 2);
  driver.free(0, device);
}

TEST_CASE("pinned memory that a graph reads is never used for anything else") {
  simulated::SimulatedDriver driver;
  PinnedAllocator a(driver);
  StreamHandle stream = driver.create_stream(0, 0);
  void* p = a.allocate(512);
  driver.begin_capture(stream, "global");
  a.note_use(p, {stream, 0});
  a.free(p);
  driver.destroy_graph(driver.end_capture(stream));
  CHECK(a.allocate(512) != p);
}

TEST_CASE("when pinned memory is out, what is cached is given back first") {
  simulated::SimulatedDriver driver;
  PinnedAllocator a(driver);
  a.free(a.allocate(1 << 20));
  driver.fail_at("allocate_pinned", 1);
  void* p = a.allocate(1 << 21);
  CHECK(a.stats().reserved == 1 << 21);
  driver.fail_at("allocate_pinned", 1);
  a.free(p);
  CHECK_NOTHROW(a.free(a.allocate(1 << 22)));
  CHECK_THROWS_AS(a.allocate(size_t{1} << 61), Error);
}

TEST_CASE("pinned memory is asked for, freed and given back while another thread captures") {
  simulated::SimulatedDriver driver;
  PinnedAllocator a(driver);
  const StreamHandle captured = driver.create_stream(0, 0), other = driver.create_stream(0, 0);
  auto* device = static_cast<char*>(driver.allocate(0, 4096));
  driver.begin_capture(captured, "global");
  std::thread([&] {
    for (int i = 0; i < 3; ++i) {
      void* p = a.allocate(1000);  // from the second on, it asks whether the copies are done
      std::memset(p, 1, 1000);
      driver.copy(device, p, 1000, CopyKind::HostToDevice, other);
      a.note_use(p, {other, 0});
      a.free(p);
    }
    driver.fail_at("allocate_pinned", 1);
    a.free(a.allocate(1 << 20));  // which gives the rest back first, and waits for it
    a.empty_cache();
  }).join();
  CHECK(driver.capture_state(captured) == CaptureState::Active);
  driver.destroy_graph(driver.end_capture(captured));
  CHECK(a.stats().reserved == 0);
  driver.free(0, device);
}
