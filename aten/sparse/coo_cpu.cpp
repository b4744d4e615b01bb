// Products of sparse and dense matrices. Entries are taken row by row, in their
// order within a row; a row's sums are added up in registers. Threads divide rows, of few rows columns, by sizes alone.
#include <atomic>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/sparse/rows.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

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

// Where rows begin, of entries that are sorted by rows and lie inside of the matrix; else false, and by_rows looks
// again.
bool sorted_starts(const int64_t* row, int64_t n, int64_t rows, int64_t columns, std::vector<int64_t>& starts) {
  constexpr int64_t kChunk = 2048;  // is in the cache when its rows are counted
  const int64_t* column = row + n;
  starts.assign(static_cast<size_t>(rows) + 1, 0);
  std::atomic<bool> fits = true;
  parallel_for(0, n, 16 * kChunk, [&](int64_t begin, int64_t end) {
    for (int64_t first = begin; first < end; first += kChunk) {
      const int64_t last = std::min(end, first + kChunk);
      uint64_t bad = first > 0 && row[first] < row[first - 1];
      for (int64_t k = first; k < last; ++k)  // as unsigned numbers, among which those below 0 are large
        bad |= static_cast<uint64_t>((static_cast<uint64_t>(row[k]) >= static_cast<uint64_t>(rows)) |
                                     (static_cast<uint64_t>(column[k]) >= static_cast<uint64_t>(columns)));
      for (int64_t k = first + 1; k < last; ++k) bad |= static_cast<uint64_t>(row[k] < row[k - 1]);
      if (bad) return fits.store(false, std::memory_order_relaxed);
      int64_t own = last;  // the end of a row that goes on is written where it ends
      while (last < n && own > first && row[own - 1] == row[last]) --own;
      for (int64_t k = first; k < own; ++k) starts[static_cast<size_t>(row[k]) + 1] = k + 1;
    }
  });
  for (size_t i = 1; i < starts.size(); ++i) starts[i] = std::max(starts[i], starts[i - 1]);  // rows without entries
  return fits;
}

// Rows [begin, end) of a matrix of numbers by `count` columns of a dense one: the sums of few columns take less time
// than what tiles ask of each row.
template <class T, int64_t count>
void few_columns(const int64_t* starts, const int64_t* columns, const T* values, int64_t cols, const T* x, T* y,
                 int64_t begin, int64_t end) {
  using C = compute_t<T>;
  for (int64_t row = begin; row < end; ++row) {
    Sums<T, count> sums;
    for (int64_t k = starts[row]; k < starts[row + 1]; ++k) sums.add(C(values[k]), x + columns[k] * cols);
    sums.store(y + row * cols);
  }
}

// All of them, in the order of powers of 2 that make up their number. Reads entries once per part: at most four times.
template <class T, int64_t count = 16>
void all_few_columns(const int64_t* starts, const int64_t* columns, const T* values, int64_t cols, int64_t done,
                     const T* x, T* y, int64_t begin, int64_t end) {
  if (cols - done >= count) {
    few_columns<T, count>(starts, columns, values, cols, x + done, y + done, begin, end);
    done += count;
  }
  if constexpr (count > 1)
    if (done < cols) all_few_columns<T, count / 2>(starts, columns, values, cols, done, x, y, begin, end);
}

}  // namespace

void coo_mm_cpu(const Tensor& indices, const Tensor& values, const Tensor& dense, int64_t rows, const Tensor& out) {
  const int64_t n = values.size(0), cols = dense.size(1);
  const bool blocks = values.ndim() == 3;  // (entries, height, width); an index counts blocks
  const int64_t height = blocks ? values.size(1) : 1, width = blocks ? values.size(2) : 1;
  const int64_t high = rows / std::max<int64_t>(height, 1), wide = dense.size(0) / std::max<int64_t>(width, 1);
  const int64_t* index = static_cast<const int64_t*>(indices.data_ptr());
  Rows r;
  if (!sorted_starts(index, n, high, wide, r.starts)) r = by_rows("sparse mm", index, n, high, wide);
  dispatch_floating_complex(dense.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    constexpr bool kInRegisters = std::is_floating_point_v<T>;  // of the others there are fewer tiles, for size
    constexpr int64_t kTile = 256 / static_cast<int64_t>(sizeof(C));
    const T* from = static_cast<const T*>(dense.data_ptr());
    const T* value = static_cast<const T*>(values.data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    if constexpr (kInRegisters)
      if (!blocks && cols <= 16 && r.order.empty())
        return parallel_for(0, high, 65536 / ((n / std::max<int64_t>(high, 1) + 1) * (cols + 1)) + 1,
                            [&](int64_t begin, int64_t end) {
                              all_few_columns<T>(r.starts.data(), index + n, value, cols, 0, from, to, begin, end);
                            });
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
              if (c < last) self(self, c, std::integral_constant<int64_t, kInRegisters ? size / 2 : size / 8>());
          };
          from_on(from_on, first, std::integral_constant<int64_t, kInRegisters ? kTile : 8>());
        }
      }
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
