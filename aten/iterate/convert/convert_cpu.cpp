#include "tapegrad/aten/iterate/convert/convert.h"

#include <cstring>
#include <tuple>
#include <utility>

#include "tapegrad/aten/iterate/blocks/half_blocks.h"
#include "tapegrad/aten/iterate/convert/cast.h"
#include "tapegrad/aten/iterate/convert/stored.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// Between float and a 16-bit format blocks go by the processor's own conversions.
template <class To, class From>
constexpr bool in_blocks =
    (std::is_same_v<From, float> && is_half_type<To>) || (std::is_same_v<To, float> && is_half_type<From>);

template <class To, class From>
TG_INLINE void convert_block(const From* src, To* dst) {
  if constexpr (std::is_same_v<From, float>)
    half_blocks::store(src, dst);
  else
    half_blocks::load(src, dst);
}

template <class To, class From>
[[gnu::flatten]] void convert_contiguous(const From* src, To* dst, int64_t n) {
  if constexpr (std::is_same_v<To, From>) {
    std::memcpy(dst, src, static_cast<size_t>(n) * sizeof(To));
  } else {
    int64_t i = 0;
    if constexpr (in_blocks<To, From>) {
      constexpr int64_t kBlock = half_blocks::kBlock;
      for (; i + kBlock <= n; i += kBlock) convert_block(src + i, dst + i);
      if (i < n && n >= kBlock) {  // the last block converts some elements again
        convert_block(src + n - kBlock, dst + n - kBlock);
        return;
      }
    }
#pragma GCC ivdep
    for (; i < n; ++i) dst[i] = cast_element<To>(value_of<From>(stored(src)[i]));
  }
}

// The element at p, converted.
template <class To, class From>
TG_INLINE To cast_at(const char* p) {
  return cast_element<To>(value_of<From>(*reinterpret_cast<const stored_t<From>*>(p)));
}

template <class T>
void fill(T* dst, T value, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) dst[i] = value;
}

// Gathers and scatters are limited by loads, not by the conversion: one element at a time.
template <class To, class From>
[[gnu::flatten, gnu::optimize("no-tree-vectorize")]] void convert_strided(const char* src, int64_t src_stride,
                                                                          char* dst, int64_t dst_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<To*>(dst + i * dst_stride) = cast_at<To, From>(src + i * src_stride);
}

template <class To, class From>
void convert(const char* src, int64_t ss0, int64_t ss1, char* dst, int64_t ds0, int64_t ds1, int64_t n0, int64_t n1) {
  if (ds0 == sizeof(To) && ss0 == sizeof(From)) {
    if (ss1 == n0 * ss0 && ds1 == n0 * ds0) {
      n0 *= n1;
      n1 = 1;
    }
    for (int64_t j = 0; j < n1; ++j)
      convert_contiguous(reinterpret_cast<const From*>(src + j * ss1), reinterpret_cast<To*>(dst + j * ds1), n0);
  } else if (ds0 == sizeof(To) && ss0 == 0) {
    for (int64_t j = 0; j < n1; ++j) fill(reinterpret_cast<To*>(dst + j * ds1), cast_at<To, From>(src + j * ss1), n0);
  } else {
    for (int64_t j = 0; j < n1; ++j) convert_strided<To, From>(src + j * ss1, ss0, dst + j * ds1, ds0, n0);
  }
}

#define TG_TYPE(name, type) , type
using Types = std::tuple<void TG_FORALL_STORED_DTYPES(TG_TYPE)>;
#undef TG_TYPE
template <int I>
using type_at = std::tuple_element_t<I + 1, Types>;

// Of dtypes that are only stored, what no other function does: one element at a time, which is small.
template <class To, class From>
void convert_rare(const char* src, int64_t ss0, int64_t ss1, char* dst, int64_t ds0, int64_t ds1, int64_t n0,
                  int64_t n1) {
  for (int64_t j = 0; j < n1; ++j) convert_strided<To, From>(src + j * ss1, ss0, dst + j * ds1, ds0, n0);
}

// By way of another dtype, in pieces that stay in the nearest cache.
void convert_by_way(DType from_dtype, DType way, DType to_dtype, const char* src, int64_t ss0, int64_t ss1, char* dst,
                    int64_t ds0, int64_t ds1, int64_t n0, int64_t n1) {
  constexpr int64_t kStage = 512;
  alignas(64) complex64_t stage[kStage];
  const Convert first = convert_for(from_dtype, way), second = convert_for(way, to_dtype);
  const auto item = static_cast<int64_t>(element_size(way));
  for (int64_t j = 0; j < n1; ++j)
    for (int64_t i = 0, many; i < n0; i += many) {
      many = std::min(kStage, n0 - i);
      first(src + j * ss1 + i * ss0, ss0, 0, reinterpret_cast<char*>(stage), item, 0, many, 1);
      second(reinterpret_cast<const char*>(stage), item, 0, dst + j * ds1 + i * ds0, ds0, 0, many, 1);
    }
}

template <class To, class From>
constexpr Convert entry() {
  using T = converted_to<To, From>;
  using F = converted_from<To, From>;
  if constexpr (goes_by_way<T, F>)
    return [](const char* src, int64_t ss0, int64_t ss1, char* dst, int64_t ds0, int64_t ds1, int64_t n0, int64_t n1) {
      convert_by_way(dtype_of_v<F>, dtype_of_v<conversion_way<T, F>>, dtype_of_v<T>, src, ss0, ss1, dst, ds0, ds1, n0,
                     n1);
    };
  else if constexpr (is_narrow_type<T> || is_narrow_type<F> || is_stored_only_type<T> || is_stored_only_type<F>)
    return &convert_rare<T, F>;
  else
    return &convert<T, F>;
}

template <int... I>
constexpr ConvertTable make_table(std::integer_sequence<int, I...>) {
  return {{entry<type_at<I % kNumDTypes>, type_at<I / kNumDTypes>>()...}};
}

}  // namespace

const ConvertTable convert_table = make_table(std::make_integer_sequence<int, kNumDTypes * kNumDTypes>{});

}  // namespace tapegrad::cpu::TG_ISA
