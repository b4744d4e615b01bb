// The second derivatives of grid_sample: sampling written out in operators that have derivatives, and the tape through
// them.
#include <array>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/autograd/formulas/layers/upsample.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {
namespace {

struct Sampling {
  bool nearest, cubic, zeros, reflect, corners;

  Sampling(std::string_view mode, std::string_view padding_mode, bool align_corners)
      : nearest(mode == "nearest"),
        cubic(mode == "bicubic"),
        zeros(padding_mode == "zeros"),
        reflect(padding_mode == "reflection"),
        corners(align_corners) {}
};

Tensor constant(const Tensor& t) {
  NoGradGuard guard;
  return clone(t);
}

Tensor inside(const Sampling& m, Tensor p, int64_t size) {
  const auto last = static_cast<double>(size - 1);
  if (m.zeros) return p;
  if (m.reflect) {
    const double low = m.corners ? 0 : -0.5, span = m.corners ? last : static_cast<double>(size);
    if (span == 0) return zeros_like(p);
    p = abs(p - low);
    const Tensor flips = constant(floor(p / span));
    const Tensor extra = p - flips * span;
    p = where(eq(remainder(flips, 2), 0), extra + low, span + low - extra);
  }
  return clamp(p, 0, last);
}

struct Tap {
  Tensor index, outside, weight;  // outside: where it adds nothing
};

Tap tap_at(const Tensor& position, const Tensor& weight, int64_t size) {
  NoGradGuard guard;
  const Tensor bad = logical_or(lt(position, 0), gt(position, size - 1));
  return {to(where(bad, 0, position), DType::int64), bad, weight};
}

// Keys' cubic convolution with a = -0.75, as aten/upsample/taps.h.
std::array<Tensor, 4> cubic_weights(const Tensor& t) {
  constexpr double a = -0.75;
  auto inner = [](const Tensor& x) { return ((a + 2) * x - (a + 3)) * x * x + 1; };
  auto outer = [](const Tensor& x) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; };
  return {outer(t + 1), inner(t), inner(1 - t), outer(2 - t)};
}

std::vector<Tap> taps_of(const Sampling& m, const Tensor& grid, int64_t size) {
  const auto n = static_cast<double>(size);
  Tensor p = m.corners ? (grid + 1) / 2 * (n - 1) : ((grid + 1) * n - 1) / 2;
  if (!m.cubic) p = inside(m, p, size);
  if (m.nearest) {
    const Tensor near = constant(round(p));
    return {tap_at(near, ones_like(near), size)};
  }
  const Tensor first = constant(floor(p)), t = p - first;
  if (!m.cubic) return {tap_at(first, 1 - t, size), tap_at(first + 1, t, size)};
  std::vector<Tap> taps;
  const std::array<Tensor, 4> weights = cubic_weights(t);
  for (int k = 0; k < 4; ++k)
    taps.push_back(tap_at(constant(inside(m, first + (k - 1), size)), weights[static_cast<size_t>(k)], size));
  return taps;
}

// grid_sample in operators with derivatives. input: (N, C, spatial...), grid: (N, positions..., coordinates).
Tensor sample(const Sampling& m, const Tensor& input, const Tensor& grid) {
  const int64_t d = input.ndim() - 2, n = input.size(0), c = input.size(1);
  const Tensor places = flatten(grid, 1, d), planes = flatten(input, 2, -1);
  std::vector<Tap> all;
  for (int64_t k = 0; k < d; ++k) {  // coordinate 0 is the last dimension
    const int64_t size = input.size(d + 1 - k);
    const std::vector<Tap> own = taps_of(m, select(places, 2, k), size);
    if (k == 0) {
      all = own;
      continue;
    }
    int64_t stride = 1;
    for (int64_t j = 0; j < k; ++j) stride *= input.size(d + 1 - j);
    std::vector<Tap> product;
    for (const Tap& a : all)
      for (const Tap& b : own)
        product.push_back({a.index + b.index * stride, logical_or(a.outside, b.outside), a.weight * b.weight});
    all = product;
  }
  Tensor result;
  for (const Tap& tap : all) {
    const Tensor index = expand(unsqueeze(tap.index, 1), IntSpan({n, c, tap.index.size(1)}));
    const Tensor weight = unsqueeze(masked_fill(tap.weight, tap.outside, 0), 1);
    const Tensor part = gather(planes, 2, index) * weight;
    result = result.defined() ? result + part : part;
  }
  DimVector sizes{n, c};
  for (int64_t k = 1; k <= d; ++k) sizes.push_back(grid.size(k));
  return reshape(result, sizes);
}

}  // namespace

std::tuple<Tensor, Tensor, Tensor> grid_sample_double_grad(const Tensor& input_weight, const Tensor& grid_weight,
                                                           const Tensor& output, const Tensor& input,
                                                           const Tensor& grid, std::string_view mode,
                                                           std::string_view padding_mode, bool align_corners) {
  const bool again = grad_enabled();  // a third derivative is wanted
  EnableGradGuard guard;
  auto leaf = [&](const Tensor& t) {
    if (again && t.requires_grad()) return t;
    Tensor own = constant(t);
    own.set_requires_grad(true);
    return own;
  };
  const Tensor leaves[3] = {leaf(output), leaf(input), leaf(grid)};
  const Tensor sampled = sample(Sampling(mode, padding_mode, align_corners), leaves[1], leaves[2]);
  const std::vector<Tensor> gradients =
      autograd::grad(TensorSpan(&sampled, 1), TensorSpan(leaves + 1, 2), TensorSpan(leaves, 1), true, true, true);
  std::vector<Tensor> roots, weights;
  const Tensor given[2] = {input_weight, grid_weight};
  for (size_t k = 0; k < 2; ++k)
    if (gradients[k].defined() && given[k].defined() && gradients[k].requires_grad()) {
      roots.push_back(gradients[k]);
      weights.push_back(given[k]);
    }
  if (roots.empty()) return {zeros_like(output), zeros_like(input), zeros_like(grid)};
  std::vector<Tensor> result = autograd::grad(roots, TensorSpan(leaves, 3), weights, again, again, true);
  for (size_t k = 0; k < 3; ++k)
    if (!result[k].defined()) result[k] = zeros_like(leaves[k]);
  return {result[0], result[1], result[2]};
}

}  // namespace tapegrad
