// The simulated machine itself: it is strict, late, and reproducible.
#include "tapegrad/cuda/simulated/simulated_driver.h"

#include <catch2/catch.hpp>

#include <cstring>
#include <thread>

#include "tapegrad/c10/error.h"

using namespace tapegrad;
using namespace tapegrad::cuda;
using namespace tapegrad::cuda::simulated;

namespace {
std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}
}  // namespace

TEST_CASE("nothing runs before somebody waits, and a wait runs what it needs") {
  SimulatedDriver d;
  StreamHandle a = d.create_stream(0, 0), b = d.create_stream(0, 0), c = d.create_stream(0, 0);
  std::string order;
  d.enqueue(a, "a", [&] { order += 'a'; });
  EventHandle e = d.create_event(0, kEventPlain);
  d.record_event(e, a);
  d.enqueue(a, "late", [&] { order += 'A'; });
  d.stream_wait_event(b, e);
  d.enqueue(b, "b", [&] { order += 'b'; });
  d.enqueue(c, "c", [&] { order += 'c'; });
  CHECK(order.empty());
  d.synchronize_stream(b);
  CHECK(order == "ab");
  CHECK(d.query_event(e));
  d.synchronize_device(0);
  CHECK(order == "abAc");
}

TEST_CASE("an event that is recorded again leaves earlier waits alone") {
  SimulatedDriver d;
  StreamHandle a = d.create_stream(0, 0), b = d.create_stream(0, 0);
  EventHandle e = d.create_event(0, kEventPlain);
  int first = 0, second = 0, seen = -1;
  d.enqueue(a, "", [&] { first = 1; });
  d.record_event(e, a);
  d.stream_wait_event(b, e);
  d.enqueue(b, "", [&] { seen = first * 10 + second; });
  d.enqueue(a, "", [&] { second = 1; });
  d.record_event(e, a);
  d.destroy_event(e);
  d.synchronize_stream(b);
  CHECK(seen == 10);
}

TEST_CASE("polling ends") {
  SimulatedDriver d;
  StreamHandle a = d.create_stream(0, 0), b = d.create_stream(0, 0);
  EventHandle e = d.create_event(0, kEventPlain), f = d.create_event(0, kEventPlain);
  for (int i = 0; i < 10; ++i) {
    d.enqueue(a, "", [] {});
    d.record_event(e, a);
    d.stream_wait_event(b, e);
    d.record_event(f, b);
    d.stream_wait_event(a, f);
  }
  int n = 0;
  while (!d.query_event(f) && n < 1000) ++n;
  CHECK(n < 1000);
  while (!d.query_stream(a) && n < 1000) ++n;
  CHECK(n < 1000);
}

TEST_CASE("a missing wait shows as wrong data, a pinned source is read late") {
  SimulatedDriver d;
  auto* device = static_cast<int*>(d.allocate(0, 4096));
  auto* pinned = static_cast<int*>(d.allocate_pinned(4096));
  int plain = 5;
  pinned[0] = 5;
  CHECK(device[0] != 5);  // the pattern
  d.copy(device, &plain, 4, CopyKind::HostToDevice, nullptr);
  plain = 6;
  d.copy(device + 1, pinned, 4, CopyKind::HostToDevice, nullptr);
  pinned[0] = 6;  // too early
  d.copy(pinned + 1, device, 8, CopyKind::DeviceToHost, nullptr);
  CHECK(pinned[1] == 0);
  d.synchronize_stream(nullptr);
  CHECK(pinned[1] == 5);
  CHECK(pinned[2] == 6);
  int back[2] = {};
  d.copy(back, device, 8, CopyKind::DeviceToHost, nullptr);  // waits, as the target is not pinned
  CHECK(back[0] == 5);
  d.fill(device, 0, 8, nullptr);
  d.copy(back, device, 8, CopyKind::DeviceToHost, nullptr);
  CHECK(back[1] == 0);
  d.free_pinned(pinned);
  d.free(0, device);
}

TEST_CASE("the same seed runs the same order") {
  auto run = [](uint64_t seed) {
    Options o;
    o.schedule = Schedule::Random;
    o.seed = seed;
    SimulatedDriver d(o);
    std::string order;
    std::vector<StreamHandle> s;
    for (int i = 0; i < 3; ++i) s.push_back(d.create_stream(0, 0));
    for (int i = 0; i < 60; ++i) d.enqueue(s[i % 3], "", [&order, i] { order += static_cast<char>('0' + i % 3); });
    d.synchronize_device(0);
    return order;
  };
  CHECK(run(1).size() == 60);
  CHECK(run(1) == run(1));
  CHECK(run(1) != run(2));
}

TEST_CASE("misuse is an error") {
  SimulatedDriver d;
  void* p = d.allocate(0, 100);
  d.free(0, p);
  CHECK(error_of([&] { d.free(0, p); }).find("not memory of cuda:0") != std::string::npos);
  int x;
  CHECK(error_of([&] { d.copy(&x, p, 4, CopyKind::DeviceToHost, nullptr); }).find("not memory of a device") !=
        std::string::npos);
  StreamHandle s = d.create_stream(0, 0);
  d.destroy_stream(s);
  CHECK(error_of([&] { d.synchronize_stream(s); }).find("no such stream") != std::string::npos);
  CHECK_THROWS_AS(d.set_device(1), Error);
  CHECK(d.allocate(0, size_t{1} << 40) == nullptr);
  d.fail_at("record_event", 2);
  EventHandle e = d.create_event(0, kEventPlain);
  d.record_event(e, nullptr);
  CHECK_THROWS_AS(d.record_event(e, nullptr), Error);
  d.record_event(e, nullptr);
  d.enqueue(nullptr, "kernel", [] { throw std::runtime_error("bad index"); });
  CHECK(error_of([&] { d.synchronize_device(0); }) == "cuda: kernel: bad index");
}

TEST_CASE("a graph replays what was queued, on whatever is in memory then") {
  SimulatedDriver d;
  StreamHandle a = d.create_stream(0, 0), b = d.create_stream(0, 0);
  int x = 0, y = 0;
  d.begin_capture(a, "global");
  d.enqueue(a, "add", [&] { x += 1; });
  EventHandle fork = d.create_event(0, kEventPlain), join = d.create_event(0, kEventPlain);
  d.record_event(fork, a);
  d.stream_wait_event(b, fork);
  CHECK(d.capture_state(b) == CaptureState::Active);
  CHECK(d.capture_id(b) == d.capture_id(a));
  d.enqueue(b, "copy", [&] { y = x; });
  d.record_event(join, b);
  d.stream_wait_event(a, join);
  GraphHandle g = d.end_capture(a);
  CHECK(x == 0);
  CHECK(d.capture_state(b) == CaptureState::None);
  CHECK(d.graph_nodes(g) == 2);
  GraphExecHandle e = d.instantiate(g);
  d.destroy_graph(g);
  for (int i = 0; i < 3; ++i) d.launch_graph(e, b);
  d.synchronize_stream(b);
  CHECK(x == 3);
  CHECK(y == 3);
  d.destroy_graph_exec(e);
  CHECK_THROWS_AS(d.launch_graph(e, b), Error);
}

TEST_CASE("a capture is spoilt by waits and by work that is not joined") {
  SimulatedDriver d;
  StreamHandle a = d.create_stream(0, 0), b = d.create_stream(0, 0);
  d.begin_capture(a, "global");
  CHECK_THROWS_AS(d.synchronize_stream(a), Error);
  CHECK(d.capture_state(a) == CaptureState::Invalid);
  CHECK_THROWS_AS(d.end_capture(a), Error);
  d.begin_capture(a, "relaxed");
  EventHandle e = d.create_event(0, kEventPlain);
  d.record_event(e, a);
  d.stream_wait_event(b, e);
  d.enqueue(b, "", [] {});
  CHECK(error_of([&] { d.end_capture(a); }).find("unjoined work") != std::string::npos);
  CHECK(d.capture_state(b) == CaptureState::None);
}

TEST_CASE("calls that put nothing into a graph spoil no capture, of whichever thread") {
  SimulatedDriver d;
  const size_t nbytes = d.granularity(0);
  const StreamHandle a = d.create_stream(0, 0), b = d.create_stream(0, 0);
  const EventHandle passed = d.create_event(0, kEventPlain);
  d.record_event(passed, b);
  const auto all_of_them = [&] {
    (void)d.memory_info(0);
    d.enable_peer_access(0, 0);
    d.free(0, d.allocate(0, 100));
    void* const addresses = d.reserve_addresses(0, nbytes);
    const PhysicalHandle memory = d.create_memory(0, nbytes);
    d.map(0, addresses, memory, nbytes);
    d.unmap(0, addresses, nbytes);
    d.release_memory(0, memory, nbytes);
    d.release_addresses(0, addresses, nbytes);
    void* const pinned = d.allocate_pinned(100);
    (void)d.is_pinned(pinned);
    d.free_pinned(pinned);
    int own[16];
    d.register_pinned(own, sizeof(own));
    d.unregister_pinned(own);
    d.destroy_stream(d.create_stream(0, 0));
    const EventHandle shared = d.create_event(0, kEventInterprocess);
    (void)d.event_ipc_handle(shared);
    d.destroy_event(shared);
    (void)d.query_event(passed);
    (void)d.has_passed(passed, true);  // as the allocators wait
    void* const opened = d.allocate(0, 100);
    (void)d.memory_ipc_handle(opened);
    d.free(0, opened);
  };
  for (const char* mode : {"global", "thread_local", "relaxed"}) {
    CAPTURE(mode);
    d.begin_capture(a, mode);
    CHECK(error_of(all_of_them) == "");
    CHECK(d.capture_state(a) == CaptureState::Active);
    std::thread([&] { CHECK(error_of(all_of_them) == ""); }).join();
    CHECK(d.capture_state(a) == CaptureState::Active);
    CHECK_NOTHROW(d.destroy_graph(d.end_capture(a)));
  }
}

TEST_CASE("what a capture forbids depends on its mode, its thread, and the mode of the thread that calls") {
  SimulatedDriver d;
  const StreamHandle a = d.create_stream(0, 0);
  const auto forbidden = [&] { return error_of([&] { d.forbid_in_capture("load"); }) != ""; };
  for (const bool other_thread : {false, true})
    for (const CaptureMode mine : {CaptureMode::Global, CaptureMode::ThreadLocal, CaptureMode::Relaxed})
      for (const char* mode : {"global", "thread_local", "relaxed"}) {
        CAPTURE(other_thread, static_cast<int>(mine), mode);
        d.begin_capture(a, mode);
        bool refused = false;
        const auto call = [&] {
          const CaptureMode before = d.exchange_capture_mode(mine);
          refused = forbidden();
          CHECK(d.exchange_capture_mode(before) == mine);
        };
        if (other_thread)
          std::thread(call).join();
        else
          call();
        const bool expected =
            mine != CaptureMode::Relaxed && (other_thread ? mine == CaptureMode::Global && mode == std::string("global")
                                                          : mode != std::string("relaxed"));
        CHECK(refused == expected);
        CHECK((d.capture_state(a) == CaptureState::Invalid) == expected);
        CHECK(error_of([&] { d.destroy_graph(d.end_capture(a)); }).empty() == !expected);
      }
  // Guards may stand within each other.
  d.begin_capture(a, "global");
  {
    const RelaxedCapture outer(d);
    {
      const RelaxedCapture inner(d);
    }
    CHECK_FALSE(forbidden());
  }
  CHECK(forbidden());
  CHECK_THROWS_AS(d.end_capture(a), Error);
  d.begin_capture(a, "thread_local");
  std::thread([&] {
    CHECK(error_of([&] { d.end_capture(a); }).find("from another thread") != std::string::npos);
  }).join();
  d.destroy_graph(d.end_capture(a));
}
