#include "tapegrad/cuda/linalg/gemm.h"

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/linalg/product_library.h"
#include "tapegrad/cuda/linalg/tiles.h"

namespace tapegrad::cuda {
namespace {

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
struct Store {
  using C = compute_t<T>;
  T* c;
  int64_t rows, columns, n;
  C alpha, beta;
  TG_DEVICE void operator()(int row, int column, const C& sum) const {
    if (row >= rows || column >= columns) return;
    T& to = c[row * n + column];
    C value = math::mul(alpha, sum);
    if (!(beta == C(0))) value = math::add(value, math::mul(beta, steps::widen<T>(to)));
    to = steps::narrow<T>(value);
  }
};

template <class T>
TG_KERNEL void gemm_kernel(GemmArgs<T> args) {
  using C = compute_t<T>;
  TG_SHARED(C, a_strip, tiles::kStrip);
  TG_SHARED(C, b_strip, tiles::kStrip);
  const int64_t tiles_n = (args.n + tiles::kTile - 1) / tiles::kTile;
  const int64_t row = block_index() / tiles_n * tiles::kTile, column = block_index() % tiles_n * tiles::kTile;
  for (int64_t batch = block_row(); batch < args.batch; batch += grid_rows()) {
    const tiles::MatrixLines<T> a{args.a + batch * args.a_batch + row * args.a_row, args.a_row, args.a_col,
                                  args.m - row, args.a_col == 1};
    const tiles::MatrixLines<T> b{args.b + batch * args.b_batch + column * args.b_col, args.b_col, args.b_row,
                                  args.n - column, args.b_col != 1};
    tiles::Sums<C> sums;
    sums.add(a_strip, b_strip, a, b, 0, args.k);
    sums.store(Store<T>{args.c + (batch * args.m + row) * args.n + column, args.m - row, args.n - column, args.n,
                        args.alpha, args.beta});
  }
}

}  // namespace

void gemm(const Stream& stream, DType dtype, int64_t batch, int64_t m, int64_t n, int64_t k, const Scalar& alpha,
          const Matrix& a, const Matrix& b, const Scalar& beta, void* c) {
  if (m == 0 || n == 0 || batch == 0) return;
  if (library_product(stream, {dtype, batch, m, n, k, alpha, a, b, beta, c})) return;
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
    launch_block(stream, &gemm_kernel<T>,
                 Grid(tiles::tiles_of(m) * tiles::tiles_of(n), std::min<int64_t>(batch, 65535)), tiles::kThreads, 0,
                 args);
  });
}

}  // namespace tapegrad::cuda
