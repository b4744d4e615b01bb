// Kernels of chains, the part that does not depend on the calls: how the elements of operands are read and written. The
// rest is written by cuda/record/source.cpp when a chain is planned. Compiled at run time.
#pragma once

#include "tapegrad/c10/tensor/half.h"
#include "tapegrad/cuda/record/device/standard.h"

namespace tapegrad::chain {

struct Flag {  // an element of bool; any byte but 0 is true
  uint8_t byte;
};

// Elements as float, as rows.h loads and stores them.
__device__ inline float widen(float x) { return x; }
__device__ inline float widen(BFloat16 x) { return static_cast<float>(x); }
__device__ inline float widen(Flag x) { return x.byte != 0 ? 1.0F : 0.0F; }
#if defined(__CUDACC_RTC__)
__device__ inline float widen(Half x) {
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
  return wide;
}
#else
__device__ inline float widen(Half x) { return static_cast<float>(x); }
#endif
template <class S>
__device__ S narrow(float x) {
  if constexpr (std::is_same_v<S, Flag>) {
    return {static_cast<uint8_t>(x != 0)};
#if defined(__CUDACC_RTC__)
  } else if constexpr (std::is_same_v<S, Half>) {
    uint16_t bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return Half::from_bits(bits);
  } else if constexpr (std::is_same_v<S, BFloat16>) {
    uint16_t bits;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
    return x == x ? BFloat16::from_bits(bits) : BFloat16(x);
#endif
  } else {
    return S(x);
  }
}

// What an operator gave, as the next one finds it in memory. `zero` is 0, which the compiler does not know: nothing
// that it knows of the number, such as that it is a product to which something is added, goes from one operator to the
// next, so that each is compiled as it is in a kernel of its own.
template <class S>
__device__ float handed_on(float x, uint32_t zero) {
  return std::bit_cast<float>(std::bit_cast<uint32_t>(widen(narrow<S>(x))) ^ zero);
}

template <class T>
__device__ T number(uint64_t bits) {
  if constexpr (sizeof(T) == 8)
    return std::bit_cast<T>(bits);
  else if constexpr (sizeof(T) == 4)
    return std::bit_cast<T>(static_cast<uint32_t>(bits));
  else
    return bits != 0;
}

// The elements of a thread.
template <int V>
struct Elements {
  int64_t i, n, columns;
  int64_t row = 0, column = 0;
  bool whole, in_row;  // there are V of them, which may be read in pieces of up to 16 bytes; in one row

  // `aligned`: operands are. Columns 0: no operand has a number per row or column.
  __device__ Elements(int64_t at, int64_t numel, int64_t per_row, bool aligned)
      : i(at), n(numel), columns(per_row), whole(aligned && at + V <= numel), in_row(whole && per_row % V == 0) {
    if (columns == 0) return;
    if (n <= 0x7fffffff) {  // divisions of 64 bits take several times as long
      row = static_cast<uint32_t>(i) / static_cast<uint32_t>(columns);
    } else {
      row = i / columns;
    }
    column = i - row * columns;
  }

  template <class S>
  __device__ void dense(float (&x)[V], const char* p) const {
    if (whole) return pieces<S>(x, p + i * static_cast<int64_t>(sizeof(S)));
    for (int j = 0; j < V; ++j) x[j] = i + j < n ? widen(reinterpret_cast<const S*>(p)[i + j]) : 0.0F;
  }
  template <class S>
  __device__ void per_column(float (&x)[V], const char* p) const {
    if (in_row) return pieces<S>(x, p + column * static_cast<int64_t>(sizeof(S)));
    int64_t c = column;
    for (int j = 0; j < V; ++j) {
      x[j] = i + j < n ? widen(reinterpret_cast<const S*>(p)[c]) : 0.0F;
      if (++c == columns) c = 0;
    }
  }
  template <class S>
  __device__ void per_row(float (&x)[V], const char* p, int64_t stride) const {
    int64_t r = row, c = column;
    for (int j = 0; j < V; ++j) {
      x[j] = i + j < n ? widen(*reinterpret_cast<const S*>(p + r * stride)) : 0.0F;
      if (++c < columns) continue;
      c = 0;
      ++r;
    }
  }
  template <class S>
  __device__ void store(const float (&x)[V], char* p) const {
    if (!whole) {
      for (int j = 0; j < V; ++j)
        if (i + j < n) reinterpret_cast<S*>(p)[i + j] = narrow<S>(x[j]);
      return;
    }
    auto* to = reinterpret_cast<Piece<S>*>(p + i * static_cast<int64_t>(sizeof(S)));
    for (int k = 0; k < V / kPiece<S>; ++k) {
      Piece<S> piece;
      for (int j = 0; j < kPiece<S>; ++j) piece.x[j] = narrow<S>(x[k * kPiece<S> + j]);
      to[k] = piece;
    }
  }

 private:
  template <class S>
  static constexpr int kPiece = sizeof(S) * V <= 16 ? V : 16 / static_cast<int>(sizeof(S));
  template <class S>
  struct alignas(sizeof(S) * kPiece<S>) Piece {
    S x[kPiece<S>];
  };
  template <class S>
  __device__ static void pieces(float (&x)[V], const char* p) {
    Piece<S> piece[V / kPiece<S>];
    for (int k = 0; k < V / kPiece<S>; ++k) piece[k] = reinterpret_cast<const Piece<S>*>(p)[k];
    for (int j = 0; j < V; ++j) x[j] = widen(piece[j / kPiece<S>].x[j % kPiece<S>]);
  }
};

}  // namespace tapegrad::chain
