// Sparse matrices by rows, and solutions with their triangles: limited by memory, and compiled once.
#include "tapegrad/aten/kernels_sparse.h"
#include "tapegrad/aten/sparse/rows.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu {

Rows by_rows(const char* op, const int64_t* row, int64_t n, int64_t rows, int64_t columns) {
  Rows r;
  uint64_t outside = 0, falls = 0;
  const int64_t* column = row + n;
  serial_for(0, n, [&](int64_t first, int64_t last) {
    uint64_t bad = 0, back = 0;
    for (int64_t k = first; k < last; ++k)  // compared as unsigned numbers, among which those below 0 are large
      bad |= static_cast<uint64_t>((static_cast<uint64_t>(row[k]) >= static_cast<uint64_t>(rows)) |
                                   (static_cast<uint64_t>(column[k]) >= static_cast<uint64_t>(columns)));
    for (int64_t k = std::max<int64_t>(first, 1); k < last; ++k) back |= static_cast<uint64_t>(row[k] < row[k - 1]);
    outside |= bad;
    falls |= back;
  });
  for (int64_t k = 0; outside && k < n; ++k)
    TG_CHECK(row[k] >= 0 && row[k] < rows && column[k] >= 0 && column[k] < columns, Index,
             "{}: entry {} at ({}, {}) lies outside of {} by {}", op, k, row[k], column[k], rows, columns);
  r.starts.assign(static_cast<size_t>(rows) + 1, 0);
  if (!falls) {
    int64_t next = 1;  // rows before it have begun
    serial_for(0, n, [&](int64_t first, int64_t last) {
      for (int64_t k = first; k < last; ++k)
        for (; next <= row[k]; ++next) r.starts[static_cast<size_t>(next)] = k;
    });
    for (; next <= rows; ++next) r.starts[static_cast<size_t>(next)] = n;
    return r;
  }
  serial_for(0, n, [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k) ++r.starts[static_cast<size_t>(row[k]) + 1];
  });
  for (size_t i = 1; i < r.starts.size(); ++i) r.starts[i] += r.starts[i - 1];
  std::vector<int64_t> next = r.starts;
  r.order.resize(static_cast<size_t>(n));
  serial_for(0, n, [&](int64_t first, int64_t last) {
    for (int64_t k = first; k < last; ++k) r.order[static_cast<size_t>(next[static_cast<size_t>(row[k])]++)] = k;
  });
  return r;
}

void coo_solve_cpu(const Tensor& indices, const Tensor& values, const Tensor& B, bool upper, bool unitriangular,
                   const Tensor& out) {
  const int64_t n = values.size(0), rows = B.size(0), cols = B.size(1);
  const int64_t* index = static_cast<const int64_t*>(indices.data_ptr());
  const Rows r = by_rows("sparse triangular_solve", index, n, rows, rows);
  dispatch_floating_complex(B.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T* from = static_cast<const T*>(B.data_ptr());
    const T* value = static_cast<const T*>(values.data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    parallel_for(0, cols, 65536 / (n + rows + 1) + 16, [&](int64_t begin, int64_t end) {
      const int64_t columns = end - begin;
      std::vector<C> sums(static_cast<size_t>(columns));
      WorkCount done;
      for (int64_t step = 0; step < rows; ++step) {
        const int64_t row = upper ? rows - 1 - step : step;
        for (int64_t c = 0; c < columns; ++c) sums[static_cast<size_t>(c)] = C(from[row * cols + begin + c]);
        C diagonal(unitriangular ? 1 : 0);
        for (int64_t k = r.starts[static_cast<size_t>(row)]; k < r.starts[static_cast<size_t>(row) + 1]; ++k) {
          const int64_t e = r.entry(k), column = index[n + e];
          if (column == row && !unitriangular) diagonal += C(value[e]);
          if (upper ? column <= row : column >= row) continue;
          const C factor(value[e]);
          const T* x = to + column * cols + begin;
          for (int64_t c = 0; c < columns; ++c) sums[static_cast<size_t>(c)] -= factor * C(x[c]);
        }
        if (!unitriangular)
          for (C& sum : sums) sum /= diagonal;
        for (int64_t c = 0; c < columns; ++c) to[row * cols + begin + c] = T(sums[static_cast<size_t>(c)]);
        done((r.starts[static_cast<size_t>(row) + 1] - r.starts[static_cast<size_t>(row)] + 1) * columns);
      }
    });
  });
}

}  // namespace tapegrad::cpu
