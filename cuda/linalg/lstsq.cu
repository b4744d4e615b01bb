// Least squares: by QR for matrices of full rank (gels), else by singular values, of which those below rcond times the
// largest count as zero (gelsd, gelss, and gelsy, whose rank and solution are the same).
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_decompose.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_solve.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/linalg/spectral.h"

namespace tapegrad::cuda {
namespace {

// The info of each matrix of R factors: infinities and NaN in A, or the first zero on the diagonal.
template <class T>
TG_KERNEL void full_rank_kernel(MatrixBatch<T> a, MatrixBatch<T> r, int* infos) {
  TG_SHARED(int, found, kWarp);
  for (int64_t m = block_index(); m < a.count; m += grid_size()) {
    const T* from = a[m];
    int bad = 0;
    each_element(0, a.rows, 0, a.cols,
                 [&](int64_t i, int64_t j) { bad |= !math::isfinite(from[i * a.row + j * a.col]); });
    bad = block_reduce(bad, Largest(), found);
    block_sync();
    if (thread_index() != 0) continue;
    int info = bad != 0 ? kNotFiniteInfo : 0;
    for (int64_t j = 0; info == 0 && j < r.cols; ++j)
      if (r[m][j * (r.row + r.col)] == T(0)) info = static_cast<int>(j + 1);
    infos[m] = info;
  }
}

void by_qr(const Tensor& A, const Tensor& B, const Tensor& solution) {
  const bool tall = A.size(-2) >= A.size(-1);
  const auto [Q, R] = raw::linalg_qr(tall ? A : raw::adjoint(A), "reduced");
  const Tensor info = empty_tensor(batch_of(A), DType::int32, A.device());
  {
    const Work work(A.device(), {&A, &R, &info});
    dispatch_lapack(A.dtype(), [&]<class T>() {
      const MatrixBatch<T> a(A, 2);
      launch_matrices(work, &full_rank_kernel<T>, a.count, std::max(a.rows, a.cols), a, MatrixBatch<T>(R, 2),
                      target_of<int>(info));
    });
  }
  const Tensor here = raw::to(info, std::nullopt, Device());
  check_infos("linalg.lstsq", raw::to(raw::eq(here, kNotFiniteInfo), DType::int32),
              "the matrix has infinite elements or NaN");
  check_infos("linalg.lstsq", here, "the matrix does not have full rank: diagonal element {} of its factor R is zero");
  raw::copy_(solution, tall ? raw::_solve_triangular(R, raw::matmul(raw::adjoint(Q), B), true, false)
                            : raw::matmul(Q, raw::_solve_triangular(raw::adjoint(R), B, false, false)));
}

}  // namespace

void lstsq_cuda(const Tensor& A, const Tensor& B, double rcond, std::string_view driver, const Tensor& solution,
                const Tensor& rank, const Tensor& singular_values) {
  const bool plain = driver == "gels", with_values = driver == "gelsd" || driver == "gelss";
  if (std::min(A.size(-1), A.size(-2)) == 0 || B.size(-1) == 0 || solution.numel() == 0) {
    raw::zero_(solution);
    if (!plain) raw::zero_(rank);
    if (with_values) raw::zero_(singular_values);
    return;
  }
  if (plain) return by_qr(A, B, solution);
  const int64_t k = std::min(A.size(-1), A.size(-2));
  DimVector sizes(batch_of(A));
  sizes.push_back(k);
  const Tensor u = empty_tensor(columns_spec(batch_of(A), A.size(-2), k, A.dtype(), A.device()));
  const Tensor vh = empty_tensor(columns_spec(batch_of(A), k, A.size(-1), A.dtype(), A.device()));
  const Tensor s = empty_tensor(sizes, to_real(A.dtype()), A.device());
  decompose_singular("linalg.lstsq", A, &u, s, &vh);
  const double bound =
      rcond < 0 ? (to_real(A.dtype()) == DType::float32 ? 1.1920928955078125e-07 : 2.220446049250313e-16) : rcond;
  const Tensor keep = raw::gt(s, raw::mul(raw::narrow(s, -1, 0, 1), bound));
  const Tensor inverse = raw::where(keep, raw::reciprocal(s), raw::zeros_like(s));
  const Tensor parts = raw::mul(raw::matmul(raw::adjoint(u), B), raw::unsqueeze(inverse, -1));
  raw::copy_(solution, raw::matmul(raw::adjoint(vh), parts));
  raw::copy_(rank, raw::sum(keep, IntSpan{-1}));
  if (with_values) raw::copy_(singular_values, s);
}

}  // namespace tapegrad::cuda
