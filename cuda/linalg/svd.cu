// Singular values and vectors: by the library if it accepts the matrices, else a block of threads per matrix, by
// rotations of pairs of columns until all are orthogonal (Hestenes 1958), a warp per pair. The left vectors are the Q
// of what the columns have become, so that they are orthonormal for any rank. A matrix with more columns than rows is
// worked on as its adjoint.
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/linalg/block_eigen.h"
#include "tapegrad/cuda/linalg/spectral.h"
#include "tapegrad/cuda/linalg/tournament.h"

namespace tapegrad::cuda {
namespace {

template <class T>
struct SvdArgs {
  MatrixBatch<T> a;
  int64_t rows, cols;  // of what is worked on: rows >= cols
  bool adjoint, with_vectors;
  MatrixBatch<T> left, right;  // results: rows x (cols or rows), and the adjoint of cols x cols; see store
  int64_t left_columns;
  real_t<T>* values;  // dense
  int* infos;
  T* workspace;
  int64_t block_elements;  // of the workspace
};
inline int64_t workspace_elements(int64_t rows, int64_t cols, int64_t left_columns) {
  return 2 * rows * cols + cols * cols + rows * left_columns + 2 * cols;
}

// Rotates columns x and y to be orthogonal; v's take part. Returns whether they were not.
template <class T>
TG_DEVICE bool rotate_pair(T* x, T* y, int64_t rows, T* vx, T* vy, int64_t v_rows, real_t<T> tolerance) {
  using R = real_t<T>;
  R xx = 0, yy = 0;
  T xy(0);
  for (int64_t i = warp_lane(); i < rows; i += kWarp) {
    const T a = x[i], b = y[i];
    xx += real_part(a) * real_part(a) + imag_part(a) * imag_part(a);
    yy += real_part(b) * real_part(b) + imag_part(b) * imag_part(b);
    xy = math::add(xy, math::mul(math::conj(a), b));
  }
  xx = warp_reduce(xx, Sum());
  yy = warp_reduce(yy, Sum());
  xy = warp_reduce(xy, SumOf());
  constexpr R kNothing = std::numeric_limits<R>::min() / std::numeric_limits<R>::epsilon();
  const R size = math::abs(xy);
  // Columns as short as that are zero beside others, of about 1.
  if (!(xx > kNothing && yy > kNothing) || !(size > tolerance * (std::sqrt(xx) * std::sqrt(yy)))) return false;
  // y is turned first, so that the product is real; then by the smaller angle.
  const T turn = times(R(1) / size, math::conj(xy));
  const R zeta = (yy - xx) / (2 * size);
  const R t = std::copysign(R(1), zeta) / (math::magnitude(zeta) + std::sqrt(1 + zeta * zeta));
  const R c = 1 / std::sqrt(1 + t * t), s = c * t;
  const auto rotate = [&](T* a, T* b, int64_t n) {
    for (int64_t i = warp_lane(); i < n; i += kWarp) {
      const T left = a[i], right = math::mul(turn, b[i]);
      a[i] = math::sub(times(c, left), times(s, right));
      b[i] = math::add(times(s, left), times(c, right));
    }
  };
  rotate(x, y, rows);
  if (vx != nullptr) rotate(vx, vy, v_rows);
  return true;
}

template <class T>
TG_KERNEL void svd_kernel(SvdArgs<T> args) {
  using R = real_t<T>;
  constexpr int kSweeps = 40;
  TG_SHARED(R, scratch, kWarp);
  TG_SHARED(int, rotated, 1);
  const int64_t p = args.rows, n = args.cols, warps = block_size() / kWarp;
  const Tournament tournament(n);
  T* const a = args.workspace + block_index() * args.block_elements;
  T *const sorted = a + p * n, *const v = sorted + p * n, *const q = v + n * n, *const tau = q + p * args.left_columns;
  T* const lengths = tau + n;
  for (int64_t m = block_index(); m < args.a.count; m += grid_size()) {
    const T* from = args.a[m];
    const auto read = [&](int64_t i, int64_t j) {
      return args.adjoint ? math::conj(from[j * args.a.row + i * args.a.col]) : from[i * args.a.row + j * args.a.col];
    };
    const R scale = block_load_scaled(a, p, n, read, scratch);
    if (scale == 0) {
      if (thread_index() == 0) args.infos[m] = kNotFiniteInfo;
      continue;
    }
    if (args.with_vectors) each_element(0, n, 0, n, [&](int64_t i, int64_t j) { v[i + j * n] = T(i == j ? 1 : 0); });
    const R tolerance = std::numeric_limits<R>::epsilon() * std::sqrt(static_cast<R>(p));
    int sweep = 0;
    for (bool again = n > 1; again && sweep < kSweeps; ++sweep) {
      if (thread_index() == 0) *rotated = 0;
      block_sync();
      for (int64_t round = 0; round < tournament.rounds(); ++round) {
        for (int64_t i = warp_index(); i < tournament.pairs(); i += warps) {
          int64_t x, y;
          tournament.pair(round, i, x, y);
          if (y >= n) continue;
          T *vx = args.with_vectors ? v + x * n : nullptr, *vy = args.with_vectors ? v + y * n : nullptr;
          if (rotate_pair(a + x * p, a + y * p, p, vx, vy, n, tolerance) && warp_lane() == 0) *rotated = 1;
        }
        block_sync();
      }
      again = *rotated != 0;
      block_sync();
    }
    if (thread_index() == 0) args.infos[m] = sweep == kSweeps ? 1 : 0;
    // Into descending order: the place of each is the number of those before it.
    for (int64_t j = warp_index(); j < n; j += warps) {
      R sum = 0;
      for (int64_t i = warp_lane(); i < p; i += kWarp) {
        const R re = real_part(a[i + j * p]), im = imag_part(a[i + j * p]);
        sum += re * re + im * im;
      }
      sum = warp_reduce(sum, Sum());
      if (warp_lane() == 0) lengths[j] = T(std::sqrt(sum));
    }
    block_sync();
    for (int64_t j = warp_index(); j < n; j += warps) {
      const R mine = real_part(lengths[j]);
      int64_t place = 0;
      for (int64_t i = 0; i < n; ++i) {
        const R length = real_part(lengths[i]);
        place += length > mine || (length == mine && i < j);
      }
      if (warp_lane() == 0) args.values[m * n + place] = mine / scale;
      if (!args.with_vectors) continue;
      for (int64_t i = warp_lane(); i < p; i += kWarp) sorted[i + place * p] = a[i + j * p];
      // Column `place` of the right vectors, as the row of an adjoint, or as it is where all is worked on as one.
      T* to = args.right[m];
      for (int64_t i = warp_lane(); i < n; i += kWarp) {
        if (args.adjoint)
          to[i * args.right.row + place * args.right.col] = v[i + j * n];
        else
          to[place * args.right.row + i * args.right.col] = math::conj(v[i + j * n]);
      }
    }
    block_sync();
    if (!args.with_vectors) continue;
    block_qr(sorted, p, p, n, tau, scratch);
    block_reflections<T>(sorted, p, tau, n, 0, q, p, p, args.left_columns);
    T* to = args.left[m];
    each_element(0, p, 0, args.left_columns, [&](int64_t i, int64_t j) {
      // R's diagonal is real; its sign belongs to the vector.
      const bool negative = j < n && real_part(sorted[j + j * p]) < 0;
      const T x = negative ? math::neg(q[i + j * p]) : q[i + j * p];
      if (args.adjoint)
        to[j * args.left.row + i * args.left.col] = math::conj(x);
      else
        to[i * args.left.row + j * args.left.col] = x;
    });
    block_sync();
  }
}

template <class T>
struct Identity {
  MatrixBatch<T> to;
  TG_DEVICE void operator()(int64_t e) const {
    const int64_t i = e % to.rows, j = e / to.rows % to.cols, m = e / (to.rows * to.cols);
    to[m][i * to.row + j * to.col] = T(i == j ? 1 : 0);
  }
};

}  // namespace

void decompose_singular(const char* op, const Tensor& A, const Tensor* U, const Tensor& S, const Tensor* Vh) {
  const Tensor info = empty_tensor(batch_of(A), DType::int32, A.device());
  {
    const Work work(A.device(), {&A, &S, &info});
    if (U != nullptr) work.use(*U), work.use(*Vh);
    if (S.numel() == 0) {
      if (U == nullptr) return;
      dispatch_lapack(A.dtype(), [&]<class T>() {
        for (const Tensor* t : {U, Vh}) for_elements(work, t->numel(), Identity<T>{MatrixBatch<T>(*t, 2)});
      });
      return;
    }
    if (!library_svd(work, A, U, S, Vh, info)) {
      dispatch_lapack(A.dtype(), [&]<class T>() {
        const MatrixBatch<T> a(A, 2);
        const bool adjoint = a.rows < a.cols, vectors = U != nullptr;
        const int64_t rows = std::max(a.rows, a.cols), cols = std::min(a.rows, a.cols);
        const MatrixBatch<T> u(vectors ? *U : A, 2), vh(vectors ? *Vh : A, 2);
        const int64_t left_columns = !vectors ? 0 : adjoint ? vh.rows : u.cols;
        const int64_t block_elements = workspace_elements(rows, cols, left_columns),
                      blocks = blocks_for(a.count, block_elements);
        const Workspace workspace(static_cast<size_t>(blocks * block_elements) * sizeof(T), work);
        launch_block(work, &svd_kernel<T>, Grid(blocks), cols <= 3 && rows <= 64 ? kWarp : kBlock, 0,
                     SvdArgs<T>{a, rows, cols, adjoint, vectors, adjoint ? vh : u, adjoint ? u : vh, left_columns,
                                target_of<real_t<T>>(S), target_of<int>(info), static_cast<T*>(workspace.data()),
                                block_elements});
      });
    }
  }
  check_convergence(op, info);
}

void svd_cuda(const Tensor& A, bool, const Tensor& U, const Tensor& S, const Tensor& Vh) {
  decompose_singular("linalg.svd", A, &U, S, &Vh);
}
void svdvals_cuda(const Tensor& A, const Tensor& S) { decompose_singular("linalg.svdvals", A, nullptr, S, nullptr); }

}  // namespace tapegrad::cuda
