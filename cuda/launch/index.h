// Index arithmetic of kernels, as functions of host and device: division by constants through multiplication, and byte
// offsets of elements of strided operands. Everything within a launch fits 32 bits: larger iterations are split on the
// host (for_32_bit_pieces).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "tapegrad/c10/macros.h"
#include "tapegrad/c10/tensor/small_vector.h"

namespace tapegrad::cuda {

// n / divisor and n % divisor for n < 2^31 and 0 < divisor < 2^31, by a multiplication and a shift.
// T. Granlund and P. L. Montgomery, Division by invariant integers using multiplication, PLDI 1994.
struct FastDivide {
  uint32_t divisor = 1, magic = 1, shift = 0;

  FastDivide() = default;
  explicit FastDivide(uint32_t d) : divisor(d) {
    while ((uint64_t{1} << shift) < d) ++shift;
    magic = static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift) - d) / d + 1);
  }
  TG_HD uint32_t quotient(uint32_t n) const {
    const uint32_t high = static_cast<uint32_t>(static_cast<uint64_t>(n) * magic >> 32);
    return (high + n) >> shift;
  }
  TG_HD void divide(uint32_t n, uint32_t& q, uint32_t& rest) const {
    q = quotient(n);
    rest = n - q * divisor;
  }
};

inline constexpr int kKernelDims = 12;  // of a strided kernel, after merging; more are looped over on the host

// The places of up to Operands operands for element n of an iteration; the last dimension is the fastest.
template <int Operands>
struct Offsets {
  int ndim = 0;
  FastDivide shape[kKernelDims];
  int32_t strides[Operands][kKernelDims] = {};  // bytes

  TG_HD void at(uint32_t n, int32_t (&offset)[Operands]) const {
    for (int k = 0; k < Operands; ++k) offset[k] = 0;
    for (int d = ndim - 1; d >= 0; --d) {
      uint32_t q, rest;
      shape[d].divide(n, q, rest);
      n = q;
      for (int k = 0; k < Operands; ++k) offset[k] += static_cast<int32_t>(rest) * strides[k][d];
    }
  }
};

inline constexpr int kPieceOperands = 5;

// A part of an iteration that a kernel does at once.
struct Piece {
  int ndim = 0;
  int64_t numel = 1;
  int64_t shape[kKernelDims];
  int64_t strides[kPieceOperands][kKernelDims];  // bytes
  int64_t offset[kPieceOperands];                // bytes from the operand's first element
};

namespace detail {

// `begin` and `shape` of the part at hand; dimension d is the next that may have to be walked on the host.
template <class F>
void pieces_of(int ndim, const int64_t* shape, const int64_t* begin, int operands, const int64_t* const* strides,
               F&& f) {
  int64_t numel = 1;
  bool fits = true;
  int largest = 0, dims = 0;
  for (int d = 0; d < ndim; ++d) {
    numel *= shape[d];
    fits &= numel < (int64_t{1} << 31);
    if (shape[d] > shape[largest]) largest = d;
    dims += shape[d] != 1;
  }
  // Where offsets are too far apart, the dimension that reaches furthest is cut; else the one with most elements.
  int64_t furthest = 0;
  for (int k = 0; k < operands; ++k) {
    int64_t low = 0, high = 0;
    for (int d = 0; d < ndim; ++d) {
      const int64_t span = (shape[d] - 1) * strides[k][d];
      (span < 0 ? low : high) += span;
    }
    if (high < (int64_t{1} << 31) && low > -(int64_t{1} << 31)) continue;
    fits = false;
    for (int d = 0; d < ndim; ++d) {
      const int64_t span = std::abs((shape[d] - 1) * strides[k][d]);
      if (span <= furthest) continue;
      furthest = span;
      largest = d;
    }
  }
  if (fits && dims <= kKernelDims) {
    Piece piece;
    piece.numel = numel;
    for (int k = 0; k < operands; ++k) {
      piece.offset[k] = 0;
      for (int d = 0; d < ndim; ++d) piece.offset[k] += begin[d] * strides[k][d];
    }
    for (int d = 0; d < ndim; ++d) {
      if (shape[d] == 1) continue;
      piece.shape[piece.ndim] = shape[d];
      for (int k = 0; k < operands; ++k) piece.strides[k][piece.ndim] = strides[k][d];
      ++piece.ndim;
    }
    return f(static_cast<const Piece&>(piece));
  }
  // Too many dimensions: walk the first that has several places. Too large: halve one.
  int cut = largest;
  if (fits)
    for (cut = 0; shape[cut] == 1;) ++cut;
  int64_t part_shape[kMaxDims], part_begin[kMaxDims];
  std::copy_n(shape, ndim, part_shape);
  std::copy_n(begin, ndim, part_begin);
  const int64_t step = fits ? 1 : (shape[cut] + 1) / 2;
  for (int64_t at = 0; at < shape[cut]; at += step) {
    part_shape[cut] = std::min(step, shape[cut] - at);
    part_begin[cut] = begin[cut] + at;
    pieces_of(ndim, part_shape, part_begin, operands, strides, f);
  }
}

}  // namespace detail

// Calls f(const Piece&) for parts of an iteration of at most kKernelDims dimensions, with fewer than 2^31 elements and
// offsets below 2^31 bytes, in an order that depends on the shape alone.
template <class F>
void for_32_bit_pieces(int ndim, const int64_t* shape, int operands, const int64_t* const* strides, F&& f) {
  const int64_t begin[kMaxDims] = {};
  detail::pieces_of(ndim, shape, begin, operands, strides, f);
}

}  // namespace tapegrad::cuda
