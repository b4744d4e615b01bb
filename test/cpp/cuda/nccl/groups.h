// Ranks for tests of process groups over NCCL: threads of this process with a simulated device each, and the double of
// NCCL (cuda/simulated/simulated_nccl.h). What ranks ask for is compared through the engine of threads.
#pragma once

#include <catch2/catch.hpp>

#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "distributed/ranks.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/cuda/runtime/stream.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"
#include "tapegrad/cuda/simulated/simulated_nccl.h"
#include "tapegrad/distributed/group/group.h"

namespace nccl_test {

using namespace tapegrad;
using distributed::Call;
using distributed::Group;
using distributed::Kind;
using distributed::Milliseconds;
using distributed::Reduce;
using distributed::test::must;
using distributed::test::text_of;

struct Rank {
  Group& group;
  int rank, size;
  Device device() const { return {DeviceType::CUDA, static_cast<int8_t>(rank)}; }
};

// Registers the devices, and with them the double, once.
inline int devices() {
  static const int count = tapegrad_cuda_init();
  return count;
}

// What each rank ended with: empty when all went well.
inline std::vector<std::string> run_ranks(int size, const std::function<void(Rank)>& body, int64_t timeout = 20'000) {
  REQUIRE(devices() >= size);
  const std::shared_ptr<distributed::Store> store = distributed::make_hash_store();
  std::vector<std::string> texts(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int r = 0; r < size; ++r)
    threads.emplace_back([&, r] {
      texts[static_cast<size_t>(r)] = text_of([&] {
        cuda::driver().set_device(r);
        distributed::BackendPlace place = distributed::test::place_of(store, r, size);
        distributed::GroupOptions options;
        options.watch = std::make_shared<distributed::Watch>(store, r, size);
        options.timeout = Milliseconds(timeout);
        options.device_engine = true;
        auto backend = make_thread_backend(place);
        Group group(std::move(place), std::move(backend), options);
        body({group, r, size});
        group.close();
      });
    });
  for (std::thread& t : threads) t.join();
  return texts;
}
inline void check_all_well(const std::vector<std::string>& texts) {
  for (const std::string& text : texts) CHECK(text == "");
  const auto counts = cuda::simulated::nccl_counts();
  CHECK(counts.live == 0);
  CHECK(counts.misused == 0);
}

inline Tensor to(Device device, const Tensor& t) {
  Tensor copy = empty_tensor(t.sizes(), t.dtype(), device);
  copy_(copy, t);
  return copy;
}
inline Tensor on_host(const Tensor& t) { return to({}, t); }

// Small whole numbers, so that every order of sums and products gives the same bits.
inline Tensor numbers(IntSpan sizes, DType dtype, int seed) {
  const Tensor whole = empty_tensor(sizes, DType::int64);
  auto* data = static_cast<int64_t*>(whole.data_ptr());
  for (int64_t i = 0; i < whole.numel(); ++i) data[i] = 1 + (i * 7 + seed * 5) % 3;
  const Tensor t = empty_tensor(sizes, dtype);
  copy_(t, whole);
  return t;
}
inline bool same(const Tensor& a, const Tensor& b) {
  const Tensor x = on_host(a), y = on_host(b);
  return x.dtype() == y.dtype() && x.nbytes() == y.nbytes() &&
         (x.nbytes() == 0 || std::memcmp(x.data_ptr(), y.data_ptr(), static_cast<size_t>(x.nbytes())) == 0);
}

}  // namespace nccl_test
