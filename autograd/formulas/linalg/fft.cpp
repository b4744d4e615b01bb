#include "tapegrad/autograd/formulas/linalg/fft.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_fft.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad {
namespace {

// The elements of a half transform that stand for two of the whole one times `factor`, the others as they are.
Tensor weigh_pairs(const Tensor& t, int64_t dim, int64_t n, double factor) {
  int64_t bins = t.size(dim), pairs = n - bins;
  if (pairs <= 0) return t;
  DimVector sizes(static_cast<size_t>(t.ndim()), 1);
  sizes[static_cast<size_t>(dim)] = bins;
  Tensor weights = ones(sizes, to_real(t.dtype()), t.device());
  fill_(narrow(weights, dim, 1, pairs), factor);
  return mul(t, weights);
}

}  // namespace

// x[j] has the gradient Re(sum over the k that are there of g[k] exp(2 pi i j k / n)).
Tensor fft_r2c_backward(const Tensor& grad, int64_t n, int64_t dim, double scale, bool onesided) {
  if (!onesided) return real(_fft_c2c(grad, IntSpan{dim}, scale, false));
  return _fft_c2r(weigh_pairs(grad, dim, n, 0.5), dim, n, scale);
}

Tensor fft_c2r_backward(const Tensor& grad, int64_t dim, double scale) {
  return weigh_pairs(_fft_r2c(grad, dim, scale, true), dim, grad.size(dim), 2);
}

}  // namespace tapegrad
