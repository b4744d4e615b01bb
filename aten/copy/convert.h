// Conversion of dense rows from one dtype to another, compiled per instruction set: a table of row functions
// for all pairs, filled by the convert_*_cpu.cpp files (one per group of targets, to keep compile times short).
#pragma once

#include <bit>
#include <type_traits>
#include <vector>

#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/iterate/convert/cast.h"
#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad::cpu::TG_ISA {

using ConvertRow = void (*)(void* to, const void* from, int64_t n);

// The row functions to one target, indexed by source dtype.
using ConvertColumn = ConvertRow[kNumDTypes];
const ConvertColumn& convert_to_integers(DType to);  // bool and the integer types
const ConvertColumn& convert_to_reals(DType to);     // float8 too
const ConvertColumn& convert_to_complex(DType to);

inline ConvertRow convert_row(DType to, DType from) {
  const int f = static_cast<int>(from);
  if (is_complex(to)) return convert_to_complex(to)[f];
  if (is_floating_point(to) || is_float8(to)) return convert_to_reals(to)[f];
  return convert_to_integers(to)[f];
}

// A row to another type: what the compiler makes of a plain loop of 16-bit floats takes one value at a time.
template <class To, class From>
void convert_line(To* to, const From* from, int64_t n) {
  convert_row(dtype_of_v<To>, dtype_of_v<From>)(to, from, n);
}

// n elements in another type: where they are if it is theirs, or written to `scratch`.
template <class To, class From>
const To* converted(const From* from, int64_t n, [[maybe_unused]] To* scratch) {
  if constexpr (std::is_same_v<To, From>) {
    return from;
  } else {
    convert_line(scratch, from, n);
    return scratch;
  }
}
// The same with scratch memory that grows.
template <class To, class From>
const To* converted(const From* from, int64_t n, std::vector<To>& scratch) {
  if (!std::is_same_v<To, From> && scratch.size() < static_cast<size_t>(n)) scratch.resize(static_cast<size_t>(n));
  return converted(from, n, scratch.data());
}

// One value, as cast_element() has it, but that what a small integer type cannot hold takes the low bits of the 32-bit
// result from double, too, as vector instructions do.
template <class To, class From>
inline To convert_value(From v) {
  return cast_element<To, int32_t>(v);
}

template <size_t kSize>
using BitsOf =
    std::conditional_t<kSize == 1, uint8_t,
                       std::conditional_t<kSize == 2, uint16_t, std::conditional_t<kSize == 4, uint32_t, uint64_t>>>;

// Any byte but 0 is true, uninitialised memory included. Selects between the bits of the two results, which g++
// vectorises.
template <class Bits>
void convert_flags(Bits* __restrict to, const uint8_t* __restrict flags, int64_t n, Bits one) {
  for (int64_t i = 0; i < n; ++i) to[i] = flags[i] != 0 ? one : Bits(0);
}

// Bytes fill vectors that are wider than a block of 16-bit numbers: by way of floats in the nearest cache, or, as bytes
// have no more digits than bfloat16, by the upper half of the floats.
inline constexpr int64_t kStage = 512;

template <class To, class From>
void bytes_to_half(To* to, const From* __restrict from, int64_t n) {
  if constexpr (std::is_same_v<To, BFloat16>) {
    uint16_t* __restrict bits = reinterpret_cast<uint16_t*>(to);
    for (int64_t i = 0; i < n; ++i)
      bits[i] = static_cast<uint16_t>(std::bit_cast<uint32_t>(static_cast<float>(from[i])) >> 16);
    return;
  }
  alignas(64) float stage[kStage];
  for (int64_t i = 0, many; i < n; i += many) {
    many = std::min(kStage, n - i);
    for (int64_t l = 0; l < many; ++l) stage[l] = static_cast<float>(from[i + l]);
    int64_t l = 0;
    for (; l + blocks::kWidth <= many; l += blocks::kWidth) half_blocks::store_two(stage + l, to + i + l);
    for (; l < many; ++l) to[i + l] = To(stage[l]);
  }
}

template <class To, class From>
void half_to_bytes(To* __restrict to, const From* from, int64_t n) {
  alignas(64) float stage[kStage];
  for (int64_t i = 0, many; i < n; i += many) {
    many = std::min(kStage, n - i);
    int64_t l = 0;
    for (; l + half_blocks::kBlock <= many; l += half_blocks::kBlock) half_blocks::load(from + i + l, stage + l);
    for (; l < many; ++l) stage[l] = static_cast<float>(from[i + l]);
    for (l = 0; l < many; ++l) to[i + l] = convert_value<To>(stage[l]);
  }
}

template <class To, class From>
void convert_dense(void* to, const void* from, int64_t n) {
  [[maybe_unused]] To* __restrict t = static_cast<To*>(to);
  if constexpr (std::is_same_v<From, bool> && std::is_trivially_copyable_v<To> && sizeof(To) <= 8) {
    using Bits = BitsOf<sizeof(To)>;
    convert_flags(static_cast<Bits*>(to), static_cast<const uint8_t*>(from), n,
                  std::bit_cast<Bits>(convert_value<To>(true)));
  } else if constexpr (is_half_type<To> && sizeof(From) == 1) {
    bytes_to_half(t, static_cast<const From*>(from), n);
  } else if constexpr (is_half_type<From> && sizeof(To) == 1 && !std::is_same_v<To, bool>) {
    half_to_bytes(t, static_cast<const From*>(from), n);
  } else if constexpr (is_half_type<To> && std::is_arithmetic_v<From>) {
    blocks::copy(n, t, static_cast<const From*>(from));
  } else if constexpr (is_half_type<From> && std::is_same_v<To, bool>) {
    const uint16_t* bits = static_cast<const uint16_t*>(from);
    for (int64_t i = 0; i < n; ++i) t[i] = (bits[i] & 0x7fff) != 0;  // but for the sign
  } else if constexpr (is_half_type<From> && std::is_arithmetic_v<To>) {
    auto put = [t](int64_t i, float x) { t[i] = convert_value<To>(x); };
    blocks::visit(n, put, static_cast<const From*>(from));
  } else if constexpr (std::is_same_v<From, bool>) {
    const uint8_t* __restrict f = static_cast<const uint8_t*>(from);
    for (int64_t i = 0; i < n; ++i) t[i] = convert_value<To>(f[i] != 0);
  } else {
    const From* __restrict f = static_cast<const From*>(from);
    for (int64_t i = 0; i < n; ++i) t[i] = convert_value<To>(f[i]);
  }
}

// By way of another dtype, in pieces that stay in the nearest cache.
inline void convert_by_way(DType to_dtype, DType way, DType from_dtype, void* to, const void* from, int64_t n) {
  alignas(64) complex64_t stage[kStage];
  const ConvertRow first = convert_row(way, from_dtype), second = convert_row(to_dtype, way);
  for (int64_t i = 0, many; i < n; i += many) {
    many = std::min(kStage, n - i);
    first(stage, static_cast<const char*>(from) + i * static_cast<int64_t>(element_size(from_dtype)), many);
    second(static_cast<char*>(to) + i * static_cast<int64_t>(element_size(to_dtype)), stage, many);
  }
}

template <class To, class From>
constexpr ConvertRow dense_row() {
  using T = converted_to<To, From>;
  using F = converted_from<To, From>;
  if constexpr (goes_by_way<T, F>)
    return [](void* to, const void* from, int64_t n) {
      convert_by_way(dtype_of_v<T>, dtype_of_v<conversion_way<T, F>>, dtype_of_v<F>, to, from, n);
    };
  else
    return &convert_dense<T, F>;
}

template <class To>
const ConvertColumn& convert_column() {
  static constexpr ConvertColumn kColumn = {
#define TG_ROW(name, type) dense_row<To, type>(),
      TG_FORALL_STORED_DTYPES(TG_ROW)
#undef TG_ROW
  };
  return kColumn;
}

}  // namespace tapegrad::cpu::TG_ISA
