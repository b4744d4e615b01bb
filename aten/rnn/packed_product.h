// Products of few rows with one matrix that stays the same over many steps. The matrix is packed once into panels as
// wide as two vectors, so that a step streams through it; a library's product would repack it in every step. Each row
// of the result is summed in the same order however the rows are distributed over threads. Compiled per instruction
// set.
#pragma once

#include <algorithm>
#include <utility>

#include "tapegrad/aten/linalg/gemm.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

#if defined(__AVX512F__)
inline constexpr int kPackedVector = 64, kPackedRows = 12;  // 24 of 32 registers hold sums
#elif defined(__AVX2__)
inline constexpr int kPackedVector = 32, kPackedRows = 6;  // 12 of 16
#else
inline constexpr int kPackedVector = 16, kPackedRows = 6;
#endif

template <class T>
class PackedMatrix {
 public:
  static constexpr int64_t kLanes = kPackedVector / static_cast<int64_t>(sizeof(T)), kPanel = 2 * kLanes;
  static constexpr int64_t kSlice = 32768 / (2 * kPackedVector);  // rows of a panel that are 32 KB

  // b has k rows and n columns.
  PackedMatrix(MatrixRef<T> b, int64_t k, int64_t n) : k_(k), n_(n) {
    const int64_t panels = (n + kPanel - 1) / kPanel;
    holder_ = empty_tensor({std::max<int64_t>(1, panels * k * kPanel)}, dtype_of_v<T>);
    T* to = static_cast<T*>(holder_.data_ptr());
    parallel_for(0, panels, 32768 / (k * kPanel + 1) + 1, [&](int64_t begin, int64_t end) {
      for (int64_t panel = begin; panel < end; ++panel) pack(b, panel * kPanel, to + panel * k * kPanel);
    });
  }

  // c (m x n, rows ldc apart) = a (m x k, rows lda apart) * b, added to c where asked. In slices of k, so that what all
  // rows need of a panel stays in the first cache.
  void multiply(int64_t m, const T* a, int64_t lda, T* c, int64_t ldc, bool add) const {
    if (m <= 0) return;
    const T* data = static_cast<const T*>(holder_.data_ptr());
    const int64_t blocks = (m + kPackedRows - 1) / kPackedRows;
    int64_t p = 0;
    do {
      const int64_t depth = std::min(kSlice, k_ - p);
      const T* panel = data + p * kPanel;
      for (int64_t j = 0; j < n_; j += kPanel, panel += k_ * kPanel)
        for (int64_t block = 0; block < blocks; ++block) {
          const int64_t first = m * block / blocks, rows = m * (block + 1) / blocks - first;
          tiles(rows, depth, a + first * lda + p, lda, panel, c + first * ldc + j, ldc, std::min(kPanel, n_ - j),
                add || p > 0);
        }
      p += depth;
    } while (p < k_);
  }

 private:
  void pack(MatrixRef<T> b, int64_t first, T* to) const {
    constexpr int64_t kBlock = 16;
    const int64_t cols = std::min(kPanel, n_ - first);
    if (cols < kPanel) std::fill(to, to + k_ * kPanel, T(0));
    if (b.col == 1) {
      for (int64_t p = 0; p < k_; ++p) std::copy_n(b.data + p * b.row + first, cols, to + p * kPanel);
      return;
    }
    for (int64_t p0 = 0; p0 < k_; p0 += kBlock)
      for (int64_t j = 0; j < cols; ++j) {
        const T* from = b.data + (first + j) * b.col;
        for (int64_t p = p0; p < std::min(k_, p0 + kBlock); ++p) to[p * kPanel + j] = from[p * b.row];
      }
  }

  template <int R>
  void tile(int64_t depth, const T* a, int64_t lda, const T* panel, T* c, int64_t ldc, int64_t cols, bool add) const {
    typedef T Vector __attribute__((vector_size(kPackedVector), aligned(sizeof(T)), may_alias));
    Vector sum[R][2] = {};
    for (int64_t p = 0; p < depth; ++p) {
      const Vector b0 = *reinterpret_cast<const Vector*>(panel + p * kPanel);
      const Vector b1 = *reinterpret_cast<const Vector*>(panel + p * kPanel + kLanes);
#pragma GCC unroll 12
      for (int r = 0; r < R; ++r) {
        const T x = a[r * lda + p];
        sum[r][0] += x * b0;
        sum[r][1] += x * b1;
      }
    }
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      T* row = c + r * ldc;
      if (cols == kPanel) {
        Vector *c0 = reinterpret_cast<Vector*>(row), *c1 = reinterpret_cast<Vector*>(row + kLanes);
        *c0 = add ? *c0 + sum[r][0] : sum[r][0];
        *c1 = add ? *c1 + sum[r][1] : sum[r][1];
      } else {
        for (int64_t j = 0; j < cols; ++j) {
          const T s = j < kLanes ? sum[r][0][j] : sum[r][1][j - kLanes];
          row[j] = add ? row[j] + s : s;
        }
      }
    }
  }

  void tiles(int64_t rows, int64_t depth, const T* a, int64_t lda, const T* panel, T* c, int64_t ldc, int64_t cols,
             bool add) const {
    const auto of = [&]<int... R>(std::integer_sequence<int, R...>) {
      (void)((rows == R + 1 && (tile<R + 1>(depth, a, lda, panel, c, ldc, cols, add), true)) || ...);
    };
    of(std::make_integer_sequence<int, kPackedRows>());
  }

  int64_t k_, n_;
  Tensor holder_;
};

// The product for the rows of all steps at once, shared out to threads.
template <class T>
void tall_product(int64_t m, int64_t k, int64_t n, const T* a, int64_t lda, MatrixRef<T> b, T* c, int64_t ldc) {
  const PackedMatrix<T> packed(b, k, n);
  parallel_for(0, m, (int64_t{1} << 20) / (k * n + 1) + 48, [&](int64_t begin, int64_t end) {
    packed.multiply(end - begin, a + begin * lda, lda, c + begin * ldc, ldc, false);
  });
}

// The number of sequences per chunk: few enough that several threads get work, enough that a loaded panel is used more
// than once.
inline int64_t sequences_per_chunk(int64_t sequences) { return std::clamp<int64_t>((sequences + 3) / 4, 8, 32); }

// The number of steps from which packing the matrix pays off.
inline constexpr int64_t kPackedSteps = 4;

}  // namespace tapegrad::cpu::TG_ISA
