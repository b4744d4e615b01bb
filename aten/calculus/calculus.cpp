// Differences and integrals along a dimension.
#include "tapegrad/aten/functions_calculus.h"
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_scan.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_calculus.h"

namespace tapegrad::composite {

namespace {

// Elements [start, end) of one dimension; negative numbers count from the end.
Tensor part(const Tensor& t, int64_t dim, int64_t start, std::optional<int64_t> end = {}) {
  return _slice(t, dim, start, end);
}

Tensor joined(const Tensor& input, int64_t dim, const Tensor& prepend, const Tensor& append) {
  if (!prepend.defined() && !append.defined()) return input;
  std::vector<Tensor> parts;
  if (prepend.defined()) parts.push_back(prepend);
  parts.push_back(input);
  if (append.defined()) parts.push_back(append);
  const int64_t wrapped = wrap_dim(dim, input.ndim(), "diff");
  for (const Tensor& t : parts)
    TG_CHECK(t.ndim() == input.ndim(), Runtime,
             "diff expects prepend or append to be the same dimension as input: got sizes {} and {}",
             format_ints(input.sizes()), format_ints(t.sizes()));
  for (const Tensor& t : parts)
    for (int64_t d = 0; d < input.ndim(); ++d)
      TG_CHECK(d == wrapped || t.size(d) == input.size(d), Runtime,
               "diff expects the shape of tensor to prepend or append to match that of input except along the "
               "differencing dimension: got sizes {} and {}",
               format_ints(input.sizes()), format_ints(t.sizes()));
  return cat(parts, dim);
}

// A vector laid along dimension `dim` of a tensor with `ndim` dimensions.
Tensor along(const Tensor& vector, int64_t dim, int64_t ndim) {
  DimVector sizes(static_cast<size_t>(ndim), 1);
  sizes[static_cast<size_t>(dim)] = vector.numel();
  return reshape(vector, sizes);
}

std::vector<int64_t> gradient_dims(const Tensor& input, OptionalInts dim, int64_t edge_order) {
  TG_CHECK(edge_order == 1 || edge_order == 2, Runtime, "gradient: edge_order is 1 or 2: got {}", edge_order);
  TG_CHECK(input.dtype() != DType::bool_ && input.dtype() != DType::uint8, Runtime,
           "gradient: not implemented for dtype {}", input.dtype());
  std::vector<int64_t> dims;
  dim_mask(dim, input.ndim(), "gradient");  // raises on repetition
  if (dim)
    for (int64_t d : *dim) dims.push_back(wrap_dim(d, input.ndim(), "gradient"));
  else
    for (int64_t d = 0; d < input.ndim(); ++d) dims.push_back(d);
  for (int64_t d : dims)
    TG_CHECK(input.ndim() > 0 && input.size(d) > edge_order, Runtime,
             "gradient: expected more than edge_order = {} elements in dimension {}: got sizes {}", edge_order, d,
             format_ints(input.sizes()));
  return dims;
}

Tensor gradient_by_step(const Tensor& x, int64_t d, const Operand& step, int64_t edge_order) {
  const Tensor inner = (part(x, d, 2) - part(x, d, 0, -2)) / step / 2;
  auto at = [&](int64_t i) { return i == -1 ? part(x, d, -1) : part(x, d, i, i + 1); };
  Tensor first, last;
  if (edge_order == 1) {
    first = (at(1) - at(0)) / step;
    last = (at(-1) - at(-2)) / step;
  } else {
    first = (at(0) * -1.5 + at(1) * 2 - at(2) * 0.5) / step;
    last = (at(-1) * 1.5 - at(-2) * 2 + at(-3) * 0.5) / step;
  }
  return cat(std::vector<Tensor>{first, inner, last}, d);
}

// Quadratic interpolation through three neighbours at different distances.
Tensor gradient_by_places(const Tensor& x, int64_t d, const Tensor& places, int64_t edge_order) {
  TG_CHECK(places.ndim() == 1 && places.size(0) == x.size(d), Runtime,
           "gradient: expected a vector of {} places for dimension {}: got sizes {}", x.size(d), d,
           format_ints(places.sizes()));
  const Tensor steps = along(tapegrad::diff(places), d, x.ndim());
  const Tensor left = part(steps, d, 0, -1), right = part(steps, d, 1);
  const Tensor inner = part(x, d, 0, -2) * (-right / (left * (left + right))) +
                       part(x, d, 1, -1) * ((right - left) / (left * right)) +
                       part(x, d, 2) * (left / (right * (left + right)));
  auto at = [&](const Tensor& t, int64_t i) { return i == -1 ? part(t, d, -1) : part(t, d, i, i + 1); };
  Tensor first, last;
  if (edge_order == 1) {
    first = (at(x, 1) - at(x, 0)) / at(steps, 0);
    last = (at(x, -1) - at(x, -2)) / at(steps, -1);
  } else {
    const Tensor a = at(steps, 0), b = at(steps, 1), e = at(steps, -2), f = at(steps, -1);
    first = at(x, 0) * (-(a * 2 + b) / (a * (a + b))) + at(x, 1) * ((a + b) / (a * b)) - at(x, 2) * (a / (b * (a + b)));
    last =
        at(x, -3) * (f / (e * (e + f))) - at(x, -2) * ((e + f) / (e * f)) + at(x, -1) * ((f * 2 + e) / (f * (e + f)));
  }
  return cat(std::vector<Tensor>{first, inner, last}, d);
}

// The distances between neighbours of y along d, of x's shape or to be broadcast to y's.
Tensor distances(const Tensor& y, const Tensor& x, int64_t d, const char* op) {
  if (x.ndim() == 1) {
    TG_CHECK(x.size(0) == y.size(d), Runtime, "{}: expected {} places for dimension {}: got {}", op, y.size(d), d,
             x.size(0));
    return along(tapegrad::diff(x), d, y.ndim());
  }
  Tensor wide = x;
  if (x.ndim() < y.ndim()) {
    DimVector sizes(static_cast<size_t>(y.ndim() - x.ndim()), 1);
    for (int64_t s : x.sizes()) sizes.push_back(s);
    wide = reshape(x, sizes);
  }
  TG_CHECK(d < wide.ndim() && wide.size(d) == y.size(d), Runtime, "{}: sizes {} of x do not fit sizes {} of y", op,
           format_ints(x.sizes()), format_ints(y.sizes()));
  return part(wide, d, 1) - part(wide, d, 0, -1);
}

Tensor neighbours(const Tensor& y, int64_t d) { return part(y, d, 1) + part(y, d, 0, -1); }

void check_integrand(const Tensor& y, const char* op) {
  TG_CHECK(y.dtype() != DType::bool_, Runtime, "{}: not implemented for dtype bool", op);
}

}  // namespace

Tensor diff(const Tensor& input, int64_t n, int64_t dim, const Tensor& prepend, const Tensor& append) {
  TG_CHECK(input.ndim() > 0, Runtime, "diff expects input to be at least one-dimensional");
  const int64_t d = wrap_dim(dim, input.ndim(), "diff");
  if (n == 0) return clone(input);
  Tensor x = joined(input, d, prepend, append);
  for (int64_t i = std::min(n, x.size(d)); i > 0; --i) {
    const int64_t length = std::max<int64_t>(x.size(d) - 1, 0);
    const Tensor after = narrow(x, d, x.size(d) - length, length), before = narrow(x, d, 0, length);
    x = x.dtype() == DType::bool_ ? logical_xor(after, before) : after - before;
  }
  return x.is_same(input) ? clone(x) : x;
}

std::vector<Tensor> gradient_even(const Tensor& input, const std::optional<Scalar>& spacing, OptionalInts dim,
                                  int64_t edge_order) {
  std::vector<Tensor> result;
  for (int64_t d : gradient_dims(input, dim, edge_order))
    result.push_back(gradient_by_step(input, d, spacing.value_or(Scalar(1)), edge_order));
  return result;
}

namespace {

// By `what` is given for each dimension.
template <class Spacing, class F>
std::vector<Tensor> gradient_each(const Tensor& input, const Spacing& spacing, OptionalInts dim, int64_t edge_order,
                                  const char* what, const F& along) {
  const std::vector<int64_t> dims = gradient_dims(input, dim, edge_order);
  TG_CHECK(spacing.size() == dims.size(), Runtime, "gradient expected spacing to be {} {} dimensions: got {}", what,
           dims.size(), spacing.size());
  std::vector<Tensor> result;
  for (size_t i = 0; i < dims.size(); ++i) result.push_back(along(input, dims[i], spacing[i], edge_order));
  return result;
}

}  // namespace

std::vector<Tensor> gradient_steps(const Tensor& input, std::span<const double> spacing, OptionalInts dim,
                                   int64_t edge_order) {
  return gradient_each(input, spacing, dim, edge_order, "one spacing for each of", gradient_by_step);
}

std::vector<Tensor> gradient_places(const Tensor& input, TensorSpan spacing, OptionalInts dim, int64_t edge_order) {
  return gradient_each(input, spacing, dim, edge_order, "the places of", gradient_by_places);
}

Tensor trapezoid(const Tensor& y, const Tensor& x, const std::optional<Scalar>& dx, int64_t dim) {
  check_integrand(y, "trapezoid");
  const int64_t d = wrap_dim(dim, y.ndim(), "trapezoid");
  if (y.ndim() == 0 || y.size(d) == 0) {
    DimVector sizes;
    for (int k = 0; k < y.ndim(); ++k)
      if (k != d) sizes.push_back(y.size(k));
    return zeros(sizes, y.dtype(), y.device());
  }
  if (x.defined()) return sum(distances(y, x, d, "trapezoid") * neighbours(y, d), IntSpan({d})) / 2.0;
  const Tensor ends = select(y, d, 0) + select(y, d, -1);
  return (sum(y, IntSpan({d})) - ends * 0.5) * dx.value_or(Scalar(1));
}

Tensor cumulative_trapezoid(const Tensor& y, const Tensor& x, const std::optional<Scalar>& dx, int64_t dim) {
  check_integrand(y, "cumulative_trapezoid");
  const int64_t d = wrap_dim(dim, y.ndim(), "cumulative_trapezoid");
  TG_CHECK(y.ndim() > 0, Index, "cumulative_trapezoid: expected at least one dimension: got a tensor without");
  if (x.defined()) return cumsum(distances(y, x, d, "cumulative_trapezoid") * neighbours(y, d), d) / 2.0;
  return cumsum(neighbours(y, d), d) * Operand(dx.value_or(Scalar(1))) / 2.0;
}

}  // namespace tapegrad::composite
