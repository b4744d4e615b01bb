// The inner part of matrix products: a block of 256 threads adds up a tile of 64 x 64 elements from strips of shared
// memory. The caller supplies the elements: from a matrix in memory, or from one that is never materialised, such as
// the patches of a convolution.
#pragma once

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/launch/device_code.h"

namespace tapegrad::cuda::tiles {

constexpr int kTile = 64;   // rows and columns of a block's tile
constexpr int kDepth = 16;  // of a step along k
constexpr int kEach = 4;    // rows and columns of a thread: 16 x 16 threads
constexpr int kThreads = 256;
constexpr int kStrip = kDepth * (kTile + 1);  // elements of shared memory for one operand

TG_HD inline int64_t tiles_of(int64_t n) { return (n + kTile - 1) / kTile; }
// Where a tile begins; tiles that share columns follow each other.
struct Corner {
  int64_t row, column;
  TG_DEVICE Corner(int64_t tile, int64_t rows)
      : row(tile % tiles_of(rows) * kTile), column(tile / tiles_of(rows) * kTile) {}
};

// Element i (of 4) that thread t loads of a strip: neighbouring threads take neighbours along k, or across.
TG_HD inline int line_of(int t, int i, bool along_k) { return along_k ? t / kDepth + 16 * i : t % kTile; }
TG_HD inline int depth_of(int t, int i, bool along_k) { return along_k ? t % kDepth : t / kTile + 4 * i; }

// Rows or columns of a matrix in memory, from the first of the tile on.
template <class T>
struct MatrixLines {
  const T* data;
  int64_t step, k_step, count;  // elements from line to line and along k; lines that are there
  bool along_k;
  TG_DEVICE compute_t<T> at(int line, int64_t k) const {
    return line < count ? steps::widen<T>(data[line * step + k * k_step]) : compute_t<T>(0);
  }
};

template <class C>
struct Sums {
  C sum[kEach][kEach];

  TG_DEVICE Sums() {
    TG_UNROLL
    for (int i = 0; i < kEach; ++i) {
      TG_UNROLL
      for (int j = 0; j < kEach; ++j) sum[i][j] = C(0);
    }
  }
  // Adds a(row, k) b(k, column) for k in [first, last). a.at(line, k) and b.at(line, k) give elements of a row of a and
  // a column of b, counted within the tile, and zero outside of the matrix; `along_k` says how they lie in memory.
  template <class A, class B>
  TG_DEVICE void add(C* a_strip, C* b_strip, const A& a, const B& b, int64_t first, int64_t last) {
    for (int64_t k0 = first; k0 < last; k0 += kDepth) {
      TG_UNROLL
      for (int e = 0; e < kTile * kDepth / kThreads; ++e) {
        load(a_strip, a, e, k0, last);
        load(b_strip, b, e, k0, last);
      }
      block_sync();
      TG_UNROLL
      for (int kk = 0; kk < kDepth; ++kk) add_products(a_strip + kk * (kTile + 1), 1, b_strip + kk * (kTile + 1));
      block_sync();
    }
  }
  // The same with a factor that lies in shared memory as a whole: element (row, k) at left[row * row_step + k *
  // k_step].
  template <class B>
  TG_DEVICE void add_left(const C* left, int row_step, int k_step, C* b_strip, const B& b, int64_t depth) {
    for (int64_t k0 = 0; k0 < depth; k0 += kDepth) {
      TG_UNROLL
      for (int e = 0; e < kTile * kDepth / kThreads; ++e) load(b_strip, b, e, k0, depth);
      block_sync();
      const int steps_left = depth - k0 < kDepth ? static_cast<int>(depth - k0) : kDepth;
      for (int kk = 0; kk < steps_left; ++kk)
        add_products(left + (static_cast<int>(k0) + kk) * k_step, row_step, b_strip + kk * (kTile + 1));
      block_sync();
    }
  }
  // store(row, column, sum) for the elements of this thread, counted within the tile.
  template <class F>
  TG_DEVICE void store(const F& f) const {
    const int ty = static_cast<int>(thread_index()) / 16, tx = static_cast<int>(thread_index()) % 16;
    TG_UNROLL
    for (int i = 0; i < kEach; ++i) {
      TG_UNROLL
      for (int j = 0; j < kEach; ++j) f(ty + 16 * i, tx + 16 * j, sum[i][j]);
    }
  }

 private:
  // Element e of this thread into a strip of the lines from k0 on, zero from `last` on.
  template <class Lines>
  TG_DEVICE static void load(C* strip, const Lines& lines, int e, int64_t k0, int64_t last) {
    const int thread = static_cast<int>(thread_index());
    const int line = line_of(thread, e, lines.along_k), k = depth_of(thread, e, lines.along_k);
    strip[k * (kTile + 1) + line] = k0 + k < last ? lines.at(line, k0 + k) : C(0);
  }
  // Adds the products of one k: of rows at left[row * row_step] and columns at right[column].
  TG_DEVICE void add_products(const C* left, int row_step, const C* right) {
    const int ty = static_cast<int>(thread_index()) / 16, tx = static_cast<int>(thread_index()) % 16;
    C x[kEach], y[kEach];
    TG_UNROLL
    for (int i = 0; i < kEach; ++i) x[i] = left[(ty + 16 * i) * row_step];
    TG_UNROLL
    for (int j = 0; j < kEach; ++j) y[j] = right[tx + 16 * j];
    TG_UNROLL
    for (int i = 0; i < kEach; ++i) {
      TG_UNROLL
      for (int j = 0; j < kEach; ++j) sum[i][j] = math::add(sum[i][j], math::mul(x[i], y[j]));
    }
  }
};

}  // namespace tapegrad::cuda::tiles
