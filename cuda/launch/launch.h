// Starting kernels on a stream: `launch(stream, kernel, grid, block, args...)`, `launch_block(..., shared_bytes,
// args...)` for kernels whose threads wait for each other. Arguments are copied by value; launches are asynchronous.
// `Work` is the scope of host code that starts kernels for some tensors: it makes their device current, uses its
// current stream and records the use with the allocator. A launch that CUDA refuses is raised here.
#pragma once

#include <algorithm>
#include <initializer_list>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/cuda/launch/device_code.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/runtime/stream.h"
#if defined(TG_CUDA_SIMULATED)
#include "tapegrad/cuda/simulated/launch.h"
#endif

namespace tapegrad::cuda {

class TG_API Work {
 public:
  explicit Work(Device device, std::initializer_list<const Tensor*> operands = {})
      : guard_(device.index), stream_(current_stream(device.index)) {
    for (const Tensor* t : operands) use(*t);
  }
  void use(const Tensor& t) const {
    if (t.defined() && t.is_cuda()) note_use(*t.impl()->storage(), stream_);
  }
  const Stream& stream() const { return stream_; }
  operator const Stream&() const { return stream_; }

 private:
  DeviceGuard guard_;
  Stream stream_;
};

struct Grid {
  uint32_t blocks = 1, rows = 1;
  Grid(int64_t b, int64_t r = 1) : blocks(static_cast<uint32_t>(b)), rows(static_cast<uint32_t>(r)) {}
};

inline constexpr uint32_t kBlock = 256;
// Blocks for n pieces of work of which a block does `per_block`; kernels loop over what lies beyond. Depends on n only,
// so that the order of summation does, too.
inline Grid grid_for(int64_t n, int64_t per_block = kBlock, int64_t most = 65536) {
  return {std::clamp<int64_t>((n + per_block - 1) / per_block, 1, most)};
}

#if defined(__CUDACC__)

[[noreturn]] TG_API TG_COLD void throw_launch(cudaError_t status);
// Raises CUDA's error message if a launch or a call of a kernel library failed.
inline void check_cuda(cudaError_t status) {
  if (TG_UNLIKELY(status != cudaSuccess)) throw_launch(status);
}
inline void check_launch() { check_cuda(cudaGetLastError()); }

template <class... P, class... A>
void launch_block(const Stream& stream, void (*kernel)(P...), Grid grid, uint32_t block, size_t shared_bytes,
                  const A&... args) {
  kernel<<<dim3(grid.blocks, grid.rows), block, shared_bytes, stream.handle>>>(static_cast<P>(args)...);
  check_launch();
}
template <class... P, class... A>
void launch(const Stream& stream, void (*kernel)(P...), Grid grid, uint32_t block, const A&... args) {
  launch_block(stream, kernel, grid, block, 0, args...);
}

#elif defined(TG_CUDA_SIMULATED)

template <class... P, class... A>
void launch(const Stream& stream, void (*kernel)(P...), Grid grid, uint32_t block, const A&... args) {
  simulated::enqueue(stream.handle, "kernel", [=] {
    auto body = [&] { kernel(static_cast<P>(args)...); };
    simulated::run_loops(
        grid.blocks, grid.rows, block, [](void* f) { (*static_cast<decltype(body)*>(f))(); }, &body);
  });
}
template <class... P, class... A>
void launch_block(const Stream& stream, void (*kernel)(P...), Grid grid, uint32_t block, size_t shared_bytes,
                  const A&... args) {
  simulated::enqueue(stream.handle, "kernel", [=] {
    auto body = [&] { kernel(static_cast<P>(args)...); };
    simulated::run_fibers(
        grid.blocks, grid.rows, block, shared_bytes, [](void* f) { (*static_cast<decltype(body)*>(f))(); }, &body);
  });
}

#endif

}  // namespace tapegrad::cuda
