// Products of sparse and dense matrices. Threads divide the columns, since the entries of a row may be anywhere.
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {

void coo_mm_cpu(const Tensor& indices, const Tensor& values, const Tensor& dense, int64_t rows, const Tensor& out) {
  const int64_t n = values.size(0), cols = dense.size(1);
  const bool blocks = values.ndim() == 3;  // (entries, height, width); an index counts blocks
  const int64_t height = blocks ? values.size(1) : 1, width = blocks ? values.size(2) : 1;
  const int64_t high = rows / std::max<int64_t>(height, 1), wide = dense.size(0) / std::max<int64_t>(width, 1);
  const int64_t* index = static_cast<const int64_t*>(indices.data_ptr());
  for (int64_t k = 0; k < n; ++k)
    TG_CHECK(index[k] >= 0 && index[k] < high && index[n + k] >= 0 && index[n + k] < wide, Index,
             "sparse mm: entry {} at ({}, {}) lies outside of {} by {}", k, index[k], index[n + k], high, wide);
  dispatch_floating_complex(dense.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T* from = static_cast<const T*>(dense.data_ptr());
    const T* value = static_cast<const T*>(values.data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    parallel_for(0, cols, 65536 / (values.numel() + 1) + 64, [&](int64_t begin, int64_t end) {
      const int64_t columns = end - begin;
      // Adds all terms to sums (rows, columns) whose rows are `stride` apart.
      const auto add_terms = [&](C* sums, int64_t stride) {
        WorkCount done;
        for (int64_t k = 0; k < n; ++k) {
          done(height * width * columns);
          for (int64_t i = 0; i < height; ++i) {
            C* __restrict y = sums + (index[k] * height + i) * stride;
            const T *x = from + index[n + k] * width * cols + begin, *v = value + (k * height + i) * width;
            int64_t j = 0;
            for (; j + 4 <= width; j += 4, x += 4 * cols) {  // of a block's row, for which y is read once
              const C v0(v[j]), v1(v[j + 1]), v2(v[j + 2]), v3(v[j + 3]);
              for (int64_t c = 0; c < columns; ++c)
                y[c] += v0 * C(x[c]) + v1 * C(x[cols + c]) + (v2 * C(x[2 * cols + c]) + v3 * C(x[3 * cols + c]));
            }
            for (; j < width; ++j, x += cols)
              for (int64_t c = 0; c < columns; ++c) y[c] += C(v[j]) * C(x[c]);
          }
        }
      };
      if constexpr (std::is_same_v<C, T>) {
        for (int64_t i = 0; i < rows; ++i) std::fill_n(to + i * cols + begin, columns, T(0));
        add_terms(to + begin, cols);
      } else {  // summed in the compute type
        std::vector<C> sums(static_cast<size_t>(rows * columns), C(0));
        add_terms(sums.data(), columns);
        for (int64_t i = 0; i < rows; ++i) convert_line(to + i * cols + begin, sums.data() + i * columns, columns);
      }
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
