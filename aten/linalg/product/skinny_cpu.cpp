#include "tapegrad/aten/linalg/product/skinny.h"

#include <algorithm>
#include <cstring>
#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "tapegrad/aten/iterate/blocks/float_vector.h"
#include "tapegrad/aten/iterate/blocks/half_blocks.h"
#include "tapegrad/aten/iterate/blocks/int8_blocks.h"
#include "tapegrad/aten/onednn/product.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// Elements of a column that are loaded at once, and the vectors that they fill. Few, since sums need the registers.
template <class T>
constexpr int kStep = std::is_same_v<T, float> ? kVector : 2 * half_blocks::kBlock;
template <class T>
constexpr int kParts = kStep<T> / kVector;
constexpr int64_t kPadding = kStep<Half>;  // rows of a end on such a border
constexpr int64_t kCached = 16384;         // bytes of a at a time, which stay in the nearest cache
constexpr int64_t kColumns = 64;           // whose sums wait for the next depth
constexpr int64_t kRows = 8;               // at a time
constexpr int64_t kMostRows = kMostSkinnyRows;
constexpr int kMostLines = 4;    // rows of a, where b has contiguous rows
constexpr int64_t kWide = 2048;  // columns at a time there
constexpr int64_t kLines = 840;  // rows of b at a time there: a multiple of what add_block takes together

// Columns of b that lie `step` elements apart.
template <class T>
struct Columns {
  const T* data;
  int64_t step;
  bool far;  // too much to be in the caches: what comes next is asked for early
  const T* at(int64_t j) const { return data + j * step; }
  Columns from(int64_t j) const { return {at(j), step, far}; }
};

// A step of weights as floats; those of bfloat16 in the order of load_deinterleaved.
template <class T>
TG_INLINE void load_step(const T* from, Vector (&to)[kParts<T>]) {
  if constexpr (is_half_type<T>) {
    alignas(64) float x[kStep<T>];
    half_blocks::load_deinterleaved(from, x);
    for (int i = 0; i < kParts<T>; ++i) to[i] = vector_at(x + i * kVector);
  } else if constexpr (std::is_same_v<T, int8_t>) {
    for (int i = 0; i < kParts<T>; ++i) to[i] = int8_blocks::load(from + i * kVector);
  } else {
    to[0] = vector_at(from);
  }
}

// The rows of a, each filled up with zeros: as floats in the order of W's load_step, or as they are.
template <class W, class T, class P>
void pack_rows(int64_t m, int64_t k, int64_t padded, MatrixRef<T> a, P* to) {
  for (int64_t i = 0; i < m; ++i, to += padded) {
    const T* row = a.data + i * a.row;
    for (int64_t p = 0; p < padded; p += kPadding)
      for (int l = 0; l < kPadding; ++l) {
        int64_t at = p + l;
        if constexpr (is_half_type<W> && !is_half_type<P>) at = p + half_blocks::place_of(W(), l);
        to[p + l] = at < k ? static_cast<P>(row[at * a.col]) : P(0.0f);
      }
  }
}

#if defined(__AVX512F__)
// add_products with the instruction that adds the products of pairs of bfloat16 to floats: weights are not widened.
template <int kM, int kJ>
[[gnu::target("avx512bf16")]] void add_products(int64_t steps, int64_t rest, const BFloat16* a, int64_t padded,
                                                Columns<BFloat16> b, Vector (*sums)[kRows]) {
  constexpr int64_t kPairs = 32;
  // The kernel of most rows computes for so long that the processor does not read ahead by itself. After a masked load
  // a Zen 5 never does: only the last step has one.
  const int64_t ahead = b.far ? kJ : 0;
  __m512 sum[kJ][kM];
#pragma GCC unroll 16
  for (int j = 0; j < kJ; ++j)
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i) sum[j][i] = _mm512_loadu_ps(&sums[j][i]);
  __m512bh w[kJ];
  auto add = [&](int64_t s) __attribute__((target("avx512bf16"), always_inline)) {
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i) {
      const auto x = reinterpret_cast<__m512bh>(_mm512_loadu_si512(a + i * padded + s * kPairs));
#pragma GCC unroll 16
      for (int j = 0; j < kJ; ++j) sum[j][i] = _mm512_dpbf16_ps(sum[j][i], w[j], x);
    }
  };
  for (int64_t s = 0; s < steps; ++s) {
#pragma GCC unroll 16
    for (int j = 0; j < kJ; ++j) {
      w[j] = reinterpret_cast<__m512bh>(_mm512_loadu_si512(b.at(j) + s * kPairs));
      if (kM == kRows) _mm_prefetch(b.at(j + ahead) + s * kPairs, _MM_HINT_T0);
    }
    add(s);
  }
  if (rest > 0) {
    const auto last = static_cast<__mmask32>((uint64_t{1} << rest) - 1);
#pragma GCC unroll 16
    for (int j = 0; j < kJ; ++j)
      w[j] = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(last, b.at(j) + steps * kPairs));
    add(steps);
  }
#pragma GCC unroll 16
  for (int j = 0; j < kJ; ++j)
#pragma GCC unroll 16
    for (int i = 0; i < kM; ++i) _mm512_storeu_ps(&sums[j][i], sum[j][i]);
}
#endif

// sums[j][i] += parts of the products of `kJ` columns and `kM` rows, over `steps` steps and a last one of `rest`
// elements.
template <int kM, int kJ, class T>
TG_INLINE void add_products(int64_t steps, int64_t rest, const float* a, int64_t padded, Columns<T> b,
                            Vector (*sums)[kRows]) {
  Vector sum[kJ][kM];
  for (int j = 0; j < kJ; ++j)
    for (int i = 0; i < kM; ++i) sum[j][i] = sums[j][i];
  auto add = [&](const float* x, const Vector(&w)[kJ][kParts<T>]) {
    for (int part = 0; part < kParts<T>; ++part)
      for (int i = 0; i < kM; ++i) {
        const Vector v = vector_at(x + i * padded + part * kVector);
        for (int j = 0; j < kJ; ++j) sum[j][i] += v * w[j][part];
      }
  };
  Vector w[kJ][kParts<T>];
  for (int64_t s = 0; s < steps; ++s) {
    for (int j = 0; j < kJ; ++j) {
      load_step(b.at(j) + s * kStep<T>, w[j]);
      // Processors look ahead within a page.
      if (std::is_same_v<T, int8_t> && b.step >= 4096) __builtin_prefetch(b.at(j + kJ) + s * kStep<T>, 0, 2);
    }
    add(a + s * kStep<T>, w);
  }
  if (rest > 0) {
    for (int j = 0; j < kJ; ++j) {
      alignas(64) T last[kStep<T>] = {};
      std::memcpy(last, b.at(j) + steps * kStep<T>, static_cast<size_t>(rest) * sizeof(T));
      load_step(last, w[j]);
    }
    add(a + steps * kStep<T>, w);
  }
  for (int j = 0; j < kJ; ++j)
    for (int i = 0; i < kM; ++i) sums[j][i] = sum[j][i];
}

template <int kM, class T, class P>
void add_columns(int64_t n, int64_t depth, const P* a, int64_t padded, Columns<T> b, Vector (*sums)[kRows]) {
  // As many sums as there are registers beside a step's weights.
#if defined(__AVX512F__)
  constexpr int kJ = std::min(8, 30 / (kM + (is_half_type<P> ? 1 : kParts<T>)));
#else
  constexpr int kJ = !std::is_same_v<T, float> ? (kM == 1 ? 4 : kM == 2 ? 2 : 1) : (kM <= 2 ? 4 : kM <= 4 ? 2 : 1);
#endif
  const int64_t steps = depth / kStep<T>, rest = depth % kStep<T>;
  int64_t j = 0;
  for (; j + kJ <= n; j += kJ) add_products<kM, kJ>(steps, rest, a, padded, b.from(j), sums + j);
  for (; j < n; ++j) add_products<kM, 1>(steps, rest, a, padded, b.from(j), sums + j);
}

template <class T, class P>
void add_rows(int64_t m, int64_t n, int64_t depth, const P* a, int64_t padded, Columns<T> b, Vector (*sums)[kRows]) {
  switch (m) {
    case 1:
      return add_columns<1>(n, depth, a, padded, b, sums);
    case 2:
      return add_columns<2>(n, depth, a, padded, b, sums);
    case 3:
      return add_columns<3>(n, depth, a, padded, b, sums);
    case 4:
      return add_columns<4>(n, depth, a, padded, b, sums);
    case 5:
    case 6:
      return add_columns<6>(n, depth, a, padded, b, sums);
    default:
      return add_columns<kRows>(n, depth, a, padded, b, sums);
  }
}

// Writes a sum, of the type of the factors or in float.
template <class T>
struct Finish {
  float alpha, beta;
  T* c;
  float* wide;  // where sums stay as they are: this instead of c
  int64_t ldc;
  TG_INLINE void operator()(int64_t i, int64_t j, float sum) const {
    const int64_t at = i * ldc + j;
    const float x = alpha * sum;
    if (wide)
      wide[at] = beta == 0 ? x : x + beta * wide[at];
    else
      c[at] = T(beta == 0 ? x : x + beta * static_cast<float>(c[at]));
  }
};

// The same of a weight of int8, whose columns have factors.
template <class T>
struct FinishScaled {
  const T* scales;
  T* c;
  int64_t ldc;
  TG_INLINE void operator()(int64_t i, int64_t j, float sum) const {
    c[i * ldc + j] = T(sum * static_cast<float>(scales[j]));
  }
};

// Columns for one thread: about 10 us.
int64_t grain_of(int64_t m, int64_t k) {
  return std::max<int64_t>(8, (int64_t{1} << 18) / std::max<int64_t>(1, k * std::min<int64_t>(m, 4)));
}

// Columns of b: dot products, of rows of a kept as P.
template <class P, class T, class W, class F>
void by_columns(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<W> b, const F& finish) {
  int64_t padded = (k + kPadding - 1) / kPadding * kPadding;
  if (padded * sizeof(P) % 4096 == 0) padded += kPadding;  // else rows share a few lines of the cache
  const int64_t whole = m <= 4 ? m : (m + 7) / 8 * 8;      // rows that the loops below read
  const Tensor holder = empty_tensor({whole * padded}, dtype_of_v<P>);
  P* rows = static_cast<P*>(holder.data_ptr());
  pack_rows<W>(m, k, padded, a, rows);
  std::fill(rows + m * padded, rows + whole * padded, P(0.0f));
  const int64_t depth = kCached / static_cast<int64_t>(sizeof(P)) / (m == 3 ? 4 : std::min(whole, kRows));
  const bool far = static_cast<double>(n) * static_cast<double>(k) * sizeof(W) > 16 << 20;
  // adds up in the same order, whatever it is
  parallel_for(0, n, grain_of(m, k), [&](int64_t first, int64_t last) {
    alignas(64) Vector sums[kMostRows / kRows][kColumns][kRows];
    for (int64_t j = first; j < last; j += kColumns) {
      const int64_t columns = std::min(kColumns, last - j);
      for (auto& of_rows : sums)
        for (int64_t l = 0; l < columns; ++l) std::fill_n(of_rows[l], std::min(kRows, whole), Vector{});
      for (int64_t p = 0; p < k; p += depth) {
        check_interrupt();
        for (int64_t i = 0; i < m; i += kRows)
          add_rows(std::min(kRows, m - i), columns, std::min(depth, k - p), rows + i * padded + p, padded,
                   Columns<W>{b.data + j * b.col + p, b.col, far}, sums[i / kRows]);
      }
      for (int64_t i = 0; i < m; ++i) {
        const auto* of_row = sums[i / kRows];
        int64_t l = 0;
        for (; l + kVector <= columns; l += kVector) {
          Vector v[kVector];
          for (int c = 0; c < kVector; ++c) v[c] = of_row[l + c][i % kRows];
          const Vector sum = totals(v);
          for (int c = 0; c < kVector; ++c) finish(i, j + l + c, sum[c]);
        }
        for (; l < columns; ++l) finish(i, j + l, total(of_row[l][i % kRows]));
      }
    }
  });
}

// sums[i] += the products of kM rows and kDeep lines of b, over n columns.
template <int kM, int kDeep, class T>
TG_INLINE void add_lines(int64_t n, MatrixRef<T> a, const T* b, int64_t line, float (*sums)[kWide]) {
  constexpr int kBlock = is_half_type<T> ? half_blocks::kBlock : kVector;
  constexpr int kPart = kBlock / kVector;
  float x[kM][kDeep];
  for (int i = 0; i < kM; ++i)
    for (int d = 0; d < kDeep; ++d) x[i][d] = static_cast<float>(a.data[i * a.row + d * a.col]);
  int64_t j = 0;
  for (; j + kBlock <= n; j += kBlock) {
    Vector sum[kM][kPart];
    for (int i = 0; i < kM; ++i)
      for (int part = 0; part < kPart; ++part) sum[i][part] = vector_at(sums[i] + j + part * kVector);
    for (int d = 0; d < kDeep; ++d) {
      Vector w[kPart];
      if constexpr (is_half_type<T>) {
        alignas(64) float wide[kBlock];
        half_blocks::load(b + d * line + j, wide);
        for (int part = 0; part < kPart; ++part) w[part] = vector_at(wide + part * kVector);
      } else {
        w[0] = vector_at(b + d * line + j);
      }
      for (int i = 0; i < kM; ++i)
        for (int part = 0; part < kPart; ++part) sum[i][part] += x[i][d] * w[part];
    }
    for (int i = 0; i < kM; ++i)
      for (int part = 0; part < kPart; ++part) vector_at(sums[i] + j + part * kVector) = sum[i][part];
  }
  for (; j < n; ++j)
    for (int i = 0; i < kM; ++i)
      for (int d = 0; d < kDeep; ++d) sums[i][j] += x[i][d] * static_cast<float>(b[d * line + j]);
}

template <int kM, class T>
void add_block(int64_t n, int64_t k, MatrixRef<T> a, const T* b, int64_t line, float (*sums)[kWide]) {
  constexpr int kDeep = 8 / kM;
  int64_t p = 0;
  for (; p + kDeep <= k; p += kDeep) {
    add_lines<kM, kDeep>(n, {a.data + p * a.col, a.row, a.col}, b + p * line, line, sums);
  }
  for (; p < k; ++p) add_lines<kM, 1>(n, {a.data + p * a.col, a.row, a.col}, b + p * line, line, sums);
}

// Rows of b, each times a number.
template <class T>
void by_lines(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, const Finish<T>& finish) {
  // Pieces of b's rows that are as long as still leaves one for each thread; how long changes no sum.
  const int64_t share = (n / get_num_threads() + 63) / 64 * 64;
  const int64_t width = std::clamp<int64_t>(share, 256, kWide), blocks = (n + width - 1) / width;
  parallel_for(0, blocks, std::max<int64_t>(1, (int64_t{1} << 17) / (width * k)), [&](int64_t first, int64_t last) {
    alignas(64) float sums[kMostLines][kWide], totals[kMostLines][kWide];  // of kLines rows, of all: sums stay exact
    for (int64_t block = first; block < last; ++block) {
      const int64_t j = block * width, columns = std::min(width, n - j);
      for (int64_t p = 0; p < k; p += kLines) {
        check_interrupt();
        for (int64_t i = 0; i < m; ++i) std::fill_n(sums[i], columns, 0.0f);
        const MatrixRef<T> x{a.data + p * a.col, a.row, a.col};
        const T* lines = b.data + p * b.row + j;
        const int64_t many = std::min(kLines, k - p);
        if (m == 1)
          add_block<1>(columns, many, x, lines, b.row, sums);
        else if (m == 2)
          add_block<2>(columns, many, x, lines, b.row, sums);
        else if (m == 3)
          add_block<3>(columns, many, x, lines, b.row, sums);
        else
          add_block<4>(columns, many, x, lines, b.row, sums);
        for (int64_t i = 0; i < m; ++i)
          for (int64_t l = 0; l < columns; ++l) totals[i][l] = p == 0 ? sums[i][l] : totals[i][l] + sums[i][l];
      }
      for (int64_t i = 0; i < m; ++i)
        for (int64_t l = 0; l < columns; ++l) finish(i, j + l, totals[i][l]);
    }
  });
}

}  // namespace

template <class T>
bool is_skinny(int64_t m, int64_t n, int64_t k, MatrixRef<T> b) {
  if (n < 16 || k < 32 || n * k < 1 << 14) return false;
  // Blocks of a matrix are faster from 6 or 9 rows on where there are instructions for 16 bits, from 15 on where they
  // would be written for a weight that the second cache does not hold (measured on a Zen 5).
  const int64_t few = k < 512 ? 5 : n * k < 1 << 22 ? kRows : 14;
  const int64_t most = onednn::multiplies(dtype_of_v<T>) ? few : kMostRows;
  return b.row == 1 ? m <= most : b.col == 1 && m <= kMostLines;
}

namespace {
template <class T>
void multiply(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, const Finish<T>& finish) {
  if (b.row == 1) {
#if defined(__AVX512F__)
    if constexpr (std::is_same_v<T, BFloat16>)
      if (onednn::multiplies(DType::bfloat16)) return by_columns<T>(m, n, k, a, b, finish);
#endif
    by_columns<float>(m, n, k, a, b, finish);
  } else
    by_lines(m, n, k, a, b, finish);
}
}  // namespace

template <class T>
void skinny_product(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<T> a, MatrixRef<T> b, float beta, T* c,
                    int64_t ldc) {
  multiply<T>(m, n, k, a, b, {alpha, beta, c, nullptr, ldc});
}

template <class T>
void skinny_sums(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b, bool add, float* c, int64_t ldc) {
  multiply<T>(m, n, k, a, b, {1, add ? 1.0f : 0.0f, nullptr, c, ldc});
}

template <class T>
void skinny_int8(int64_t m, int64_t n, int64_t k, const T* a, const int8_t* w, const T* scales, T* c) {
  by_columns<float>(m, n, k, MatrixRef<T>{a, k, 1}, MatrixRef<int8_t>{w, 1, k}, FinishScaled<T>{scales, c, n});
}

#define TG_SKINNY(T)                                                                                                 \
  template bool is_skinny<T>(int64_t, int64_t, int64_t, MatrixRef<T>);                                               \
  template void skinny_product<T>(int64_t, int64_t, int64_t, float, MatrixRef<T>, MatrixRef<T>, float, T*, int64_t); \
  template void skinny_int8<T>(int64_t, int64_t, int64_t, const T*, const int8_t*, const T*, T*);
TG_SKINNY(float)
TG_SKINNY(Half)
TG_SKINNY(BFloat16)
#undef TG_SKINNY
template void skinny_sums<Half>(int64_t, int64_t, int64_t, MatrixRef<Half>, MatrixRef<Half>, bool, float*, int64_t);
template void skinny_sums<BFloat16>(int64_t, int64_t, int64_t, MatrixRef<BFloat16>, MatrixRef<BFloat16>, bool, float*,
                                    int64_t);

}  // namespace tapegrad::cpu::TG_ISA
