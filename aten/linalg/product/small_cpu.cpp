#include "tapegrad/aten/linalg/product/small.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include <algorithm>

#include "tapegrad/aten/iterate/blocks/float_vector.h"

namespace tapegrad::cpu::TG_ISA {

#if defined(__AVX2__)
namespace {

// Multiplications up to which this is faster than OpenBLAS, those of lanes that nobody needs included; the terms of a
// sum; and where b lies by columns, its numbers for each row of a, by which packing it pays. OpenBLAS has a kernel for
// such products of 32 terms and more, and not for fewer. Measured on a Zen 4 (AVX-512, and AVX2).
constexpr int64_t kMostWork = 16384, kMostPackedWork = 32768, kMostTerms = 128, kPackedPerRow = 128;
constexpr int64_t kMostPacked = 8192;  // floats of packed b, on the stack

bool is_small(int64_t m, int64_t n, int64_t k, MatrixRef<float> b, int64_t width) {
  if (std::max({m, n, k}) > kMostPackedWork || k > kMostTerms) return false;
  const int64_t work = m * width * k;
  if (b.col == 1) return work <= kMostWork;
  if (b.row != 1 || work > kMostPackedWork || width * k > kMostPacked || n < 8 || m < 2) return false;
  return k < 32 || n * k <= kPackedPerRow * m;
}
#if defined(__AVX512F__)
constexpr int kRows = 8;  // of a tile; with two vectors each, sums fill half of the registers
#else
constexpr int kRows = 4;
#endif

// The first n lanes of a vector.
struct Lanes {
  explicit Lanes(int64_t lanes) : n(lanes) {
#if defined(__AVX512F__)
    mask = static_cast<__mmask16>((1u << n) - 1);
#else
    mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(n)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
#endif
  }
  TG_INLINE Vector load(const float* p) const {
#if defined(__AVX512F__)
    return reinterpret_cast<Vector>(_mm512_maskz_loadu_ps(mask, p));
#else
    return reinterpret_cast<Vector>(_mm256_maskload_ps(p, mask));
#endif
  }
  TG_INLINE void store(float* p, const Vector& v) const {
#if defined(__AVX512F__)
    _mm512_mask_storeu_ps(p, mask, reinterpret_cast<__m512>(v));
#else  // masked stores are slow on a Zen
    if (n == kVector)
      vector_at(p) = v;
    else
      std::memcpy(p, &v, static_cast<size_t>(n) * sizeof(float));
#endif
  }
  int64_t n;
#if defined(__AVX512F__)
  __mmask16 mask;
#else
  __m256i mask;
#endif
};

// What all tiles have in common.
struct Terms {
  int64_t k;
  MatrixRef<float> a;
  const float* b;  // rows of unit stride
  int64_t b_row;
  float alpha, beta;
  float* c;
  int64_t ldc;
};

// kM rows from i on, and kV vectors of columns from j on, of which the last has these lanes.
template <int kM, int kV>
void tile(const Terms& t, int64_t i, int64_t j, const Lanes& last) {
  Vector sums[kM][kV] = {};
  const float *a = t.a.data + i * t.a.row, *b = t.b + j;
  for (int64_t p = 0; p < t.k; ++p, a += t.a.col, b += t.b_row) {
    Vector x[kV];
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) x[v] = v + 1 < kV ? vector_at(b + v * kVector) : last.load(b + v * kVector);
#pragma GCC unroll 8
    for (int r = 0; r < kM; ++r)
#pragma GCC unroll 4
      for (int v = 0; v < kV; ++v) sums[r][v] += a[r * t.a.row] * x[v];
  }
  float* c = t.c + i * t.ldc + j;
#pragma GCC unroll 8
  for (int r = 0; r < kM; ++r, c += t.ldc)
#pragma GCC unroll 4
    for (int v = 0; v < kV; ++v) {
      float* at = c + v * kVector;
      const bool whole = v + 1 < kV;
      Vector y = t.alpha * sums[r][v];
      if (t.beta != 0) y += t.beta * (whole ? vector_at(at) : last.load(at));
      if (whole)
        vector_at(at) = y;
      else
        last.store(at, y);
    }
}

template <int kV, int kM = kRows>
void tile_of(int64_t rows, const Terms& t, int64_t i, int64_t j, const Lanes& last) {
  if constexpr (kM > 1)
    if (rows < kM) return tile_of<kV, kM - 1>(rows, t, i, j, last);
  tile<kM, kV>(t, i, j, last);
}

// Lane l of vector i becomes lane i of vector l, by exchanging blocks of kHalf lanes.
template <int kHalf, int... kLane>
TG_INLINE void transpose(Vector (&v)[kVector], std::integer_sequence<int, kLane...> lanes) {
#pragma GCC unroll 16
  for (int i = 0; i < kVector; ++i) {
    if ((i & kHalf) != 0) continue;
    const Vector low = v[i], high = v[i + kHalf];
    v[i] = __builtin_shufflevector(low, high, ((kLane & kHalf) != 0 ? kVector + kLane - kHalf : kLane)...);
    v[i + kHalf] = __builtin_shufflevector(low, high, ((kLane & kHalf) != 0 ? kVector + kLane : kLane + kHalf)...);
  }
  if constexpr (kHalf > 1) transpose<kHalf / 2>(v, lanes);
}

int64_t whole_vectors(int64_t n) { return (n + kVector - 1) / kVector * kVector; }

// b whose columns lie `column` apart, by rows that are filled up.
void pack(int64_t n, int64_t k, const float* b, int64_t column, float* to) {
  const int64_t width = whole_vectors(n);
  for (int64_t p = 0; p < k; p += kVector) {
    const int64_t terms = std::min<int64_t>(kVector, k - p);
    const Lanes lanes(terms);
    for (int64_t j = 0; j < n; j += kVector) {
      const int64_t columns = std::min<int64_t>(kVector, n - j);
      Vector v[kVector];
#pragma GCC unroll 16
      for (int l = 0; l < kVector; ++l) v[l] = l < columns ? lanes.load(b + (j + l) * column + p) : Vector{};
      transpose<kVector / 2>(v, std::make_integer_sequence<int, kVector>());
      float* row = to + p * width + j;
#pragma GCC unroll 16
      for (int l = 0; l < kVector; ++l)
        if (l < terms) vector_at(row + l * width) = v[l];
    }
  }
}

}  // namespace

bool small_product(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a, MatrixRef<float> b, float beta,
                   float* c, int64_t ldc) {
  const int64_t width = whole_vectors(n);
  if (!is_small(m, n, k, b, width)) return false;
  alignas(64) float packed[kMostPacked];
  Terms t{k, a, b.data, b.row, alpha, beta, c, ldc};
  if (b.col != 1) {
    pack(n, k, b.data, b.col, packed);
    t.b = packed;
    t.b_row = width;
  }
  for (int64_t j = 0; j < n; j += 2 * kVector) {
    const int64_t columns = std::min<int64_t>(2 * kVector, n - j);
    const bool two = columns > kVector;
    const Lanes last(columns - (two ? kVector : 0));
    for (int64_t i = 0; i < m; i += kRows) {
      if (two)
        tile_of<2>(m - i, t, i, j, last);
      else
        tile_of<1>(m - i, t, i, j, last);
    }
  }
  return true;
}
#else
bool small_product(int64_t, int64_t, int64_t, float, MatrixRef<float>, MatrixRef<float>, float, float*, int64_t) {
  return false;
}
#endif

}  // namespace tapegrad::cpu::TG_ISA
