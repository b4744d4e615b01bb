// The inner part of matrix products: a block of 256 threads adds up a tile of 64 x 64 elements from strips of shared
// memory. Where the elements come from is the caller's: a matrix in memory, or one that is never written, as the
// patches of a convolution.
#pragma once

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/launch/device_code.h"

// Before loops over the elements of a thread: they lie in registers only where every index is a constant.
#if defined(__CUDACC__)
#define TG_UNROLL _Pragma("unroll")
#else
#define TG_UNROLL
#endif

namespace tapegrad::cuda::tiles {

constexpr int kTile = 64;   // rows and columns of a block's tile
constexpr int kDepth = 16;  // of a step along k
constexpr int kEach = 4;    // rows and columns of a thread: 16 x 16 threads
constexpr int kThreads = 256;
constexpr int kStrip = kDepth * (kTile + 1);  // elements of shared memory for one operand

inline int64_t tiles_of(int64_t n) { return (n + kTile - 1) / kTile; }

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
    const int thread = static_cast<int>(thread_index());
    const int ty = thread / 16, tx = thread % 16;
    const bool a_along = a.along_k, b_along = b.along_k;
    for (int64_t k0 = first; k0 < last; k0 += kDepth) {
      TG_UNROLL
      for (int e = 0; e < kTile * kDepth / kThreads; ++e) {
        const int i = line_of(thread, e, a_along), ka = depth_of(thread, e, a_along);
        a_strip[ka * (kTile + 1) + i] = k0 + ka < last ? a.at(i, k0 + ka) : C(0);
        const int j = line_of(thread, e, b_along), kb = depth_of(thread, e, b_along);
        b_strip[kb * (kTile + 1) + j] = k0 + kb < last ? b.at(j, k0 + kb) : C(0);
      }
      block_sync();
      TG_UNROLL
      for (int kk = 0; kk < kDepth; ++kk) {
        C x[kEach], y[kEach];
        TG_UNROLL
        for (int i = 0; i < kEach; ++i) x[i] = a_strip[kk * (kTile + 1) + ty + 16 * i];
        TG_UNROLL
        for (int j = 0; j < kEach; ++j) y[j] = b_strip[kk * (kTile + 1) + tx + 16 * j];
        TG_UNROLL
        for (int i = 0; i < kEach; ++i) {
          TG_UNROLL
          for (int j = 0; j < kEach; ++j) sum[i][j] = math::add(sum[i][j], math::mul(x[i], y[j]));
        }
      }
      block_sync();
    }
  }
  // The same with a factor that lies in shared memory as a whole: element (row, k) at left[row * row_step + k *
  // k_step].
  template <class B>
  TG_DEVICE void add_left(const C* left, int row_step, int k_step, C* b_strip, const B& b, int64_t depth) {
    const int thread = static_cast<int>(thread_index());
    const int ty = thread / 16, tx = thread % 16;
    for (int64_t k0 = 0; k0 < depth; k0 += kDepth) {
      TG_UNROLL
      for (int e = 0; e < kTile * kDepth / kThreads; ++e) {
        const int j = line_of(thread, e, b.along_k), kb = depth_of(thread, e, b.along_k);
        b_strip[kb * (kTile + 1) + j] = k0 + kb < depth ? b.at(j, k0 + kb) : C(0);
      }
      block_sync();
      const int steps_left = depth - k0 < kDepth ? static_cast<int>(depth - k0) : kDepth;
      for (int kk = 0; kk < steps_left; ++kk) {
        C x[kEach], y[kEach];
        TG_UNROLL
        for (int i = 0; i < kEach; ++i) x[i] = left[(ty + 16 * i) * row_step + (static_cast<int>(k0) + kk) * k_step];
        TG_UNROLL
        for (int j = 0; j < kEach; ++j) y[j] = b_strip[kk * (kTile + 1) + tx + 16 * j];
        TG_UNROLL
        for (int i = 0; i < kEach; ++i) {
          TG_UNROLL
          for (int j = 0; j < kEach; ++j) sum[i][j] = math::add(sum[i][j], math::mul(x[i], y[j]));
        }
      }
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
};

}  // namespace tapegrad::cuda::tiles
