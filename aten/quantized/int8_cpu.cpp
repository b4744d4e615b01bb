// Products of int8 numbers with sums in int32. Each sum is a dot product of a row of the first factor, packed, and of a
// column of the second, read where it lies: the weight of a linear layer. Integers are exact in any order, so results
// have the same bits for any number of threads.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/iterate/blocks/float_vector.h"
#include "tapegrad/aten/linalg/product/gemm.h"
#include "tapegrad/aten/onednn/product.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace tapegrad::cpu::TG_ISA {
namespace {

constexpr int kStep = 4 * kVector;         // bytes of a column at a time
constexpr int64_t kPadding = 64;           // rows end on such a border
constexpr int64_t kColumns = 64;           // at a time
constexpr int kRows = 6;                   // at a time: with four columns their sums fill the registers
constexpr int64_t kDepth = 2048;           // terms at a time, so that these rows stay in the nearest cache
constexpr int64_t kManyRows = 80 * kRows;  // for which columns are copied once where they are no lines

typedef int32_t Sums __attribute__((vector_size(4 * kVector), aligned(4), may_alias));

// Sixteen-bit numbers in pairs, whose products are added up: on every processor.
struct Pairs {
  using Row = int16_t;
  static constexpr uint32_t kExcess = 0;
#if defined(__AVX512F__)
  struct Weight {
    __m512i part[2];
  };
  static TG_INLINE Weight load(const int8_t* w) {
    return {{_mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w))),
             _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(w) + 1))}};
  }
  using Numbers = Weight;
  static TG_INLINE Numbers row(const Row* a) { return {{_mm512_loadu_si512(a), _mm512_loadu_si512(a + kStep / 2)}}; }
  static TG_INLINE Sums add(Sums sum, const Weight& w, const Numbers& a) {
    for (int i = 0; i < 2; ++i) sum += reinterpret_cast<Sums>(_mm512_madd_epi16(w.part[i], a.part[i]));
    return sum;
  }
#elif defined(__AVX2__)
  struct Weight {
    __m256i part[2];
  };
  static TG_INLINE Weight load(const int8_t* w) {
    return {{_mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w))),
             _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w) + 1))}};
  }
  using Numbers = Weight;
  static TG_INLINE Numbers row(const Row* a) {
    const auto* at = reinterpret_cast<const __m256i*>(a);
    return {{_mm256_loadu_si256(at), _mm256_loadu_si256(at + 1)}};
  }
  static TG_INLINE Sums add(Sums sum, const Weight& w, const Numbers& a) {
    for (int i = 0; i < 2; ++i) sum += reinterpret_cast<Sums>(_mm256_madd_epi16(w.part[i], a.part[i]));
    return sum;
  }
#else
  using Weight = const int8_t*;
  static TG_INLINE Weight load(const int8_t* w) { return w; }
  using Numbers = const Row*;
  static TG_INLINE Numbers row(const Row* a) { return a; }
  static TG_INLINE Sums add(Sums sum, Weight w, Numbers a) {
    for (int l = 0; l < kVector; ++l)
      for (int i = 0; i < 4; ++i) sum[l] += int32_t{w[4 * l + i]} * a[4 * l + i];
    return sum;
  }
#endif
};

#if defined(__AVX512F__)
// Four products of a byte without and one with a sign, added to a sum by one instruction: the weight is made positive
// by 128, which adds 128 times the row's sum. In assembly, since no file is compiled for an ISA with this instruction.
struct Dots {
  using Row = int8_t;
  static constexpr uint32_t kExcess = 128;
  using Weight = __m512i;
  static TG_INLINE Weight load(const int8_t* w) {
    return _mm512_xor_si512(_mm512_loadu_si512(w), _mm512_set1_epi8(static_cast<char>(0x80)));
  }
  using Numbers = __m512i;
  static TG_INLINE Numbers row(const Row* a) { return _mm512_loadu_si512(a); }
  static TG_INLINE Sums add(Sums sum, const Weight& w, const Numbers& a) {
    asm("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(w), "v"(a));
    return sum;
  }
};
const bool has_dots = __builtin_cpu_supports("avx512vnni") != 0;
#endif

// f.template operator()<the fastest way for factors of int8>().
template <class F>
void by_instructions(F&& f) {
#if defined(__AVX512F__)
  if (has_dots) return f.template operator()<Dots>();
#endif
  f.template operator()<Pairs>();
}

// Rows of the first factor, filled up with zeros, and what Dots adds to each of their sums. Rows behind the last one
// are read, too.
template <class P>
struct Packed {
  Tensor holder, excess_holder;
  typename P::Row* rows;
  uint32_t* excess;
  int64_t padded;

  Packed(int64_t m, int64_t k) : padded((k + kPadding - 1) / kPadding * kPadding) {
    if (padded % 1024 == 0) padded += kPadding;  // rows 4 KiB apart would share a place in the cache
    const int64_t all = (m + kRows - 1) / kRows * kRows;
    holder = empty_tensor({all * padded}, sizeof *rows == 1 ? DType::int8 : DType::int16);
    excess_holder = empty_tensor({m}, DType::int32);
    rows = static_cast<typename P::Row*>(holder.data_ptr());
    excess = static_cast<uint32_t*>(excess_holder.data_ptr());
    std::fill(rows + m * padded, rows + all * padded, typename P::Row(0));
  }

  // value(p): element p of row i.
  template <class F>
  void fill(int64_t i, int64_t k, F&& value) {
    auto* row = rows + i * padded;
    for (int64_t p = 0; p < k; ++p) row[p] = static_cast<typename P::Row>(value(p));
    std::fill(row + k, row + padded, typename P::Row(0));
    uint32_t sum = 0;
    if (P::kExcess != 0)
      for (int64_t p = 0; p < k; ++p) sum += static_cast<uint32_t>(int32_t{row[p]});
    excess[i] = P::kExcess * sum;
  }
};

// Columns at a time: as many sums as there are registers beside the weights.
#if defined(__AVX512F__)
template <int kM>
constexpr int kAtOnce = kM <= 2 ? 8 : 4;
#else
template <int kM>
constexpr int kAtOnce = kM == 1   ? 4
                        : kM <= 4 ? 2
                                  : 1;
#endif

// partial[i] = or, but for the first terms, += parts of the products of kM rows and kJ columns over `depth` terms, a
// group of lanes for each column.
template <class P, int kM, int kJ>
TG_INLINE void add_products(bool first, int64_t depth, const typename P::Row* a, int64_t padded,
                            const int8_t* const (&columns)[kJ], int64_t ahead, Sums* partial) {
  const int64_t whole = depth / kStep * kStep, rest = depth - whole;
  alignas(64) int8_t last[kJ][kStep];
  for (int j = 0; j < kJ && rest > 0; ++j) {
    std::memset(last[j], 0, kStep);
    std::memcpy(last[j], columns[j] + whole, static_cast<size_t>(rest));
  }
  Sums sum[kM][kJ] = {};
  auto add = [&](const typename P::Row* x, auto&& at) {
    typename P::Weight w[kJ];
    for (int j = 0; j < kJ; ++j) w[j] = P::load(at(j));
    for (int i = 0; i < kM; ++i) {
      const auto numbers = P::row(x + i * padded);
      for (int j = 0; j < kJ; ++j) sum[i][j] = P::add(sum[i][j], w[j], numbers);
    }
  };
  for (int64_t p = 0; p < whole; p += kStep) {
    add(a + p, [&](int j) { return columns[j] + p; });
    // The columns behind these: processors look ahead within a page.
    for (int j = 0; j < kJ; ++j) __builtin_prefetch(columns[j] + p + ahead, 0, 2);
  }
  if (rest > 0) add(a + whole, [&](int j) { return last[j]; });
  for (int i = 0; i < kM; ++i) {
    detail::add_all_halves<1, kJ>(sum[i]);
    partial[i] = first ? sum[i][0] : partial[i] + sum[i][0];
  }
}

// The sums of kM rows and n <= kColumns columns over some of the terms; with the last of them they are written to
// sums[i][j].
template <class P, int kM>
void add_columns(bool first, bool last, int64_t n, int64_t depth, const typename P::Row* a, int64_t padded,
                 const int8_t* b, int64_t column, Sums (*partial)[kRows], int32_t (*sums)[kColumns]) {
  constexpr int kJ = kAtOnce<kM>;
  for (int64_t j = 0; j < n; j += kJ) {
    const int8_t* columns[kJ];
    for (int l = 0; l < kJ; ++l) columns[l] = b + std::min(j + l, n - 1) * column;
    add_products<P, kM>(first, depth, a, padded, columns, kJ * column, partial[j / kJ]);
  }
  constexpr int kSlots = kVector / kJ;
  for (int64_t j = 0; last && j < n; j += kVector)
    for (int i = 0; i < kM; ++i) {
      Sums v[kSlots];
      for (int l = 0; l < kSlots; ++l) v[l] = j + l * kJ < n ? partial[j / kJ + l][i] : Sums{};
      detail::add_all_halves<kJ, kVector>(v);
      std::memcpy(sums[i] + j, v, sizeof *v);
    }
}

template <class P, class... Args>
void add_rows(int64_t m, Args&&... args) {
  if (m == 1)
    add_columns<P, 1>(args...);
  else if (m == 2)
    add_columns<P, 2>(args...);
  else if (m <= 4)
    add_columns<P, 4>(args...);
  else
    add_columns<P, kRows>(args...);
}

typedef int8_t Bytes __attribute__((vector_size(16), aligned(1), may_alias));

// Sixteen rows of sixteen bytes become columns: four times, rows of the two halves in turn.
TG_INLINE void turn(Bytes (&v)[16]) {
  for (int round = 0; round < 4; ++round) {
    Bytes w[16];
    for (int i = 0; i < 8; ++i) {
      w[2 * i] = __builtin_shufflevector(v[i], v[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
      w[2 * i + 1] =
          __builtin_shufflevector(v[i], v[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    for (int i = 0; i < 16; ++i) v[i] = w[i];
  }
}

// to[j][p] = b[p, j], for `n` columns and `k` rows; lines of `to` are `padded` long.
void copy_turned(int64_t n, int64_t k, MatrixRef<int8_t> b, int8_t* to, int64_t padded) {
  const int64_t whole_n = b.col == 1 ? n / 16 * 16 : 0, whole_k = k / 16 * 16;
  for (int64_t p = 0; p < whole_k; p += 16) {
    int8_t lines[16][kColumns];  // which may be 4 KiB apart
    for (int i = 0; i < 16; ++i) std::memcpy(lines[i], b.data + (p + i) * b.row, static_cast<size_t>(whole_n));
    for (int64_t j = 0; j < whole_n; j += 16) {
      Bytes v[16];
      for (int i = 0; i < 16; ++i) v[i] = *reinterpret_cast<const Bytes*>(lines[i] + j);
      turn(v);
      for (int i = 0; i < 16; ++i) *reinterpret_cast<Bytes*>(to + (j + i) * padded + p) = v[i];
    }
  }
  for (int64_t p = 0; p < k; ++p)
    for (int64_t j = p < whole_k ? whole_n : 0; j < n; ++j) to[j * padded + p] = b.data[p * b.row + j * b.col];
}

// The sums of rows [from, to) and of n <= kColumns columns from j on; `turned`: memory for those columns.
template <class P, class F>
void multiply_columns(int64_t from, int64_t to, int64_t j, int64_t n, int64_t k, const Packed<P>& a,
                      MatrixRef<int8_t> b, Tensor& turned, const F& finish) {
  alignas(64) Sums partial[kColumns][kRows];
  alignas(64) int32_t sums[kRows][kColumns];
  const int8_t* column = b.data + j * b.col;
  int64_t stride = b.col;
  if (b.row != 1 && k > 1) {
    stride = a.padded;
    if (!turned.defined()) turned = empty_tensor({kColumns * stride}, DType::int8);
    copy_turned(n, k, {column, b.row, b.col}, target_of<int8_t>(turned), stride);
    column = data_of<int8_t>(turned);
  }
  for (int64_t i = from; i < to; i += kRows) {
    const int64_t rows = std::min<int64_t>(kRows, to - i);
    int64_t p = 0;
    do {
      check_interrupt();
      add_rows<P>(rows, p == 0, p + kDepth >= k, n, std::min(kDepth, k - p), a.rows + i * a.padded + p, a.padded,
                  column + p, stride, partial, sums);
      p += kDepth;
    } while (p < k);
    for (int64_t r = 0; r < rows; ++r) {
      for (int64_t l = 0; l < n; ++l) sums[r][l] -= static_cast<int32_t>(a.excess[i + r]);
      finish(i + r, j, n, sums[r]);
    }
  }
}

// The same of any number of columns by oneDNN; false where it does not multiply them.
template <class P, class F>
bool multiply_by_library(int64_t from, int64_t to, int64_t j, int64_t n, int64_t k, const Packed<P>& a,
                         MatrixRef<int8_t> b, const F& finish) {
  const Tensor holder = empty_tensor({(to - from) * n}, DType::int32);
  auto* sums = target_of<int32_t>(holder);
  const bool turned = b.col != 1;
  const onednn::Product product{to - from, n, k, a.padded, turned ? b.col : b.row, n, false, turned};
  if (!onednn::multiply(product, DType::int8, a.rows + from * a.padded, b.data + j * b.col, DType::int32, false, sums))
    return false;
  for (int64_t i = from; i < to; ++i) finish(i, j, n, sums + (i - from) * n);
  return true;
}

// finish(i, j, count, sums): the sums of row i and of `count` columns from j on, in some order and by several threads.
template <class P, class F>
void multiply(int64_t m, int64_t n, int64_t k, const Packed<P>& a, MatrixRef<int8_t> b, const F& finish) {
  // oneDNN where columns do not lie in lines, which it brings in order faster, and for many rows where the processor
  // multiplies matrices by single instructions: it packs every weight (on a Zen 5 in the time of 60 rows). Not for sums
  // so long that a call could not be interrupted.
  constexpr bool kLibrary = sizeof(typename P::Row) == 1;
  const bool library =
      kLibrary && k <= 1 << 20 && onednn::multiplies(DType::int8) &&
      ((b.col == 1 && b.row >= n) || (b.row == 1 && b.col >= k && m >= 128 && onednn::has_int8_tiles()));
  const int64_t width = library ? std::clamp<int64_t>(n / 4 / kColumns * kColumns, kColumns, 16 * kColumns) : kColumns;
  const int64_t columns = (n + width - 1) / width, blocks = (m + kManyRows - 1) / kManyRows;
  const int64_t work = width * std::max<int64_t>(k, 1) * std::max<int64_t>(1, std::min(m, kManyRows) / 8);
  parallel_for(0, columns * blocks, std::max<int64_t>(1, (int64_t{1} << 18) / work), [&](int64_t first, int64_t last) {
    Tensor turned;
    for (int64_t at = first; at < last; ++at) {
      const int64_t j = at / blocks * width, count = std::min(width, n - j);
      const int64_t from = at % blocks * kManyRows, to = std::min(m, from + kManyRows);
      check_interrupt();
      if (library && multiply_by_library(from, to, j, count, k, a, b, finish)) continue;
      for (int64_t l = 0; l < count; l += kColumns)
        multiply_columns(from, to, j + l, std::min(kColumns, count - l), k, a, b, turned, finish);
    }
  });
}

// How PyTorch rounds the input of a dynamically quantised layer to seven bits: x = (q - zero) * scale with 0 <= q <=
// 127 (ChooseQuantizationParams with reduce_range).
struct Rounding {
  float scale;
  int32_t zero;

  Rounding(float least, float most) {
    constexpr double kLevels = 127;
    constexpr float kLeastScale = 6.1e-5f;
    double low = std::min(least, 0.0f), high = std::max(most, 0.0f);
    double step = (high - low) / kLevels;
    if (static_cast<float>(step) == 0.0f || std::isinf(1.0f / static_cast<float>(step))) step = 0.1;
    if (step < kLeastScale) {
      const float before = static_cast<float>(step);
      step = kLeastScale;
      if (low == 0) {
        high = kLeastScale * kLevels;
      } else if (high == 0) {
        low = -kLeastScale * kLevels;
      } else {
        const float by = kLeastScale / before;
        low = static_cast<float>(low) * by;
        high = static_cast<float>(high) * by;
      }
    }
    // From the end whose own rounding moves zero less.
    const double from_low = -low / step, from_high = kLevels - high / step;
    const double error_low = -std::abs(low / step), error_high = kLevels - std::abs(high / step);
    const double exact = error_low < error_high ? from_low : from_high;
    scale = static_cast<float>(step);
    zero = exact < 0         ? 0
           : exact > kLevels ? static_cast<int32_t>(kLevels)
                             : static_cast<int32_t>(std::nearbyint(exact));
    if (!std::isfinite(scale)) scale = std::numeric_limits<float>::quiet_NaN(), zero = 0;
  }

  int32_t operator()(float x, float inverse) const {
    float q = std::nearbyint(x * inverse) + static_cast<float>(zero);
    q = q > 0 ? q : 0;  // NaN, too
    return static_cast<int32_t>(q < 255 ? q : 255) - zero;
  }
};

// Least and greatest of a row; NaN is passed over, and said.
struct Range {
  float least = 0, most = 0;
  bool nan = false;

  void add(const float* x, int64_t n) {
    float low[kVector] = {}, high[kVector] = {};
    int32_t bad[kVector] = {};
    int64_t p = 0;
    for (; p + kVector <= n; p += kVector)
      for (int l = 0; l < kVector; ++l) {
        low[l] = x[p + l] < low[l] ? x[p + l] : low[l];
        high[l] = x[p + l] > high[l] ? x[p + l] : high[l];
        bad[l] |= x[p + l] != x[p + l];
      }
    for (int l = 0; p < n; ++p, ++l) {
      low[l] = x[p] < low[l] ? x[p] : low[l];
      high[l] = x[p] > high[l] ? x[p] : high[l];
      bad[l] |= x[p] != x[p];
    }
    for (int l = 0; l < kVector; ++l) {
      least = std::min(least, low[l]);
      most = std::max(most, high[l]);
      nan |= bad[l] != 0;
    }
  }
};

}  // namespace

void int_mm_cpu(const Tensor& input, const Tensor& mat2, const Tensor& out) {
  const int64_t m = input.size(0), k = input.size(1), n = mat2.size(1);
  const MatrixRef<int8_t> b{data_of<int8_t>(mat2), mat2.stride(0), mat2.stride(1)};
  auto run = [&]<class P, class T>() {
    const T* a = data_of<T>(input);
    const int64_t row = input.stride(0), col = input.stride(1);
    Packed<P> packed(m, k);
    parallel_for(0, m, 65536 / std::max<int64_t>(k, 1) + 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) packed.fill(i, k, [=](int64_t p) { return a[i * row + p * col]; });
    });
    int32_t* c = target_of<int32_t>(out);
    multiply(m, n, k, packed, b, [&](int64_t i, int64_t j, int64_t count, const int32_t* sums) {
      std::copy_n(sums, count, c + i * n + j);
    });
  };
  if (m == 0 || n == 0) return;
  if (input.dtype() == DType::uint8) return run.template operator()<Pairs, uint8_t>();
  by_instructions([&]<class P>() { run.template operator()<P, int8_t>(); });
}

void dynamic_quantized_linear_cpu(const Tensor& input, const Tensor& weight, const Tensor& scale, const Tensor& bias,
                                  const Tensor& out) {
  const int64_t n = weight.size(0), k = weight.size(1), m = n == 0 ? 0 : out.numel() / n;
  if (m == 0) return;
  if (input.dtype() != DType::float32) {
    const Tensor wide = empty_tensor({DimVector(out.sizes()), DType::float32, out.device(), {}});
    dynamic_quantized_linear_cpu(raw::to(input, DType::float32), weight, scale, bias, wide);
    raw::copy_(out, wide);
    return;
  }
  const float *scales = data_of<float>(scale), *added = data_of<float>(bias);
  const bool one = scale.numel() == 1;
  by_instructions([&]<class P>() {
    const float* x = data_of<float>(input);
    const int64_t grain = 65536 / std::max<int64_t>(k, 1) + 1;
    std::vector<Range> ranges(static_cast<size_t>(m));
    parallel_for(0, m, grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) ranges[static_cast<size_t>(i)].add(x + i * k, k);
    });
    float least = 0, most = 0;
    for (const Range& r : ranges) least = std::min(least, r.least), most = std::max(most, r.most);
    const Rounding rounding(least, most);
    const float inverse = 1.0f / rounding.scale;
    Packed<P> packed(m, k);
    parallel_for(0, m, grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i)
        packed.fill(i, k, [=, from = x + i * k](int64_t p) { return rounding(from[p], inverse); });
    });
    float* y = target_of<float>(out);
    const MatrixRef<int8_t> b{data_of<int8_t>(weight), 1, k};
    multiply(m, n, k, packed, b, [&](int64_t i, int64_t j, int64_t count, const int32_t* sums) {
      // A number that is none makes its row none, as in a layer of floats.
      const float by = ranges[static_cast<size_t>(i)].nan ? std::numeric_limits<float>::quiet_NaN() : rounding.scale;
      for (int64_t l = 0; l < count; ++l) {
        const float sum = static_cast<float>(sums[l]) * (by * scales[one ? 0 : j + l]);
        y[i * n + j + l] = added ? sum + added[j + l] : sum;
      }
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
