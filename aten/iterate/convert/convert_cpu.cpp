#include "tapegrad/aten/iterate/convert/convert.h"

#include <algorithm>
#include <cstring>
#include <tuple>
#include <utility>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/copy/run.h"
#include "tapegrad/aten/iterate/convert/cast.h"
#include "tapegrad/aten/iterate/convert/stored.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

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
  ConvertRow row;  // null where copies have one (copy/convert.h)
};

constexpr int64_t kStage = 512;  // elements

// n1 rows of n0 elements, each row of which is copied alone.
void copy_rows(int64_t size, const char* src, int64_t ss0, int64_t ss1, char* dst, int64_t ds0, int64_t ds1, int64_t n0,
               int64_t n1) {
  dispatch_bytes(static_cast<size_t>(size), [&]<class T>() {
    for (int64_t j = 0; j < n1; ++j) copy_run<T>(dst + j * ds1, ds0, src + j * ss1, ss0, n0);
  });
}

// Another dtype and strides: rows, or many short ones, are gathered into a buffer in the nearest cache, converted
// there, and scattered.
void convert_staged(const Pair& pair, ConvertRow row, const char* src, int64_t ss0, int64_t ss1, char* dst, int64_t ds0,
                    int64_t ds1, int64_t n0, int64_t n1) {
  alignas(64) char gathered[kStage * 16], result[kStage * 16];
  const int64_t most_rows = std::max<int64_t>(1, kStage / std::max<int64_t>(n0, 1)), f = pair.from_size;
  for (int64_t j = 0, rows; j < n1; j += rows) {
    rows = std::min(most_rows, n1 - j);
    for (int64_t i = 0, n; i < n0; i += n) {
      n = std::min(kStage, n0 - i);
      const char* from = src + j * ss1 + i * ss0;
      char* to = dst + j * ds1 + i * ds0;
      if (ss0 != f || (rows > 1 && ss1 != n * f)) {
        copy_rows(f, from, ss0, ss1, gathered, f, n * f, n, rows);
        from = gathered;
      }
      if (ds0 == pair.to_size && (rows == 1 || ds1 == n * pair.to_size)) {
        row(to, from, n * rows);
      } else {
        row(result, from, n * rows);
        copy_rows(pair.to_size, result, pair.to_size, n * pair.to_size, to, ds0, ds1, n, rows);
      }
    }
  }
}

void convert_pair(const Pair& pair, const char* src, int64_t ss0, int64_t ss1, char* dst, int64_t ds0, int64_t ds1,
                  int64_t n0, int64_t n1) {
  const ConvertRow row = pair.row != nullptr ? pair.row : convert_row(pair.to_dtype, pair.from_dtype);
  if (ds0 == pair.to_size && ss0 == pair.from_size) {
    if (ss1 == n0 * ss0 && ds1 == n0 * ds0) {
      n0 *= n1;
      n1 = 1;
    }
    for (int64_t j = 0; j < n1; ++j) row(dst + j * ds1, src + j * ss1, n0);
  } else if (ds0 == pair.to_size && ss0 == 0) {
    for (int64_t j = 0; j < n1; ++j) {
      alignas(16) char value[16];
      row(value, src + j * ss1, 1);
      repeat(dst + j * ds1, value, pair.to_size, n0);
    }
  } else if (pair.from_dtype == pair.to_dtype) {
    copy_rows(pair.to_size, src, ss0, ss1, dst, ds0, ds1, n0, n1);
  } else {
    convert_staged(pair, row, src, ss0, ss1, dst, ds0, ds1, n0, n1);
  }
}

template <class To, class From>
constexpr ConvertRow own_row() {
  if constexpr (std::is_same_v<To, From>)
    return [](void* to, const void* from, int64_t n) { copy_bytes(to, from, n * static_cast<int64_t>(sizeof(To))); };
  else
    return nullptr;
}

template <class To, class From>
void convert(const char* src, int64_t ss0, int64_t ss1, char* dst, int64_t ds0, int64_t ds1, int64_t n0, int64_t n1) {
  static constexpr Pair kPair = {dtype_of_v<From>, dtype_of_v<To>, sizeof(From), sizeof(To), own_row<To, From>()};
  convert_pair(kPair, src, ss0, ss1, dst, ds0, ds1, n0, n1);
}

#define TG_TYPE(name, type) , type
using Types = std::tuple<void TG_FORALL_STORED_DTYPES(TG_TYPE)>;
#undef TG_TYPE
template <int I>
using type_at = std::tuple_element_t<I + 1, Types>;

// Of dtypes that are only stored, what no other function does: one element at a time, which is small.
template <class To, class From>
[[gnu::flatten, gnu::optimize("no-tree-vectorize")]] void convert_rare(const char* src, int64_t ss0, int64_t ss1,
                                                                       char* dst, int64_t ds0, int64_t ds1, int64_t n0,
                                                                       int64_t n1) {
  for (int64_t j = 0; j < n1; ++j)
    for (int64_t i = 0; i < n0; ++i)
      *reinterpret_cast<To*>(dst + j * ds1 + i * ds0) =
          convert_value<To>(value_of<From>(*reinterpret_cast<const stored_t<From>*>(src + j * ss1 + i * ss0)));
}

// By way of another dtype, in pieces that stay in the nearest cache.
void convert_by_way(DType from_dtype, DType way, DType to_dtype, const char* src, int64_t ss0, int64_t ss1, char* dst,
                    int64_t ds0, int64_t ds1, int64_t n0, int64_t n1) {
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
