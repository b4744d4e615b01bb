// Products of sparse and dense matrices. Entries are taken row by row, in their
// order within a row; a row's sums are added up in registers. Threads divide rows, of few rows columns, by sizes alone.
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
    constexpr bool kInRegisters = std::is_floating_point_v<T>;  // of the others there are fewer tiles, for size
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
              if (c < last) self(self, c, std::integral_constant<int64_t, kInRegisters ? size / 2 : size / 8>());
          };
          from_on(from_on, first, std::integral_constant<int64_t, kInRegisters ? kTile : 8>());
        }
      }
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
