// A tile of attention scores: 64 rows of the query by 64 of the key, spread over the registers of a block as
// tiles::Sums are (thread (ty, tx) has the rows ty + 16 i and the columns tx + 16 j).
#pragma once

#include <limits>

#include "tapegrad/aten/attention/mask.h"
#include "tapegrad/aten/attention/sizes.h"
#include "tapegrad/cuda/linalg/tiles.h"

namespace tapegrad::cuda::attention_tiles {

using attention::Sizes;
using cpu::TG_ISA::KeptWeights;
using tiles::kEach;
using tiles::kStrip;
using tiles::kTile;
inline constexpr int kPitch = kTile + 1;
inline constexpr int kPadded = kTile * kPitch;  // a tile in shared memory

TG_DEVICE int row_of(int i) { return static_cast<int>(thread_index()) / 16 + 16 * i; }
TG_DEVICE int column_of(int j) { return static_cast<int>(thread_index()) % 16 + 16 * j; }

template <class T>
struct Mask : cpu::TG_ISA::AttentionMask {
  using AttentionMask::AttentionMask;
  template <class C>
  TG_DEVICE C apply(C score, int64_t h, int64_t row, int64_t key) const {
    constexpr C kHidden = -std::numeric_limits<C>::infinity();
    if (causal && key > row) return kHidden;
    if (data == nullptr) return score;
    const int64_t place = at(h, row, key);
    if (boolean) return static_cast<const uint8_t*>(data)[place] != 0 ? score : kHidden;
    return score + steps::widen<T>(static_cast<const T*>(data)[place]);
  }
};

// Applies dropout to a weight or to its gradient.
template <class C>
TG_DEVICE C dropped(C value, const KeptWeights& kept, const Sizes& z, int64_t h, int64_t row, int64_t key) {
  if (kept.all()) return value;
  return row < z.rows && key < z.keys && kept.has(h, row, key) ? value * static_cast<C>(kept.scale) : C(0);
}

// Rows [first, rows) of a matrix with `width` columns as lines of a product over its columns.
template <class T>
TG_DEVICE tiles::MatrixLines<T> rows_from(const T* p, int64_t first, int64_t rows, int64_t width) {
  return {p + first * width, width, 1, rows - first, true};
}
// Columns [first, width) of rows from `row` on as lines of a product over the rows.
template <class T>
TG_DEVICE tiles::MatrixLines<T> columns_from(const T* p, int64_t row, int64_t first, int64_t width) {
  return {p + row * width + first, 1, width, width - first, false};
}

// Scores of the rows from `row` and the keys from `key` of head h, -inf outside.
template <class T>
TG_DEVICE void make_scores(tiles::Sums<compute_t<T>>& s, compute_t<T>* a_strip, compute_t<T>* b_strip, const Sizes& z,
                           const Mask<T>& mask, compute_t<T> scale, const T* query, const T* key, int64_t h,
                           int64_t row, int64_t first_key) {
  using C = compute_t<T>;
  s.add(a_strip, b_strip, rows_from(query + h * z.rows * z.width, row, z.rows, z.width),
        rows_from(key + z.shared_head(h) * z.keys * z.width, first_key, z.keys, z.width), 0, z.width);
  TG_UNROLL
  for (int i = 0; i < kEach; ++i) {
    TG_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const int64_t r = row + row_of(i), k = first_key + column_of(j);
      s.sum[i][j] =
          r < z.rows && k < z.keys ? mask.apply(s.sum[i][j] * scale, h, r, k) : -std::numeric_limits<C>::infinity();
    }
  }
}

// Over the 16 threads that share the rows; all get the result.
template <class C, class Merge>
TG_DEVICE C row_reduce(C value, Merge merge) {
  for (int d = 8; d > 0; d /= 2) {
    const C other = shuffle_xor(value, d);
    value = (warp_lane() & d) != 0 ? merge(other, value) : merge(value, other);
  }
  return value;
}

// Stores a tile in shared memory, row by row, with a barrier before and after.
template <class C>
TG_DEVICE void put_tile(const tiles::Sums<C>& s, C* to) {
  block_sync();
  TG_UNROLL
  for (int i = 0; i < kEach; ++i) {
    TG_UNROLL
    for (int j = 0; j < kEach; ++j) to[row_of(i) * kPitch + column_of(j)] = s.sum[i][j];
  }
  block_sync();
}

}  // namespace tapegrad::cuda::attention_tiles
