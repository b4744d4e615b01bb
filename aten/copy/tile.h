// Transposition of small tiles, the inner part of copying between layouts whose fastest dimensions differ.
// Elements are moved as unsigned integers of their size. Compiled per instruction set.
#pragma once

#include <cstdint>
#include <cstring>

#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/macros.h"

namespace tapegrad::cpu::TG_ISA {

// to[i * to_stride + j] = from[j * from_stride + i] for i < rows, j < columns; strides in bytes, both sides dense
// along their fast dimension.
template <class T>
inline void transpose_edge(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t rows,
                           int64_t columns) {
  for (int64_t i = 0; i < rows; ++i) {
    T* __restrict t = reinterpret_cast<T*>(to + i * to_stride);
    const char* f = from + i * static_cast<int64_t>(sizeof(T));
    for (int64_t j = 0; j < columns; ++j) std::memcpy(t + j, f + j * from_stride, sizeof(T));
  }
}

#if defined(__x86_64__) || defined(__aarch64__)
typedef uint32_t V8u32 __attribute__((vector_size(32)));
typedef uint64_t V4u64 __attribute__((vector_size(32)));

inline void transpose_8x8(char* to, int64_t to_stride, const char* from, int64_t from_stride) {
  V8u32 r[8], s[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&r[i], from + i * from_stride, sizeof(V8u32));
  // Interleave pairs of rows, then pairs of pairs, then exchange the 128-bit halves.
  for (int i = 0; i < 8; i += 2) {
    s[i] = __builtin_shufflevector(r[i], r[i + 1], 0, 8, 1, 9, 4, 12, 5, 13);
    s[i + 1] = __builtin_shufflevector(r[i], r[i + 1], 2, 10, 3, 11, 6, 14, 7, 15);
  }
  for (int i = 0; i < 8; i += 4)
    for (int k = 0; k < 2; ++k) {
      r[i + 2 * k] = __builtin_shufflevector(s[i + k], s[i + k + 2], 0, 1, 8, 9, 4, 5, 12, 13);
      r[i + 2 * k + 1] = __builtin_shufflevector(s[i + k], s[i + k + 2], 2, 3, 10, 11, 6, 7, 14, 15);
    }
  for (int i = 0; i < 4; ++i) {
    V8u32 a = __builtin_shufflevector(r[i], r[i + 4], 0, 1, 2, 3, 8, 9, 10, 11);
    V8u32 b = __builtin_shufflevector(r[i], r[i + 4], 4, 5, 6, 7, 12, 13, 14, 15);
    std::memcpy(to + i * to_stride, &a, sizeof a);
    std::memcpy(to + (i + 4) * to_stride, &b, sizeof b);
  }
}

typedef uint16_t V16u16 __attribute__((vector_size(32)));

// 8 columns of 16 rows: a row of `from` has 16 elements, of which each half is a square of its own. Three rounds of
// riffling rows i and i + 4 turn a square of 8.
inline void transpose_16x8(char* to, int64_t to_stride, const char* from, int64_t from_stride) {
  V16u16 r[8], s[8];
  for (int i = 0; i < 8; ++i) std::memcpy(&r[i], from + i * from_stride, sizeof(V16u16));
  for (int round = 0; round < 3; ++round) {
    for (int i = 0; i < 4; ++i) {
      s[2 * i] = __builtin_shufflevector(r[i], r[i + 4], 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27);
      s[2 * i + 1] =
          __builtin_shufflevector(r[i], r[i + 4], 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31);
    }
    for (int i = 0; i < 8; ++i) r[i] = s[i];
  }
  for (int i = 0; i < 8; ++i) {
    std::memcpy(to + i * to_stride, &r[i], 16);
    std::memcpy(to + (i + 8) * to_stride, reinterpret_cast<const char*>(&r[i]) + 16, 16);
  }
}

inline void transpose_4x4(char* to, int64_t to_stride, const char* from, int64_t from_stride) {
  V4u64 r[4], s[4];
  for (int i = 0; i < 4; ++i) std::memcpy(&r[i], from + i * from_stride, sizeof(V4u64));
  s[0] = __builtin_shufflevector(r[0], r[1], 0, 4, 2, 6);
  s[1] = __builtin_shufflevector(r[0], r[1], 1, 5, 3, 7);
  s[2] = __builtin_shufflevector(r[2], r[3], 0, 4, 2, 6);
  s[3] = __builtin_shufflevector(r[2], r[3], 1, 5, 3, 7);
  for (int i = 0; i < 2; ++i) {
    V4u64 a = __builtin_shufflevector(s[i], s[i + 2], 0, 1, 4, 5);
    V4u64 b = __builtin_shufflevector(s[i], s[i + 2], 2, 3, 6, 7);
    std::memcpy(to + i * to_stride, &a, sizeof a);
    std::memcpy(to + (i + 2) * to_stride, &b, sizeof b);
  }
}
#endif

// As transpose_edge(), by squares of 8 where there are some.
template <class T>
inline void transpose_rest(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t rows,
                           int64_t columns) {
  int64_t i = 0;
#if defined(__x86_64__) || defined(__aarch64__)
  if constexpr (sizeof(T) == 4) {
    for (; i + 8 <= rows; i += 8) {
      int64_t j = 0;
      for (; j + 8 <= columns; j += 8)
        transpose_8x8(to + i * to_stride + j * 4, to_stride, from + j * from_stride + i * 4, from_stride);
      if (j < columns)
        transpose_edge<T>(to + i * to_stride + j * 4, to_stride, from + j * from_stride + i * 4, from_stride, 8,
                          columns - j);
    }
  }
#endif
  if (i < rows)
    transpose_edge<T>(to + i * to_stride, to_stride, from + i * static_cast<int64_t>(sizeof(T)), from_stride, rows - i,
                      columns);
}

// A tile of a cache line on both sides.
template <class T>
inline constexpr int64_t kTile = sizeof(T) <= 4 ? 16 : 64 / static_cast<int64_t>(sizeof(T));

template <class T>
inline void transpose_tile(char* to, int64_t to_stride, const char* from, int64_t from_stride) {
#if defined(__x86_64__) || defined(__aarch64__)
  if constexpr (sizeof(T) == 2) {
    for (int64_t j = 0; j < kTile<T>; j += 8)
      transpose_16x8(to + j * 2, to_stride, from + j * from_stride, from_stride);
    return;
  }
  if constexpr (sizeof(T) == 4) {
    for (int64_t i = 0; i < kTile<T>; i += 8)
      for (int64_t j = 0; j < kTile<T>; j += 8)
        transpose_8x8(to + i * to_stride + j * 4, to_stride, from + j * from_stride + i * 4, from_stride);
    return;
  }
  if constexpr (sizeof(T) == 8) {
    for (int64_t i = 0; i < kTile<T>; i += 4)
      for (int64_t j = 0; j < kTile<T>; j += 4)
        transpose_4x4(to + i * to_stride + j * 8, to_stride, from + j * from_stride + i * 8, from_stride);
    return;
  }
#endif
  transpose_edge<T>(to, to_stride, from, from_stride, kTile<T>, kTile<T>);
}

// The whole plane: rows is the dimension that is dense in `from`, columns the one dense in `to`. Columns are taken
// in blocks so that the source's pages in use stay within the reach of the address cache.
template <class T>
void transpose_plane(char* to, int64_t to_stride, const char* from, int64_t from_stride, int64_t rows,
                     int64_t columns) {
  constexpr int64_t kT = kTile<T>;
  constexpr int64_t kBlock = 256;
  constexpr int64_t kSize = sizeof(T);
  for (int64_t c0 = 0; c0 < columns; c0 += kBlock) {
    const int64_t c1 = c0 + kBlock < columns ? c0 + kBlock : columns;
    int64_t r = 0;
    for (; r + kT <= rows; r += kT) {
      int64_t c = c0;
      for (; c + kT <= c1; c += kT)
        transpose_tile<T>(to + r * to_stride + c * kSize, to_stride, from + c * from_stride + r * kSize, from_stride);
      if (c < c1)
        transpose_rest<T>(to + r * to_stride + c * kSize, to_stride, from + c * from_stride + r * kSize, from_stride,
                          kT, c1 - c);
    }
    if (r < rows)
      transpose_rest<T>(to + r * to_stride + c0 * kSize, to_stride, from + c0 * from_stride + r * kSize, from_stride,
                        rows - r, c1 - c0);
  }
}

}  // namespace tapegrad::cpu::TG_ISA
