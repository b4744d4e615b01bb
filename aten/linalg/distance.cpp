// Distances between all pairs of two sets of points. Memory is proportional to the result, not to points times
// coordinates.

#include <cmath>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_linalg.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {

TensorSpec cdist_shape(const Tensor& x1, const Tensor& x2, double) {
  TG_CHECK(x1.ndim() == 3 && x2.ndim() == 3 && x1.size(0) == x2.size(0) && x1.size(2) == x2.size(2), Runtime,
           "cdist: expected batches of points: got shapes {} and {}", format_ints(x1.sizes()), format_ints(x2.sizes()));
  TG_CHECK(x1.is_floating_point() && x1.dtype() == x2.dtype(), Runtime,
           "cdist: expected points of one floating dtype: got {} and {}", x1.dtype(), x2.dtype());
  return {DimVector{x1.size(0), x1.size(1), x2.size(1)}, x1.dtype(), x1.device(), {}};
}

TensorSpec cdist_grad_shape(const Tensor& grad_output, const Tensor& x1, const Tensor& x2, const Tensor& distances,
                            double p) {
  const TensorSpec spec = cdist_shape(x1, x2, p);
  TG_CHECK(grad_output.sizes() == IntSpan(spec.sizes) && distances.sizes() == IntSpan(spec.sizes), Runtime,
           "cdist_grad: gradients and distances of shapes {} and {} where {} is expected",
           format_ints(grad_output.sizes()), format_ints(distances.sizes()), format_ints(spec.sizes));
  TG_CHECK((x1.dtype() == DType::float32 || x1.dtype() == DType::float64) && grad_output.dtype() == x1.dtype() &&
               distances.dtype() == x1.dtype(),
           Runtime, "cdist_grad: expected float32 or float64 throughout: got {}, {} and {}", x1.dtype(),
           grad_output.dtype(), distances.dtype());
  TG_CHECK(p == 1 || p == 2 || std::isinf(p), Runtime, "cdist_grad: p must be 1, 2 or infinity: got {}", p);
  return {DimVector(x2.sizes()), x2.dtype(), x2.device(), {}};
}

namespace composite {

namespace {

constexpr int64_t kManyPoints = 25;  // from here on products are faster; PyTorch's limit, too

// |x - y|^2 = |x|^2 + |y|^2 - 2 x y. What the points have in common is taken off before, since it would cost digits.
Tensor by_products(const Tensor& x1, const Tensor& x2, bool recorded) {
  Tensor centre;  // a constant to the tape: distances do not depend on it
  {
    NoGradGuard guard;
    centre = mean(x2, IntSpan{-2}, true);
  }
  const Tensor a = sub(x1, centre), b = sub(x2, centre);
  const Tensor squares_a = sum(square(a), IntSpan{-1}, true), squares_b = unsqueeze(sum(square(b), IntSpan{-1}), -2);
  Tensor squares = tapegrad::matmul(mul(a, -2), transpose(b, -1, -2));
  if (!recorded) return sqrt_(clamp_min_(add_(add_(squares, squares_a), squares_b), 0));
  squares = add(add(squares, squares_a), squares_b);
  // The gradient at distance zero is zero, not 0 times infinity.
  const Tensor apart = gt(squares, 0);
  return where(apart, sqrt(where(apart, squares, 1)), 0);
}

// The points with the batch dimensions of both, put together into one.
Tensor as_batch(const Tensor& x, IntSpan batch) {
  DimVector wide(batch);
  wide.push_back(x.size(-2));
  wide.push_back(x.size(-1));
  return reshape(expand(x, wide), IntSpan({checked_numel(batch, "cdist"), x.size(-2), x.size(-1)}));
}

}  // namespace

Tensor cdist(const Tensor& x1, const Tensor& x2, double p, std::optional<std::string_view> compute_mode) {
  const std::string_view mode = compute_mode.value_or("use_mm_for_euclid_dist_if_necessary");
  TG_CHECK(mode == "use_mm_for_euclid_dist_if_necessary" || mode == "use_mm_for_euclid_dist" ||
               mode == "donot_use_mm_for_euclid_dist",
           Value, "cdist: unknown compute_mode '{}'", mode);
  TG_CHECK(x1.ndim() >= 2 && x2.ndim() >= 2, Runtime, "cdist: at least 2 dimensions are needed: shapes {} and {}",
           format_ints(x1.sizes()), format_ints(x2.sizes()));
  TG_CHECK(x1.size(-1) == x2.size(-1), Runtime, "cdist: points of {} and {} coordinates: shapes {} and {}", x1.size(-1),
           x2.size(-1), format_ints(x1.sizes()), format_ints(x2.sizes()));
  TG_CHECK(p >= 0, Runtime, "cdist: p must not be negative: got {}", p);
  TG_CHECK(x1.dtype() == x2.dtype(), Runtime, "cdist: expected operands of one dtype: got {} and {}", x1.dtype(),
           x2.dtype());
  const bool many = x1.size(-2) > kManyPoints || x2.size(-2) > kManyPoints;
  const bool products = mode == "use_mm_for_euclid_dist" || (mode == "use_mm_for_euclid_dist_if_necessary" && many);
  if (p == 2 && products && is_floating_point(x1.dtype()) && !x1.is_meta() && x1.numel() > 0 && x2.numel() > 0)
    return by_products(x1, x2, grad_enabled() && (x1.requires_grad() || x2.requires_grad()));
  const DType dtype = promote_types(x1.dtype(), x2.dtype());
  const DimVector batch =
      broadcast_sizes(x1.sizes().first(x1.sizes().size() - 2), x2.sizes().first(x2.sizes().size() - 2), "cdist");
  DimVector sizes(batch);
  sizes.push_back(x1.size(-2));
  sizes.push_back(x2.size(-2));
  return reshape(_cdist(to(as_batch(x1, batch), dtype), to(as_batch(x2, batch), dtype), p), sizes);
}

}  // namespace composite
}  // namespace tapegrad
