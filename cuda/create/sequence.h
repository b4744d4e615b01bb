// Tensors whose elements are a function of their place.
#pragma once

#include "tapegrad/cuda/copy/convert.h"
#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda {

template <class T, class F>
TG_KERNEL void sequence_kernel(T* out, int64_t n, F f) {
  for (int64_t i = global_index(); i < n; i += global_step()) out[i] = f(i);
}

// Element i of a fresh, contiguous tensor is f(i), of dtype T.
template <class T, class F>
void sequence(const Tensor& out, const F& f) {
  const int64_t n = out.numel();
  if (n == 0) return;
  const Work work(out.device(), {&out});
  const bool direct = out.dtype() == dtype_of_v<T>;
  const Workspace values(direct ? 0 : static_cast<size_t>(n) * sizeof(T), work);
  T* to = static_cast<T*>(direct ? out.data_ptr() : values.data());
  launch(work, &sequence_kernel<T, F>, grid_for(n), kBlock, to, n, f);
  if (direct) return;
  const int64_t from_stride = sizeof(T), to_stride = static_cast<int64_t>(out.itemsize());
  convert_strided(work, 1, &n, static_cast<char*>(out.data_ptr()), out.dtype(), &to_stride,
                  reinterpret_cast<const char*>(to), dtype_of_v<T>, &from_stride);
}

}  // namespace tapegrad::cuda
