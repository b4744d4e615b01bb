// Quantiles, from sorted rows.

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_sort.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_sort.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::composite {
namespace {

// Ranks among n sorted elements of which NaN are last; the interpolations are numpy's.
Tensor quantile_of(const Tensor& input, const Tensor& q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation, bool ignore_nan, const char* op) {
  TG_CHECK(input.dtype() == DType::float32 || input.dtype() == DType::float64, Runtime,
           "{}: expected a float32 or float64 tensor: got {}", op, input.dtype());
  TG_CHECK(input.numel() > 0, Runtime, "{}() input tensor must be non-empty: got shape {}", op,
           format_ints(input.sizes()));
  TG_CHECK(q.ndim() <= 1, Runtime, "{}: q has at most one dimension: got shape {}", op, format_ints(q.sizes()));
  TG_CHECK(q.is_wrapped_number() || q.dtype() == input.dtype(), Runtime,
           "{}: q and the input have one dtype: got {} and {}", op, q.dtype(), input.dtype());
  const bool linear = interpolation == "linear", lower = interpolation == "lower", higher = interpolation == "higher",
             midpoint = interpolation == "midpoint", nearest = interpolation == "nearest";
  TG_CHECK(linear || lower || higher || midpoint || nearest, Runtime,
           "{}: interpolation is linear, lower, higher, midpoint or nearest: got '{}'", op, interpolation);
  if (!q.is_meta() && !q.is_batched()) {
    NoGradGuard guard;
    TG_CHECK(logical_and(ge(q, 0), le(q, 1)).all().item<bool>(), Value, "{}: q lies in [0, 1]", op);
  }
  const Tensor wanted =
      q.is_wrapped_number() ? full(IntSpan({1}), q.item(), input.dtype(), input.device()) : reshape(q, IntSpan({-1}));
  const int64_t d = wrap_dim(dim.value_or(0), input.ndim(), op);
  const Tensor rows =
      dim && input.ndim() > 0 ? movedim(input, IntSpan({d}), IntSpan({-1})) : reshape(input, IntSpan({-1}));
  const int64_t n = rows.size(-1);
  TG_CHECK(n > 0, Runtime, "{}: Expected reduction dim {} to have non-zero size: got shape {}", op, d,
           format_ints(input.sizes()));

  const Tensor sorted = std::get<0>(sort(rows, -1));
  const Tensor nan = isnan(sorted);
  Tensor ranks;
  if (ignore_nan) {
    const Tensor last = to(sum(logical_not(nan), IntSpan({-1}), true) - 1, input.dtype());
    ranks = wanted * clamp(last, Scalar(0));
  } else {
    ranks = where(any(nan, IntSpan({-1}), true), static_cast<double>(n - 1), wanted * static_cast<double>(n - 1));
  }
  if (lower) ranks = floor(ranks);
  if (higher) ranks = ceil(ranks);
  if (nearest) ranks = round(ranks);
  const Tensor below = floor(ranks);
  Tensor result = gather(sorted, -1, to(below, DType::int64));
  if (linear || midpoint) {
    const Tensor above = gather(sorted, -1, to(ceil(ranks), DType::int64));
    result =
        midpoint ? lerp(result, above, 0.5 * to(ne(ranks, below), input.dtype())) : lerp(result, above, ranks - below);
  }
  // result: [rest..., quantiles]
  if (keepdim) {
    if (!dim) {
      DimVector sizes(static_cast<size_t>(input.ndim()), 1);
      sizes.push_back(result.size(-1));
      result = reshape(result, sizes);
    } else if (input.ndim() > 0) {
      result = unsqueeze(result, d);
    }
  }
  return q.ndim() == 0 ? squeeze(result, IntSpan({-1})) : movedim(result, IntSpan({-1}), IntSpan({0}));
}

}  // namespace

Tensor quantile(const Tensor& input, const Operand& q, std::optional<int64_t> dim, bool keepdim,
                std::string_view interpolation) {
  return quantile_of(input, q, dim, keepdim, interpolation, false, "quantile");
}
Tensor nanquantile(const Tensor& input, const Operand& q, std::optional<int64_t> dim, bool keepdim,
                   std::string_view interpolation) {
  return quantile_of(input, q, dim, keepdim, interpolation, true, "nanquantile");
}

}  // namespace tapegrad::composite
