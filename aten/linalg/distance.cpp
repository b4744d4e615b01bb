// Distances between all pairs of two sets of points, in memory that follows the result, not points times coordinates.
#include <algorithm>

#include "tapegrad/aten/kernels_linalg.h"
#include "tapegrad/c10/modes.h"

namespace tapegrad::composite {

namespace {

constexpr int64_t kBlockElements = 1 << 18;  // of differences at a time: they stay in the cache
constexpr int64_t kManyPoints = 25;          // from here on products are faster; PyTorch's limit, too

Tensor by_differences(const Tensor& x1, const Tensor& x2, double p) {
  return norm(sub(unsqueeze(x1, -2), unsqueeze(x2, -3)), Scalar(p), IntSpan{-1}, false);
}

// As by_differences, a few points of x1 at a time; not recorded on the tape.
Tensor by_blocks(const Tensor& x1, const Tensor& x2, double p) {
  const int64_t n = x1.size(-2), pairs = std::max<int64_t>(1, x2.size(-2) * x1.size(-1));
  const int64_t rows = std::max<int64_t>(1, kBlockElements / pairs);
  if (rows >= n) return by_differences(x1, x2, p);
  std::vector<Tensor> parts;
  for (int64_t i = 0; i < n; i += rows)
    parts.push_back(by_differences(narrow(x1, -2, i, std::min(rows, n - i)), x2, p));
  return cat(parts, -2);
}

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
  const bool recorded = grad_enabled() && (x1.requires_grad() || x2.requires_grad());
  const bool many = x1.size(-2) > kManyPoints || x2.size(-2) > kManyPoints;
  const bool products = mode == "use_mm_for_euclid_dist" || (mode == "use_mm_for_euclid_dist_if_necessary" && many);
  const bool whole =
      !is_floating_point(x1.dtype()) || x1.size(-1) == 0 || x1.is_meta() || x1.numel() == 0 || x2.numel() == 0;
  if (p == 2 && products && !whole) return by_products(x1, x2, recorded);
  return recorded || whole ? by_differences(x1, x2, p) : by_blocks(x1, x2, p);
}

}  // namespace tapegrad::composite
