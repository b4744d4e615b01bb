#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include <algorithm>
#include <utility>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/copy/tile.h"
#include "tapegrad/aten/onednn/product.h"
#include "tapegrad/aten/rnn/packed_product.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

#if defined(__AVX512F__)
constexpr int kPackedVector = 64, kPackedRows = 12;  // 24 of 32 registers hold sums
template <class T>
constexpr bool kHasPairs = std::is_same_v<T, BFloat16>;
#elif defined(__AVX2__)
constexpr int kPackedVector = 32, kPackedRows = 6;  // 12 of 16
template <class T>
constexpr bool kHasPairs = false;
#else
constexpr int kPackedVector = 16, kPackedRows = 6;
template <class T>
constexpr bool kHasPairs = false;
#endif

// Two bfloat16 numbers side by side.
struct __attribute__((packed, aligned(2), may_alias)) Pair {
  uint32_t bits;
};

template <class C>
constexpr int64_t kLanes = kPackedVector / static_cast<int64_t>(sizeof(C));
template <class C>
constexpr int64_t kPanel = 2 * kLanes<C>;
// Steps of a panel that are 32 KB, of pairs twice as many: measured on a Zen 5, where 256 of these take 1.03 times as
// long.
template <class A>
constexpr int64_t kSlice = (std::is_same_v<A, Pair> ? 65536 : 32768) / (2 * kPackedVector);
constexpr int64_t kBlock = 16;  // steps that are packed together

template <class C>
using Sums __attribute__((vector_size(kPackedVector), aligned(sizeof(C)), may_alias)) = C;

// Adds or writes the sums of a tile.
template <int R, class C>
TG_INLINE void finish(const Sums<C> (&sum)[R][2], C* c, int64_t ldc, int64_t cols, bool add) {
#pragma GCC unroll 12
  for (int r = 0; r < R; ++r) {
    C* row = c + r * ldc;
    if (cols == kPanel<C>) {
      auto *c0 = reinterpret_cast<Sums<C>*>(row), *c1 = reinterpret_cast<Sums<C>*>(row + kLanes<C>);
      *c0 = add ? *c0 + sum[r][0] : sum[r][0];
      *c1 = add ? *c1 + sum[r][1] : sum[r][1];
    } else {
      for (int64_t j = 0; j < cols; ++j) {
        const C s = j < kLanes<C> ? sum[r][0][j] : sum[r][1][j - kLanes<C>];
        row[j] = add ? row[j] + s : s;
      }
    }
  }
}

template <int R, class C>
void tile(int64_t depth, const C* a, int64_t lda, const C* panel, C* c, int64_t ldc, int64_t cols, bool add) {
  Sums<C> sum[R][2] = {};
  for (int64_t p = 0; p < depth; ++p) {
    const Sums<C> b0 = *reinterpret_cast<const Sums<C>*>(panel + p * kPanel<C>);
    const Sums<C> b1 = *reinterpret_cast<const Sums<C>*>(panel + p * kPanel<C> + kLanes<C>);
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const C x = a[r * lda + p];
      sum[r][0] += x * b0;
      sum[r][1] += x * b1;
    }
  }
  finish<R, C>(sum, c, ldc, cols, add);
}

#if defined(__AVX512F__)
// Called where the processor has this instruction, for which no file is compiled as a whole.
template <int R>
__attribute__((target("avx512bf16"))) void tile(int64_t depth, const Pair* a, int64_t lda, const float* panel, float* c,
                                                int64_t ldc, int64_t cols, bool add) {
  __m512 sum[R][2];
  for (auto& row : sum) row[0] = row[1] = _mm512_setzero_ps();
  for (int64_t p = 0; p < depth; ++p) {
    const __m512bh b0 = __m512bh(_mm512_loadu_si512(panel + p * kPanel<float>));
    const __m512bh b1 = __m512bh(_mm512_loadu_si512(panel + p * kPanel<float> + kLanes<float>));
#pragma GCC unroll 12
    for (int r = 0; r < R; ++r) {
      const __m512bh x = __m512bh(_mm512_set1_epi32(static_cast<int>(a[r * lda + p].bits)));
      sum[r][0] = _mm512_dpbf16_ps(sum[r][0], x, b0);
      sum[r][1] = _mm512_dpbf16_ps(sum[r][1], x, b1);
    }
  }
  Sums<float> sums[R][2];
  for (int r = 0; r < R; ++r)
    for (int v = 0; v < 2; ++v) sums[r][v] = Sums<float>(sum[r][v]);
  finish<R, float>(sums, c, ldc, cols, add);
}
#endif

// a's elements or pairs of them, rows `lda` such steps apart. In slices of k, so that what all rows need of a panel
// stays in the first cache.
template <class C, class A>
void multiply_steps(int64_t m, int64_t n, int64_t steps, const A* a, int64_t lda, const C* panels, C* c, int64_t ldc,
                    bool add) {
  const int64_t blocks = (m + kPackedRows - 1) / kPackedRows;
  int64_t p = 0;
  do {
    if (p > 0) check_interrupt();
    const int64_t depth = std::min(kSlice<A>, steps - p);
    const C* panel = panels + p * kPanel<C>;
    for (int64_t j = 0; j < n; j += kPanel<C>, panel += steps * kPanel<C>)
      for (int64_t block = 0; block < blocks; ++block) {
        const int64_t first = m * block / blocks, rows = m * (block + 1) / blocks - first;
        const auto tiles = [&]<int... R>(std::integer_sequence<int, R...>) {
          (void)((rows == R + 1 && (tile<R + 1>(depth, a + first * lda + p, lda, panel, c + first * ldc + j, ldc,
                                                std::min(kPanel<C>, n - j), add || p > 0),
                                    true)) ||
                 ...);
        };
        tiles(std::make_integer_sequence<int, kPackedRows>());
      }
    p += depth;
  } while (p < steps);
}

// Columns of `steps` words of type W each, `column` bytes apart, side by side.
template <class W>
void turn(int64_t steps, int64_t cols, const void* columns, int64_t column, void* to, int64_t width) {
  const int64_t row = width * static_cast<int64_t>(sizeof(W)), kSide = kTile<W>;
  for (int64_t s = 0; s < steps; s += kSide)
    for (int64_t j = 0; j < cols; j += kSide) {
      char* out = static_cast<char*>(to) + s * row + j * static_cast<int64_t>(sizeof(W));
      const char* from = static_cast<const char*>(columns) + j * column + s * static_cast<int64_t>(sizeof(W));
      if (steps - s >= kSide && cols - j >= kSide)
        transpose_tile<W>(out, row, from, column);
      else
        transpose_edge<W>(out, row, from, column, std::min(kSide, steps - s), std::min(kSide, cols - j));
    }
}

// The columns of b from `first` on, as many as fill a panel.
template <class T, class C>
void pack(MatrixRef<T> b, int64_t k, int64_t n, int64_t first, C* to) {
  const int64_t cols = std::min(kPanel<C>, n - first), column = b.col * static_cast<int64_t>(sizeof(T));
  if (cols < kPanel<C>) std::fill(to, to + k * kPanel<C>, C(0));
  const T* from = b.data + first * b.col;
  if constexpr (std::is_same_v<T, C>)
    if (b.row == 1)
      return turn<std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t>>(k, cols, from, column, to, kPanel<C>);
  for (int64_t p0 = 0; p0 < k; p0 += kBlock) {
    const int64_t end = std::min(k, p0 + kBlock);
    if (b.col == 1) {
      for (int64_t p = p0; p < end; ++p)
        for (int64_t j = 0; j < cols; ++j) to[p * kPanel<C> + j] = static_cast<C>(from[p * b.row + j]);
    } else {
      for (int64_t j = 0; j < cols; ++j)
        for (int64_t p = p0; p < end; ++p) to[p * kPanel<C> + j] = static_cast<C>(from[p * b.row + j * b.col]);
    }
  }
}

// The same in pairs; the row after an odd last one is zero. Of b either rows or columns are contiguous.
[[maybe_unused]] void pack_pairs(MatrixRef<BFloat16> b, int64_t k, int64_t n, int64_t first, Pair* to) {
  constexpr int64_t kWidth = kPanel<float>;
  const int64_t cols = std::min(kWidth, n - first);
  if (cols < kWidth) std::fill(to, to + (k + 1) / 2 * kWidth, Pair{0});
  const BFloat16* from = b.data + first * b.col;
  if (b.row == 1) {
    turn<uint32_t>(k / 2, cols, from, 2 * b.col, to, kWidth);
  } else {
    for (int64_t s = 0; s < k / 2; ++s) {
      const BFloat16 *low = from + 2 * s * b.row, *high = low + b.row;
      for (int64_t j = 0; j < cols; ++j)
        to[s * kWidth + j].bits = low[j].bits | static_cast<uint32_t>(high[j].bits) << 16;
    }
  }
  for (int64_t j = 0; k % 2 && j < cols; ++j) to[k / 2 * kWidth + j].bits = from[(k - 1) * b.row + j * b.col].bits;
}

}  // namespace

template <class T>
PackedMatrix<T>::PackedMatrix(MatrixRef<T> b, int64_t k, int64_t n)
    : k_(k), n_(n), pairs_(kHasPairs<T> && onednn::multiplies(dtype_of_v<T>)), steps_(pairs_ ? (k + 1) / 2 : k) {
  const int64_t panels = (n + kPanel<C> - 1) / kPanel<C>;
  holder_ = empty_tensor({std::max<int64_t>(1, panels * steps_ * kPanel<C>)}, dtype_of_v<C>);
  C* to = static_cast<C*>(holder_.data_ptr());
  parallel_for(0, panels, 32768 / (k * kPanel<C> + 1) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      C* at = to + panel * steps_ * kPanel<C>;
      if constexpr (kHasPairs<T>) {
        if (pairs_) {
          pack_pairs(b, k, n, panel * kPanel<C>, reinterpret_cast<Pair*>(at));
          continue;
        }
      }
      pack(b, k, n, panel * kPanel<C>, at);
    }
  });
}

template <class T>
void PackedMatrix<T>::multiply(int64_t m, const T* a, int64_t lda, C* c, int64_t ldc, bool add) const {
  if (m <= 0) return;
  const C* panels = static_cast<const C*>(holder_.data_ptr());
  if constexpr (std::is_same_v<T, C>) {
    return multiply_steps<C>(m, n_, steps_, a, lda, panels, c, ldc, add);
  } else if constexpr (kHasPairs<T>) {
    if (pairs_) {
      if (k_ % 2 == 0 && lda % 2 == 0)
        return multiply_steps<C>(m, n_, steps_, reinterpret_cast<const Pair*>(a), lda / 2, panels, c, ldc, add);
      const Tensor scratch = empty_tensor({2 * m * steps_}, dtype_of_v<T>);
      T* even = static_cast<T*>(scratch.data_ptr());
      for (int64_t r = 0; r < m; ++r) {
        if (k_ % 2) even[2 * (r + 1) * steps_ - 1] = T(0.0f);
        std::copy_n(a + r * lda, k_, even + 2 * r * steps_);
      }
      return multiply_steps<C>(m, n_, steps_, reinterpret_cast<const Pair*>(even), steps_, panels, c, ldc, add);
    }
  }
  if constexpr (!std::is_same_v<T, C>) {
    const Tensor scratch = empty_tensor({m * k_}, dtype_of_v<C>);
    C* wide = static_cast<C*>(scratch.data_ptr());
    for (int64_t r = 0; r < m; ++r) convert_line(wide + r * k_, a + r * lda, k_);
    multiply_steps<C>(m, n_, steps_, wide, k_, panels, c, ldc, add);
  }
}

template <class T>
void threaded_sums(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, bool add, compute_t<T>* c,
                   int64_t ldc) {
  if constexpr (!is_half_type<T>) {
    gemm<T>(m, n, k, T(1), a, b, T(add ? 1 : 0), c, ldc);
  } else {
    shared_sums<T>(m, n, k, a, b, add, c, ldc);
  }
}

template <class T>
void tall_product(int64_t m, int64_t k, int64_t n, const T* a, int64_t lda, MatrixRef<T> b, compute_t<T>* c,
                  int64_t ldc) {
  if constexpr (is_half_type<T>) {
    threaded_sums<T>(m, n, k, {a, lda, 1}, b, false, c, ldc);
  } else {
    const PackedMatrix<T> packed(b, k, n);
    parallel_for(0, m, (int64_t{1} << 20) / (k * n + 1) + 48, [&](int64_t begin, int64_t end) {
      packed.multiply(end - begin, a + begin * lda, lda, c + begin * ldc, ldc, false);
    });
  }
}

#define TG_PACKED(T)                                                                                                   \
  template class PackedMatrix<T>;                                                                                      \
  template void threaded_sums<T>(int64_t, int64_t, int64_t, MatrixRef<T>, MatrixRef<T>, bool, compute_t<T>*, int64_t); \
  template void tall_product<T>(int64_t, int64_t, int64_t, const T*, int64_t, MatrixRef<T>, compute_t<T>*, int64_t);
TG_PACKED(float)
TG_PACKED(double)
TG_PACKED(Half)
TG_PACKED(BFloat16)
#undef TG_PACKED

}  // namespace tapegrad::cpu::TG_ISA
