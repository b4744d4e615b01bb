// Products of floats by weights of 8 and 4 bits. For few rows they are limited by the reading of the weight, which is
// widened in registers; for more, a part of the weight at a time becomes floats (int8: the dtype of the input, which
// holds these numbers exactly) that a matrix product reads. Sums are float, in an order that depends on sizes alone.
#include <algorithm>

#include "tapegrad/aten/iterate/blocks/float_vector.h"
#include "tapegrad/aten/iterate/blocks/int8_blocks.h"
#include "tapegrad/aten/iterate/network_types.h"
#include "tapegrad/aten/linalg/product/gemm.h"
#include "tapegrad/aten/linalg/product/skinny.h"
#include "tapegrad/aten/onednn/product.h"
#include "tapegrad/aten/quantized/floats.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

constexpr int64_t kColumns = 64;    // of a block, as int4 weights are packed
constexpr int64_t kTerm = 32;       // bytes of a term of such a block
constexpr int64_t kWidened = 1024;  // terms of a block that are floats at a time
constexpr int64_t kTile = 128;      // columns of an int8 weight that are widened at a time
constexpr int64_t kFewRows = 20;    // for which int4 weights are widened in registers
constexpr int64_t kRowsAtOnce = 4;

// A weight of int8 in T, exactly.
template <class T>
void widen_int8(int64_t n, const int8_t* from, T* to) {
  int64_t i = 0;
  for (; i + 2 * half_blocks::kBlock <= n; i += 2 * half_blocks::kBlock) {
    alignas(64) float x[2 * half_blocks::kBlock];
    for (int l = 0; l < 2 * half_blocks::kBlock; l += kVector) vector_at(x + l) = int8_blocks::load(from + i + l);
    if constexpr (std::is_same_v<T, float>)
      std::copy_n(x, 2 * half_blocks::kBlock, to + i);
    else
      half_blocks::store_two(x, to + i);
  }
  for (; i < n; ++i) to[i] = T(static_cast<float>(from[i]));
}

template <class T>
void multiply_int8(int64_t m, int64_t n, int64_t k, const T* a, const int8_t* w, const T* scales, T* c) {
  // Instructions that multiply 16-bit numbers are faster from 9 rows on (measured on a Zen 5).
  const int64_t few = onednn::multiplies(dtype_of_v<T>) ? kMostSkinnyRows / 2 : kMostSkinnyRows;
  if (m <= few) return skinny_int8<T>(m, n, k, a, w, scales, c);
  parallel_for(0, (n + kTile - 1) / kTile, 1, [&](int64_t first, int64_t last) {
    const Tensor wide_holder = empty_tensor({kTile * k}, dtype_of_v<T>);
    const Tensor sums_holder = empty_tensor({kTile * m}, DType::float32);
    T* wide = target_of<T>(wide_holder);
    float* sums = target_of<float>(sums_holder);
    for (int64_t tile = first; tile < last; ++tile) {
      check_interrupt();
      const int64_t j = tile * kTile, count = std::min(kTile, n - j);
      widen_int8(count * k, w + j * k, wide);
      gemm_sums<T>(m, count, k, 1, {a, k, 1}, {wide, 1, k}, false, sums, kTile);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t l = 0; l < count; ++l)
          c[i * n + j + l] = T(sums[i * kTile + l] * static_cast<float>(scales[j + l]));
    }
  });
}

// A packed weight of 4 bits: blocks of 64 rows, in which a term has 32 bytes: of bytes 0 to 15 the lower halves are
// rows 0 to 15 and the upper ones rows 32 to 47, of bytes 16 to 31 they are rows 16 to 31 and 48 to 63. In a last block
// of 16, 32 or 48 rows a byte has two neighbours.
constexpr int64_t place_of(int64_t row, int64_t rows) {
  if (rows < kColumns) return row;
  return row / 16 % 2 * 32 + row % 16 * 2 + row / 32;
}

#if defined(__AVX512F__)
// What 16 bytes hold: q - 8 of their lower and of their upper halves.
constexpr int kPart = 1;  // vectors for 16 numbers
TG_INLINE void load_int4(const uint8_t* from, Vector* low, Vector* high) {
  const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
  const __m512i q = _mm512_maskz_cvtepu8_epi32(0xffff, _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
  *low = _mm512_maskz_permutexvar_ps(0xffff, q, values);  // by the lowest four bits
  *high = _mm512_maskz_permutexvar_ps(0xffff, _mm512_maskz_srli_epi32(0xffff, q, 4), values);
}
#else
constexpr int kPart = 16 / kVector;
TG_INLINE void load_int4(const uint8_t* from, Vector* low, Vector* high) {
  alignas(16) int8_t q[2][16];
  for (int l = 0; l < 16; ++l) {
    q[0][l] = static_cast<int8_t>((from[l] & 15) - 8);
    q[1][l] = static_cast<int8_t>((from[l] >> 4) - 8);
  }
  for (int i = 0; i < kPart; ++i) {
    low[i] = int8_blocks::load(q[0] + i * kVector);
    high[i] = int8_blocks::load(q[1] + i * kVector);
  }
}
#endif

// sums[i] = the products of kM rows and kCount halves of a block from half kFirst on, over `depth` terms.
template <int kM, int kFirst, int kCount>
TG_INLINE void add_int4(int64_t depth, const float* a, int64_t row, const uint8_t* w, float (*sums)[kColumns]) {
  Vector sum[kM][kCount][2 * kPart] = {};
  for (int64_t p = 0; p < depth; ++p)
    for (int h = 0; h < kCount; ++h) {
      Vector v[2 * kPart];
      load_int4(w + p * kTerm + (kFirst + h) * 16, v, v + kPart);
      for (int i = 0; i < kM; ++i)
        for (int l = 0; l < 2 * kPart; ++l) sum[i][h][l] += a[i * row + p] * v[l];
    }
  for (int i = 0; i < kM; ++i)
    for (int h = 0; h < kCount; ++h)
      for (int l = 0; l < kPart; ++l) {
        vector_at(sums[i] + (kFirst + h) * 16 + l * kVector) = sum[i][h][l];
        vector_at(sums[i] + (kFirst + h) * 16 + 32 + l * kVector) = sum[i][h][kPart + l];
      }
}

template <class T>
struct Int4Weight {
  int64_t n, k, group;
  const uint8_t* packed;
  const T* scales;  // k / group x n x (scale, zero)

  // The numbers of a group for columns from j on.
  TG_INLINE void factors(int64_t g, int64_t j, int64_t count, float* scale, float* zero) const {
    const T* at = scales + (g * n + j) * 2;
    for (int64_t l = 0; l < count; ++l) {
      scale[l] = static_cast<float>(at[2 * l]);
      zero[l] = static_cast<float>(at[2 * l + 1]);
    }
  }

  // c[i, j:j + 64] for kM rows; `group_sums`: of each row and group, of a's numbers.
  template <int kM>
  void multiply_rows(const float* a, const float* group_sums, int64_t j, T* c) const {
    alignas(64) float totals[kM][kColumns] = {}, sums[kM][kColumns], scale[kColumns], zero[kColumns];
    const int64_t groups = k / group;
    for (int64_t g = 0; g < groups; ++g) {
      const uint8_t* at = packed + j * (k / 2) + g * group * kTerm;
      const float* x = a + g * group;
      if constexpr (kPart == 1 || kM == 1) {
        add_int4<kM, 0, 2>(group, x, k, at, sums);
      } else {
        add_int4<kM, 0, 1>(group, x, k, at, sums);
        add_int4<kM, 1, 1>(group, x, k, at, sums);
      }
      factors(g, j, kColumns, scale, zero);
      for (int i = 0; i < kM; ++i) {
        const float all = group_sums[i * groups + g];
        for (int l = 0; l < kColumns; ++l) totals[i][l] += scale[l] * sums[i][l] + zero[l] * all;
      }
    }
    for (int i = 0; i < kM; ++i)
      for (int64_t l = 0; l < kColumns; ++l) c[i * n + j + l] = T(totals[i][l]);
  }

  void multiply_few(int64_t m, const float* a, const float* group_sums, int64_t j, T* c) const {
    for (int64_t i = 0; i < m; i += kRowsAtOnce) {
      check_interrupt();
      const float *x = a + i * k, *sums = group_sums + i * (k / group);
      T* y = c + i * n;
      switch (std::min(kRowsAtOnce, m - i)) {
        case 1:
          multiply_rows<1>(x, sums, j, y);
          break;
        case 2:
          multiply_rows<2>(x, sums, j, y);
          break;
        case 3:
          multiply_rows<3>(x, sums, j, y);
          break;
        default:
          multiply_rows<kRowsAtOnce>(x, sums, j, y);
      }
    }
  }

  // to (depth x count) = terms from `p` on of columns from j on, as floats. Both are whole groups.
  void widen(int64_t p, int64_t depth, int64_t j, int64_t count, float* to) const {
    alignas(64) float scale[kColumns], zero[kColumns];
    const int64_t bytes = count / 2;
    const uint8_t* at = packed + j * (k / 2) + p * bytes;
    for (int64_t t = 0; t < depth; ++t, at += bytes, to += count) {
      if (t % group == 0) factors((p + t) / group, j, count, scale, zero);
      if (count == kColumns) {
        for (int h = 0; h < 2; ++h) {
          Vector v[2 * kPart];
          load_int4(at + h * 16, v, v + kPart);
          for (int l = 0; l < 2 * kPart; ++l) {
            const int first = h * 16 + l / kPart * 32 + l % kPart * kVector;
            vector_at(to + first) = v[l] * vector_at(scale + first) + vector_at(zero + first);
          }
        }
      } else {
        for (int64_t l = 0; l < count; ++l)
          to[l] = static_cast<float>((at[l / 2] >> l % 2 * 4 & 15) - 8) * scale[l] + zero[l];
      }
    }
  }

  void multiply_many(int64_t m, const float* a, int64_t j, T* c) const {
    const int64_t count = std::min(kColumns, n - j);
    const Tensor wide_holder = empty_tensor({kColumns * std::min(k, kWidened)}, DType::float32);
    const Tensor sums_holder = empty_tensor({m * count}, DType::float32);
    float *wide = target_of<float>(wide_holder), *sums = target_of<float>(sums_holder);
    std::fill_n(sums, m * count, 0.0f);
    for (int64_t p = 0; p < k; p += kWidened) {
      check_interrupt();
      const int64_t depth = std::min(kWidened, k - p);
      widen(p, depth, j, count, wide);
      gemm_sums<float>(m, count, depth, 1, {a + p, k, 1}, {wide, count, 1}, true, sums, count);
    }
    for (int64_t i = 0; i < m; ++i)
      for (int64_t l = 0; l < count; ++l) c[i * n + j + l] = T(sums[i * count + l]);
  }

  void multiply(int64_t m, const T* x, T* c) const {
    Tensor holder;
    const float* a = as_floats(m * k, x, holder);
    const int64_t groups = k / group;
    const bool few = m <= kFewRows;
    const Tensor sums_holder = empty_tensor({few ? m * groups : 0}, DType::float32);
    float* group_sums = target_of<float>(sums_holder);
    for (int64_t i = 0; few && i < m * groups; ++i) {
      alignas(64) float lane[32] = {};
      for (int64_t p = 0; p < group; p += 32)
        for (int l = 0; l < 32; ++l) lane[l] += a[i * group + p + l];
      for (int width = 16; width > 0; width /= 2)
        for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
      group_sums[i] = lane[0];
    }
    const int64_t grain = std::max<int64_t>(1, (int64_t{1} << 17) / (kTerm * std::max<int64_t>(k, 1) * (m / 4 + 1)));
    parallel_for(0, (n + kColumns - 1) / kColumns, grain, [&](int64_t first, int64_t last) {
      for (int64_t j = first * kColumns; j < std::min(n, last * kColumns); j += kColumns) {
        if (few && n - j >= kColumns)
          multiply_few(m, a, group_sums, j, c);
        else
          multiply_many(m, a, j, c);
      }
    });
  }
};

}  // namespace

void weight_int8pack_mm_cpu(const Tensor& input, const Tensor& mat2, const Tensor& scales, const Tensor& out) {
  if (out.numel() == 0) return;
  dispatch_network(out.dtype(), [&]<class T>() {
    multiply_int8<T>(input.size(0), mat2.size(0), input.size(1), data_of<T>(input), data_of<int8_t>(mat2),
                     data_of<T>(scales), target_of<T>(out));
  });
}

void convert_weight_to_int4pack_for_cpu_cpu(const Tensor& input, int64_t, const Tensor& out) {
  const int64_t n = input.size(0), k = input.size(1);
  const auto* q = data_of<int32_t>(input);
  auto* to = target_of<uint8_t>(out);
  parallel_for(0, (n + kColumns - 1) / kColumns, 1, [&](int64_t first, int64_t last) {
    for (int64_t j = first * kColumns; j < std::min(n, last * kColumns); j += kColumns) {
      const int64_t rows = std::min(kColumns, n - j);
      uint8_t* block = to + j * (k / 2);
      std::fill_n(block, rows * (k / 2), uint8_t{0});
      for (int64_t r = 0; r < rows; ++r) {
        check_interrupt();
        const int64_t place = place_of(r, rows);
        for (int64_t p = 0; p < k; ++p)
          block[(p * rows + place) / 2] |= static_cast<uint8_t>((q[(j + r) * k + p] & 15) << place % 2 * 4);
      }
    }
  });
}

void weight_int4pack_mm_for_cpu_cpu(const Tensor& input, const Tensor& mat2, int64_t group, const Tensor& scales,
                                    const Tensor& out) {
  if (out.numel() == 0) return;
  dispatch_network(out.dtype(), [&]<class T>() {
    const Int4Weight<T> w{mat2.size(0), input.size(1), group, data_of<uint8_t>(mat2), data_of<T>(scales)};
    w.multiply(input.size(0), data_of<T>(input), target_of<T>(out));
  });
}

}  // namespace tapegrad::cpu::TG_ISA
