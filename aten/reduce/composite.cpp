// Reductions composed of others; see aten/ops/reduce.toml.
#include <cmath>
#include <limits>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_reduce.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::composite {

Tensor nanmean(const Tensor& input, OptionalInts dim, bool keepdim, std::optional<DType> dtype) {
  TG_CHECK(input.is_floating_point(), Runtime, "nanmean: needs a floating point tensor: got dtype {}", input.dtype());
  return nansum(input, dim, keepdim, dtype) / sum(logical_not(isnan(input)), dim, keepdim);
}

namespace {

// How many elements each result is made of, and a warning where the correction leaves nothing to divide by.
void warn_without_freedom(const Tensor& input, OptionalInts dim, double correction) {
  if (TG_LIKELY(input.numel() > 0 && !dim && static_cast<double>(input.numel()) > correction)) return;
  const uint64_t mask = dim_mask(dim, input.ndim(), "var");
  double elements = 1, results = 1;
  for (int64_t d = 0; d < input.ndim(); ++d) (mask >> d & 1 ? elements : results) *= static_cast<double>(input.size(d));
  if (results > 0 && elements <= correction)
    warn(
        "degrees of freedom is <= 0. Correction should be strictly less than the reduction factor (input numel divided "
        "by output numel).");
}

}  // namespace

Tensor variance(const Tensor& input, OptionalInts dim, bool keepdim, double correction) {
  warn_without_freedom(input, dim, correction);
  if (!input.is_complex()) return _var(input, dim, keepdim, correction);
  return _var(real(input), dim, keepdim, correction) + _var(imag(input), dim, keepdim, correction);
}

// Numbers without spread have the gradient 0, as PyTorch's do: the root, whose slope is infinite there, is not taken.
Tensor deviation(const Tensor& input, OptionalInts dim, bool keepdim, double correction) {
  if (!input.is_complex()) {
    warn_without_freedom(input, dim, correction);
    return _std(input, dim, keepdim, correction);
  }
  const Tensor variance = _variance(input, dim, keepdim, correction);
  const Tensor flat = eq(variance.detach(), 0);
  return where(flat, 0, sqrt(where(flat, 1, variance)));
}

std::tuple<Tensor, Tensor> aminmax(const Tensor& input, std::optional<int64_t> dim, bool keepdim) {
  const int64_t d = dim.value_or(0);
  const OptionalInts dims = dim ? OptionalInts(IntSpan(&d, 1)) : OptionalInts();
  return {amin(input, dims, keepdim), amax(input, dims, keepdim)};
}

Tensor logsumexp(const Tensor& input, IntSpan dim, bool keepdim) {
  const Tensor x = is_differentiable(input.dtype()) ? input : input.to(default_dtype());
  if (x.numel() == 0) return log(sum(exp(x), dim, keepdim));
  // The shift is constant for the tape: its gradient cancels. It is finite, so that beside an infinity the exponentials
  // of others are zero and not infinite or NaN, and so are their gradients.
  const Tensor highest = amax(x.is_complex() ? real(x.detach()) : x.detach(), dim, true);
  const Tensor shift = nan_to_num(highest, std::numeric_limits<double>::quiet_NaN());
  const Tensor shifted = x - shift;  // and its exponentials in the same place, where no tape wants it
  const Tensor result = log(sum(shifted.requires_grad() ? exp(shifted) : exp_(shifted), dim, true)) + shift;
  return keepdim ? result : sum(result, dim, false);
}

Tensor vector_norm(const Tensor& input, const Scalar& ord, OptionalInts dim, bool keepdim, std::optional<DType> dtype) {
  TG_CHECK(
      is_differentiable(dtype.value_or(input.dtype())), Runtime,
      "norm: needs a floating point or complex tensor: got dtype {}\nconvert it first, or give dtype=", input.dtype());
  const double p = ord.to<double>();
  if (input.numel() == 0 && (p < 0 || std::isinf(p))) {
    const uint64_t mask = dim_mask(dim, input.ndim(), "norm");
    for (int64_t d = 0; d < input.ndim(); ++d)
      TG_CHECK((mask >> d & 1) == 0 || input.size(d) > 0, Runtime,
               "linalg.vector_norm cannot compute the norm of order {} of no elements: got shape {}", p,
               format_ints(input.sizes()));
  }
  if (p == 2) return _norm_2(input, dim, keepdim, dtype);
  if (p == 1 || (p != 0 && input.numel() == 1)) return _norm_1(input, dim, keepdim, dtype);
  if (p == 0) return _norm_0(input, dim, keepdim, dtype);
  if (std::isinf(p)) return p > 0 ? _norm_max(input, dim, keepdim, dtype) : _norm_min(input, dim, keepdim, dtype);
  return _norm_p(input, p, dim, keepdim, dtype);
}

}  // namespace tapegrad::composite
