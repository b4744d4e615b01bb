#include "tapegrad/aten/iterate/convert/convert.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/iterate/convert/cast.h"
#include "tapegrad/aten/iterate/convert/stored.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// Gathers and scatters are limited by loads, not by the conversion: one element at a time.
template <class To, class From>
[[gnu::flatten, gnu::optimize("no-tree-vectorize")]] void convert_strided(const char* src, int64_t src_stride,
                                                                          char* dst, int64_t dst_stride, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    *reinterpret_cast<To*>(dst + i * dst_stride) =
        convert_value<To>(value_of<From>(*reinterpret_cast<const stored_t<From>*>(src + i * src_stride)));
}

template <class Bits>
void repeat(char* dst, const char* value, int64_t n) {
  Bits bits;
  std::memcpy(&bits, value, sizeof(bits));
  std::fill_n(reinterpret_cast<Bits*>(dst), n, bits);
}

void repeat(char* dst, const char* value, int64_t size, int64_t n) {
  switch (size) {
    case 1:
      return repeat<uint8_t>(dst, value, n);
    case 2:
      return repeat<uint16_t>(dst, value, n);
    case 4:
      return repeat<uint32_t>(dst, value, n);
    case 8:
      return repeat<uint64_t>(dst, value, n);
    default:
      return repeat<complex128_t>(dst, value, n);
  }
}

// What differs from one pair of dtypes to another.
struct Pair {
  DType from_dtype, to_dtype;
  int64_t from_size, to_size;
  void (*strided)(const char* src, int64_t src_stride, char* dst, int64_t dst_stride, int64_t n);
  ConvertRow row;  // null where copies have one (copy/convert.h)
};

void convert_pair(const Pair& pair, const char* src, int64_t ss0, int64_t ss1, char* dst, int64_t ds0, int64_t ds1,
                  int64_t n0, int64_t n1) {
  if (ds0 == pair.to_size && ss0 == pair.from_size) {
    if (ss1 == n0 * ss0 && ds1 == n0 * ds0) {
      n0 *= n1;
      n1 = 1;
    }
    const ConvertRow row = pair.row != nullptr ? pair.row : convert_row(pair.to_dtype, pair.from_dtype);
    for (int64_t j = 0; j < n1; ++j) row(dst + j * ds1, src + j * ss1, n0);
  } else if (ds0 == pair.to_size && ss0 == 0) {
    for (int64_t j = 0; j < n1; ++j) {
      alignas(16) char value[16];
      pair.strided(src + j * ss1, 0, value, 0, 1);
      repeat(dst + j * ds1, value, pair.to_size, n0);
    }
  } else {
    for (int64_t j = 0; j < n1; ++j) pair.strided(src + j * ss1, ss0, dst + j * ds1, ds0, n0);
  }
}

template <class To, class From>
constexpr ConvertRow own_row() {
  if constexpr (std::is_same_v<To, From>)
    return [](void* to, const void* from, int64_t n) { std::memcpy(to, from, static_cast<size_t>(n) * sizeof(To)); };
  else
    return nullptr;
}

template <class To, class From>
void convert(const char* src, int64_t ss0, int64_t ss1, char* dst, int64_t ds0, int64_t ds1, int64_t n0, int64_t n1) {
  static constexpr Pair kPair = {dtype_of_v<From>,           dtype_of_v<To>,     sizeof(From), sizeof(To),
                                 &convert_strided<To, From>, own_row<To, From>()};
  convert_pair(kPair, src, ss0, ss1, dst, ds0, ds1, n0, n1);
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
