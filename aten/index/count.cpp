// bincount: counts (or sums of weights) per value.
#include <algorithm>

#include "tapegrad/aten/index/count.h"
#include "tapegrad/aten/kernels_index.h"

namespace tapegrad::cpu {

Tensor bincount_cpu(const Tensor& input, const Tensor& weights, int64_t minlength) {
  check_bincount(input, weights, minlength);
  const Tensor values = raw::contiguous(raw::to(input, DType::int64));
  const int64_t* p = values.data<int64_t>();
  const int64_t n = values.numel();
  int64_t length = minlength;
  if (n > 0) {
    const int64_t smallest = *raw::amin(values).data<int64_t>(), largest = *raw::amax(values).data<int64_t>();
    for (int64_t i = 0; (smallest < 0 || largest == INT64_MAX) && i < n; ++i)
      TG_CHECK(p[i] >= 0 && p[i] < INT64_MAX, Runtime, "bincount: values must not be negative: got {} at index {}",
               p[i], i);
    length = std::max(length, largest + 1);
  }
  if (!weights.defined()) {
    Tensor out = raw::zeros({length}, DType::int64);
    int64_t* to = out.data<int64_t>();
    for (int64_t i = 0; i < n; ++i) ++to[p[i]];
    return out;
  }
  const DType dtype = weights.dtype() == DType::float32 ? DType::float32 : DType::float64;
  Tensor out = raw::zeros({length}, dtype);
  const Tensor w = raw::contiguous(raw::to(weights, dtype));
  auto add = [&]<class T>() {
    T* to = out.data<T>();
    const T* from = w.data<T>();
    for (int64_t i = 0; i < n; ++i) to[p[i]] += from[i];
  };
  if (dtype == DType::float32)
    add.template operator()<float>();
  else
    add.template operator()<double>();
  return out;
}

}  // namespace tapegrad::cpu
