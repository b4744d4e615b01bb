// Products of sparse and dense matrices, and solutions with sparse triangles. Entries are taken row by row, in their
// order within a row; a row's sums are added up in registers. Threads divide rows, of few rows columns, by sizes alone.
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// The entries of each of some rows: entry(k) for k from starts[row] to before starts[row + 1].
struct Rows {
  std::vector<int64_t> starts, order;  // no order: they are sorted by rows
  int64_t entry(int64_t k) const { return order.empty() ? k : order[static_cast<size_t>(k)]; }
};

// Checks the places, too.
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

// Sums of `count` columns that begin at some element of a row, in registers where the compiler can be told so.
template <class T, int64_t count, class C = compute_t<T>>
struct Sums {
  C sums[count] = {};
  void add(C factor, const T* x) {
    for (int64_t c = 0; c < count; ++c) sums[c] += factor * C(x[c]);
  }
  void store(T* y) const {
    if constexpr (std::is_same_v<C, T>)
      std::copy_n(sums, count, y);
    else
      convert_line(y, sums, count);
  }
};

template <class T, int64_t count>
  requires(std::is_floating_point_v<T> && count * sizeof(T) >= 16)
struct Sums<T, count, T> {
  static constexpr int64_t kBytes = std::min<int64_t>(count * static_cast<int64_t>(sizeof(T)), 64);
  static constexpr int64_t kParts = count * static_cast<int64_t>(sizeof(T)) / kBytes;
  typedef T Part __attribute__((vector_size(kBytes)));
  typedef T Loose __attribute__((vector_size(kBytes), aligned(alignof(T)), may_alias));
  Part sums[kParts] = {};
  void add(T factor, const T* x) {
    for (int64_t p = 0; p < kParts; ++p) sums[p] += factor * reinterpret_cast<const Loose*>(x)[p];
  }
  void store(T* y) const {
    for (int64_t p = 0; p < kParts; ++p) reinterpret_cast<Loose*>(y)[p] = sums[p];
  }
};

}  // namespace

void coo_mm_cpu(const Tensor& indices, const Tensor& values, const Tensor& dense, int64_t rows, const Tensor& out) {
  const int64_t n = values.size(0), cols = dense.size(1);
  const bool blocks = values.ndim() == 3;  // (entries, height, width); an index counts blocks
  const int64_t height = blocks ? values.size(1) : 1, width = blocks ? values.size(2) : 1;
  const int64_t high = rows / std::max<int64_t>(height, 1), wide = dense.size(0) / std::max<int64_t>(width, 1);
  const int64_t* index = static_cast<const int64_t*>(indices.data_ptr());
  const Rows r = by_rows("sparse mm", index, n, high, wide);
  dispatch_floating_complex(dense.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    constexpr int64_t kTile = 256 / static_cast<int64_t>(sizeof(C));
    const T* from = static_cast<const T*>(dense.data_ptr());
    const T* value = static_cast<const T*>(values.data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    // `count` columns, a constant, of row `in` of the rows of one block.
    const auto tile = [&](int64_t row, int64_t in, int64_t column, auto count) {
      Sums<T, count> sums;
      const int64_t *columns = index + n, *order = r.order.empty() ? nullptr : r.order.data();
      const int64_t end = r.starts[static_cast<size_t>(row) + 1], step = width * cols;
      const T *first = from + column, *weights = value + in * width;
      for (int64_t k = r.starts[static_cast<size_t>(row)]; k < end; ++k) {
        const int64_t e = order ? order[k] : k;
        if (k + 8 < n) __builtin_prefetch(first + columns[order ? order[k + 8] : k + 8] * step);
        const T *v = weights + e * height * width, *x = first + columns[e] * step;
        for (int64_t j = 0; j < width; ++j, x += cols) sums.add(C(v[j]), x);
      }
      sums.store(to + (row * height + in) * cols + column);
    };
    const int64_t part = high >= 64 ? cols : std::max<int64_t>(kTile, (cols + 15) / 16);
    const int64_t parts = std::max<int64_t>(1, (cols + part - 1) / std::max<int64_t>(part, 1));
    const int64_t work = (values.numel() / std::max<int64_t>(high, 1) + height) * std::min(part, cols) + 1;
    parallel_for(0, high * parts, 65536 / work + 1, [&](int64_t begin, int64_t end) {
      WorkCount done;
      for (int64_t at = begin; at < end; ++at) {
        const int64_t row = at / parts, first = at % parts * part, last = std::min(cols, first + part);
        const int64_t entries = r.starts[static_cast<size_t>(row) + 1] - r.starts[static_cast<size_t>(row)];
        for (int64_t in = 0; in < height; ++in) {
          const auto from_on = [&](const auto& self, int64_t c,
                                   auto size) -> void {  // tiles of that size, then smaller
            for (; c + size <= last; c += size, done((entries * width + 1) * size)) tile(row, in, c, size);
            if constexpr (size > 1)
              if (c < last) self(self, c, std::integral_constant<int64_t, size / 2>());
          };
          from_on(from_on, first, std::integral_constant<int64_t, kTile>());
        }
      }
    });
  });
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
        convert_line(sums.data(), from + row * cols + begin, columns);
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
        convert_line(to + row * cols + begin, sums.data(), columns);
        done((r.starts[static_cast<size_t>(row) + 1] - r.starts[static_cast<size_t>(row)] + 1) * columns);
      }
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
