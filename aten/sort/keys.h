// Elements as unsigned integers of the same order, so that sorting and selecting is done on integers. NaN of any
// sign is the largest, as in PyTorch; -0 equals 0. Compiled per instruction set, and for devices.
#pragma once

#include <bit>
#include <type_traits>

#include "tapegrad/c10/macros.h"
#include "tapegrad/c10/tensor/dtype.h"

namespace tapegrad::cpu::TG_ISA {

// For the elements of T: U holds a key, of which the low kBits are used.
template <class T>
struct Keys {
  using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
  static constexpr int kBits = 8 * static_cast<int>(sizeof(T));
  static constexpr U kTop = U{1} << (kBits - 1);
  static constexpr U kAll = kTop | (kTop - 1);  // NaN
  static constexpr bool kFloating = is_floating_type<T>;

  TG_HD static U of(T x) {
    if constexpr (kFloating) {
      const U bits = raw_bits(x);
      const U magnitude = bits & ~kTop;
      // Negative numbers: all bits turned, which also makes -0 one less than 0: added back.
      const U key = bits & kTop ? (~bits & kAll) + (magnitude == 0) : bits | kTop;
      return magnitude > kInfinity ? kAll : key;
    } else if constexpr (std::is_same_v<T, bool>) {
      return x ? 1 : 0;
    } else if constexpr (std::is_signed_v<T>) {
      return static_cast<U>(static_cast<std::make_unsigned_t<T>>(x)) ^ kTop;
    } else {
      return x;
    }
  }

  // Whether `value` gives back the element: not for zeros, whose sign is lost, and NaN.
  TG_HD static bool exact(U key) { return !kFloating || (key != kTop && key != kAll); }
  TG_HD static T value(U key) {
    if constexpr (kFloating) {
      const U bits = key & kTop ? key ^ kTop : ~key & kAll;
      if constexpr (is_half_type<T>)
        return T::from_bits(static_cast<uint16_t>(bits));
      else
        return std::bit_cast<T>(bits);
    } else if constexpr (std::is_same_v<T, bool>) {
      return key != 0;
    } else if constexpr (std::is_signed_v<T>) {
      return static_cast<T>(key ^ kTop);
    } else {
      return static_cast<T>(key);
    }
  }

 private:
  static constexpr U kInfinity = std::is_same_v<T, Half>       ? U{0x7C00}
                                 : std::is_same_v<T, BFloat16> ? U{0x7F80}
                                 : std::is_same_v<T, float>    ? U{0x7F800000}
                                                               : static_cast<U>(0x7FF0000000000000u);
  TG_HD static U raw_bits(T x) {
    if constexpr (is_half_type<T>)
      return x.bits;
    else
      return std::bit_cast<U>(x);
  }
};

// A key with the place of its element. Places differ, so items are never equal: every way of sorting gives the same
// order, the stable one. Keys of up to 32 bits share a word with the place.
struct WideItem {
  uint64_t key;
  int64_t place;
};
inline bool operator<(const WideItem& a, const WideItem& b) {
  return (a.key < b.key) | ((a.key == b.key) & (a.place < b.place));
}
template <class T>
using ItemOf = std::conditional_t<sizeof(T) == 8, WideItem, uint64_t>;

inline uint64_t make_item(uint32_t key, int64_t place) { return uint64_t{key} << 32 | static_cast<uint32_t>(place); }
inline WideItem make_item(uint64_t key, int64_t place) { return {key, place}; }
inline uint32_t key_of(uint64_t item) { return static_cast<uint32_t>(item >> 32); }
inline uint64_t key_of(const WideItem& item) { return item.key; }
inline int64_t place_of(uint64_t item) { return static_cast<int64_t>(item & 0xFFFFFFFFu); }
inline int64_t place_of(const WideItem& item) { return item.place; }
inline constexpr int64_t kMostPlaces = int64_t{1} << 32;  // of an item in one word

}  // namespace tapegrad::cpu::TG_ISA
