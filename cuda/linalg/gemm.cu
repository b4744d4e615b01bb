#include "tapegrad/cuda/linalg/gemm.h"

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

constexpr int kTile = 64;   // rows and columns of a block's tile
constexpr int kDepth = 16;  // of a step along k
constexpr int kEach = 4;    // rows and columns of a thread: 16 x 16 threads

template <class T>
struct GemmArgs {
  int64_t m, n, k, batch;
  compute_t<T> alpha, beta;
  const T* a;
  const T* b;
  T* c;
  int64_t a_row, a_col, a_batch, b_row, b_col, b_batch;
};

template <class T>
TG_KERNEL void gemm_kernel(GemmArgs<T> args) {
  using C = compute_t<T>;
  TG_SHARED(C, a_tile, kDepth * (kTile + 1));
  TG_SHARED(C, b_tile, kDepth * (kTile + 1));
  const int64_t tiles_n = (args.n + kTile - 1) / kTile;
  const int64_t row0 = block_index() / tiles_n * kTile, col0 = block_index() % tiles_n * kTile;
  const int thread = static_cast<int>(thread_index());
  const int ty = thread / 16, tx = thread % 16;
  // Neighbouring threads load neighbouring elements, whichever way the matrix lies.
  const bool a_by_row = args.a_col == 1, b_by_row = args.b_col == 1;
  for (int64_t batch = block_row(); batch < args.batch; batch += grid_rows()) {
    const T* a = args.a + batch * args.a_batch;
    const T* b = args.b + batch * args.b_batch;
    C sum[kEach][kEach];
    for (int i = 0; i < kEach; ++i)
      for (int j = 0; j < kEach; ++j) sum[i][j] = C(0);
    for (int64_t k0 = 0; k0 < args.k; k0 += kDepth) {
      for (int e = thread; e < kTile * kDepth; e += 256) {
        const int i = a_by_row ? e / kDepth : e % kTile, kk = a_by_row ? e % kDepth : e / kTile;
        const bool inside = row0 + i < args.m && k0 + kk < args.k;
        a_tile[kk * (kTile + 1) + i] =
            inside ? steps::widen<T>(a[(row0 + i) * args.a_row + (k0 + kk) * args.a_col]) : C(0);
        const int j = b_by_row ? e % kTile : e / kDepth, kb = b_by_row ? e / kTile : e % kDepth;
        const bool within = col0 + j < args.n && k0 + kb < args.k;
        b_tile[kb * (kTile + 1) + j] =
            within ? steps::widen<T>(b[(k0 + kb) * args.b_row + (col0 + j) * args.b_col]) : C(0);
      }
      block_sync();
      for (int kk = 0; kk < kDepth; ++kk) {
        C x[kEach], y[kEach];
        for (int i = 0; i < kEach; ++i) x[i] = a_tile[kk * (kTile + 1) + ty + 16 * i];
        for (int j = 0; j < kEach; ++j) y[j] = b_tile[kk * (kTile + 1) + tx + 16 * j];
        for (int i = 0; i < kEach; ++i)
          for (int j = 0; j < kEach; ++j) sum[i][j] = math::add(sum[i][j], math::mul(x[i], y[j]));
      }
      block_sync();
    }
    T* c = args.c + batch * args.m * args.n;
    for (int i = 0; i < kEach; ++i) {
      const int64_t row = row0 + ty + 16 * i;
      if (row >= args.m) continue;
      for (int j = 0; j < kEach; ++j) {
        const int64_t col = col0 + tx + 16 * j;
        if (col >= args.n) continue;
        T& to = c[row * args.n + col];
        C value = math::mul(args.alpha, sum[i][j]);
        if (!(args.beta == C(0))) value = math::add(value, math::mul(args.beta, steps::widen<T>(to)));
        to = steps::narrow<T>(value);
      }
    }
  }
}

}  // namespace

void gemm(const Stream& stream, DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k, const Scalar& alpha,
          const Matrix& a, const Matrix& b, const Scalar& beta, void* c) {
  if (m == 0 || n == 0 || batch == 0) return;
  dispatch_numeric(dtype, [&]<class T>() {
    using C = compute_t<T>;
    const GemmArgs<T> args{m,
                           n,
                           k,
                           batch,
                           alpha.to<C>(),
                           beta.to<C>(),
                           static_cast<const T*>(a.data),
                           static_cast<const T*>(b.data),
                           static_cast<T*>(c),
                           a.row,
                           a.col,
                           a.batch,
                           b.row,
                           b.col,
                           b.batch};
    const int64_t tiles = ((m + kTile - 1) / kTile) * ((n + kTile - 1) / kTile);
    launch_block(stream, &gemm_kernel<T>, Grid(tiles, std::min<int64_t>(batch, 65535)), 256, 0, args);
  });
}

}  // namespace tapegrad::cuda
