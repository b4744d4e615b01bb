// Products of sparse and dense matrices. Threads divide the columns, since the entries of a row may be anywhere.
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

void coo_mm_cpu(const Tensor& indices, const Tensor& values, const Tensor& dense, int64_t rows, const Tensor& out) {
  const int64_t n = values.size(0), cols = dense.size(1), inner = dense.size(0);
  const int64_t* index = static_cast<const int64_t*>(indices.data_ptr());
  for (int64_t k = 0; k < n; ++k)
    TG_CHECK(index[k] >= 0 && index[k] < rows && index[n + k] >= 0 && index[n + k] < inner, Index,
             "sparse mm: entry {} at ({}, {}) lies outside of {} by {}", k, index[k], index[n + k], rows, inner);
  dispatch_floating_complex(dense.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T* from = static_cast<const T*>(dense.data_ptr());
    const T* value = static_cast<const T*>(values.data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    parallel_for(0, cols, 65536 / (n + 1) + 16, [&](int64_t begin, int64_t end) {
      const int64_t width = end - begin;
      if constexpr (std::is_same_v<C, T>) {
        for (int64_t i = 0; i < rows; ++i) std::fill_n(to + i * cols + begin, width, T(0));
        for (int64_t k = 0; k < n; ++k) {
          const T* x = from + index[n + k] * cols + begin;
          T* y = to + index[k] * cols + begin;
          for (int64_t j = 0; j < width; ++j) y[j] += value[k] * x[j];
        }
      } else {  // summed in the compute type
        std::vector<C> sums(static_cast<size_t>(rows * width), C(0));
        for (int64_t k = 0; k < n; ++k) {
          const T* x = from + index[n + k] * cols + begin;
          C* y = sums.data() + index[k] * width;
          for (int64_t j = 0; j < width; ++j) y[j] += static_cast<C>(value[k]) * static_cast<C>(x[j]);
        }
        for (int64_t i = 0; i < rows; ++i) convert_line(to + i * cols + begin, sums.data() + i * width, width);
      }
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
