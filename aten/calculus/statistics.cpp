// Covariances, histograms, combinations and distances.
#include <cmath>
#include <limits>

#include "tapegrad/aten/functions.h"
#include "tapegrad/aten/kernels_calculus.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::composite {

namespace {

void check_weights(const Tensor& w, const Tensor& x, bool whole, const char* name) {
  TG_CHECK(w.ndim() <= 1, Runtime, "cov: expected {} to be a vector: got sizes {}", name, format_ints(w.sizes()));
  TG_CHECK(whole ? is_integral(w.dtype()) : w.is_floating_point(), Runtime, "cov: expected {} to be {}: got {}", name,
           whole ? "integers" : "floating", w.dtype());
  TG_CHECK(w.numel() == x.size(1), Runtime, "cov: expected {} {} for as many observations: got {}", x.size(1), name,
           w.numel());
  if (w.is_meta() || w.is_batched()) return;
  NoGradGuard guard;
  TG_CHECK(!tapegrad::any(lt(w, 0)).item<bool>(), Runtime, "cov: {} must not be negative", name);
}

// Which bin of sorted edges each value falls in, and whether it falls in any. The last bin has its upper edge.
struct Binned {
  Tensor place, inside;
};
Binned bin_of(const Tensor& values, const Tensor& edges) {
  const int64_t bins = edges.size(0) - 1;
  const Tensor dense = contiguous(values);
  const Tensor above = searchsorted(edges, dense, false, true) - 1;
  const Tensor last = eq(dense, select(edges, 0, bins));
  const Tensor place = where(last, bins - 1, above);
  return {clamp(place, Scalar(0), Scalar(bins - 1)),
          logical_and(logical_and(ge(place, 0), lt(place, bins)), logical_not(isnan(dense)))};
}

void check_histogram(const Tensor& input, const Tensor& weight, const char* op) {
  TG_CHECK(is_half(input.dtype()) || input.dtype() == DType::float32 || input.dtype() == DType::float64, Runtime,
           "{}: not implemented for {}: expected a tensor of real floating numbers", op, input.dtype());
  TG_CHECK(!weight.defined() || weight.dtype() == input.dtype(), Runtime,
           "{}: expected weights of the input's dtype {}: got {}", op, input.dtype(), weight.dtype());
}
void check_edges(const Tensor& edges, DType dtype, const char* op) {
  TG_CHECK(edges.ndim() == 1 && edges.numel() >= 2, Runtime, "{}: expected a vector of at least 2 edges: got sizes {}",
           op, format_ints(edges.sizes()));
  TG_CHECK(edges.dtype() == dtype, Runtime, "{}: expected edges of the input's dtype {}: got {}", op, dtype,
           edges.dtype());
}

// values: [N, D] points; the counts have a dimension per coordinate.
Tensor count_points(const Tensor& points, TensorSpan edges, const Tensor& weight, bool density) {
  if (is_half(points.dtype())) {  // which would stop counting at 2^8 or 2^11
    std::vector<Tensor> wide;
    for (const Tensor& e : edges) wide.push_back(to(e, DType::float32));
    const Tensor amounts = weight.defined() ? to(weight, DType::float32) : weight;
    return to(count_points(to(points, DType::float32), wide, amounts, density), points.dtype());
  }
  DimVector sizes;
  Tensor flat, inside;
  for (size_t k = 0; k < edges.size(); ++k) {
    const int64_t bins = edges[k].size(0) - 1;
    const Binned b = bin_of(select(points, 1, static_cast<int64_t>(k)), edges[k]);
    flat = flat.defined() ? flat * bins + b.place : b.place;
    inside = inside.defined() ? logical_and(inside, b.inside) : b.inside;
    sizes.push_back(bins);
  }
  const int64_t cells = checked_numel(sizes, "histogram");
  Tensor amounts = to(inside, points.dtype());
  if (weight.defined()) amounts = where(inside, weight, 0);
  Tensor hist = zeros(IntSpan({cells}), points.dtype(), points.device());
  index_add_(hist, 0, flat, amounts);
  hist = reshape(hist, sizes);
  if (!density) return hist;
  hist = hist / sum(hist);
  for (size_t k = 0; k < edges.size(); ++k) {
    DimVector wide(sizes.size(), 1);
    wide[k] = sizes[k];
    hist = hist / reshape(tapegrad::diff(edges[k]), wide);
  }
  return hist;
}

std::tuple<Tensor, Tensor> histogram_of(const Tensor& input, const Tensor& edges, const Tensor& weight, bool density) {
  TG_CHECK(!weight.defined() || weight.sizes() == input.sizes(), Runtime,
           "histogram: input and weight differ in size: {} and {}", format_ints(input.sizes()),
           weight.defined() ? format_ints(weight.sizes()) : "");
  const Tensor points = reshape(input, IntSpan({-1, 1}));
  const Tensor list[] = {contiguous(edges)};
  const Tensor hist = count_points(points, list, weight.defined() ? reshape(weight, IntSpan({-1})) : weight, density);
  return {hist, clone(to(edges, input.dtype()))};
}

// Rows of places: the choices of r out of n in lexicographic order.
Tensor choices(int64_t n, int64_t r, bool repeat) {
  double many = 1;
  for (int64_t i = 0; i < r && many > 0; ++i) {
    many = many * static_cast<double>(repeat ? n + i : n - i) / static_cast<double>(i + 1);
    TG_CHECK(many * static_cast<double>(r) < 1e15, Runtime, "combinations: too many: {} of {}", r, n);
  }
  const int64_t rows = many > 0 ? static_cast<int64_t>(std::llround(many)) : 0;
  Tensor result = empty_tensor({rows, r}, DType::int64);
  if (rows == 0) return result;
  int64_t* to = result.data<int64_t>();
  const Tensor scratch = empty_tensor({r}, DType::int64);
  int64_t* now = scratch.data<int64_t>();
  for (int64_t i = 0; i < r; ++i) now[i] = repeat ? 0 : i;
  for (int64_t row = 0; row < rows; ++row) {
    if (row % 65536 == 65535) check_interrupt();
    std::copy(now, now + r, to + row * r);
    int64_t i = r - 1;
    while (i >= 0 && now[i] == (repeat ? n - 1 : n - r + i)) --i;
    if (i < 0) break;
    ++now[i];
    for (int64_t k = i + 1; k < r; ++k) now[k] = repeat ? now[i] : now[k - 1] + 1;
  }
  return result;
}

}  // namespace

Tensor cov(const Tensor& input, int64_t correction, const Tensor& fweights, const Tensor& aweights) {
  TG_CHECK(input.ndim() <= 2, Runtime, "cov: expected at most 2 dimensions: got sizes {}", format_ints(input.sizes()));
  TG_CHECK(input.dtype() != DType::bool_, Runtime, "cov: not implemented for dtype bool");
  Tensor x = is_differentiable(input.dtype()) ? input : to(input, default_dtype());
  if (x.ndim() < 2) x = reshape(x, IntSpan({1, -1}));
  const int64_t n = x.size(1);
  if (fweights.defined()) check_weights(fweights, x, true, "fweights");
  if (aweights.defined()) check_weights(aweights, x, false, "aweights");
  Tensor w = fweights.defined() ? reshape(fweights, IntSpan({-1})) : Tensor();
  if (aweights.defined()) w = w.defined() ? w * reshape(aweights, IntSpan({-1})) : reshape(aweights, IntSpan({-1}));
  Tensor total, average;
  if (w.defined()) {
    total = sum(w);
    average = sum(x * w, IntSpan({1})) / total;
  } else {
    average = sum(x, IntSpan({1})) / static_cast<double>(n);
  }
  Tensor centred = x - unsqueeze(average, 1);
  const Tensor c = mm(centred, conj(transpose(w.defined() ? centred * w : centred, 0, 1)));
  Tensor result;
  if (!w.defined()) {
    if (n <= correction)
      warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of observations.");
    result = c / std::max(static_cast<double>(n) - static_cast<double>(correction), 0.0);
  } else {
    Tensor divisor = total;
    if (correction != 0)
      divisor = aweights.defined() ? total - sum(w * reshape(aweights, IntSpan({-1}))) * correction / total
                                   : total - correction;
    result = c / clamp_min(divisor, 0);
  }
  return squeeze(result);
}

Tensor corrcoef(const Tensor& input) {
  TG_CHECK(input.ndim() <= 2, Runtime, "corrcoef: expected at most 2 dimensions: got sizes {}",
           format_ints(input.sizes()));
  const Tensor c = tapegrad::cov(input);
  if (c.ndim() == 0) return c / c;
  const Tensor variance = diag(c);
  const Tensor deviation = sqrt(variance.is_complex() ? tapegrad::real(variance) : variance);
  const Tensor r = c / unsqueeze(deviation, 1) / unsqueeze(deviation, 0);
  if (!r.is_complex()) return clamp(r, Scalar(-1), Scalar(1));
  return view_as_complex(contiguous(clamp(view_as_real(r), Scalar(-1), Scalar(1))));
}

std::tuple<Tensor, Tensor> histogram_edges(const Tensor& input, const Tensor& bins, const Tensor& weight,
                                           bool density) {
  NoGradGuard guard;
  check_histogram(input, weight, "histogram");
  check_edges(bins, input.dtype(), "histogram");
  return histogram_of(input, bins, weight, density);
}

std::tuple<Tensor, Tensor> histogram_count(const Tensor& input, int64_t bins,
                                           const std::optional<std::vector<double>>& range, const Tensor& weight,
                                           bool density) {
  NoGradGuard guard;
  check_histogram(input, weight, "histogram");
  TG_CHECK(bins > 0, Runtime, "histogram: expected at least one bin: got {}", bins);
  TG_CHECK(bins < std::numeric_limits<int64_t>::max(), OutOfMemory, "histogram: there is no memory for {} bins", bins);
  double low = 0, high = 1;
  if (range) {
    TG_CHECK(range->size() == 2, Runtime, "histogram: range has a lower and an upper end: got {} numbers",
             range->size());
    low = (*range)[0], high = (*range)[1];
  } else if (input.numel() > 0) {
    low = min(input).item<double>(), high = max(input).item<double>();
  }
  TG_CHECK(std::isfinite(low) && std::isfinite(high) && low <= high, Runtime,
           "histogram: the range must be finite and rising: got [{}, {}]", low, high);
  if (low == high) low -= 0.5, high += 0.5;
  const Tensor edges = linspace(low, high, bins + 1, compute_dtype(input.dtype()), input.device());
  return histogram_of(input, edges, weight, density);
}

Tensor histogramdd(const Tensor& input, TensorSpan edges, const Tensor& weight, bool density) {
  NoGradGuard guard;
  check_histogram(input, weight, "histogramdd");
  TG_CHECK(input.ndim() >= 1 && static_cast<int64_t>(edges.size()) == input.size(-1), Runtime,
           "histogramdd: expected edges for each of the coordinates: got {} for sizes {}", edges.size(),
           format_ints(input.sizes()));
  std::vector<Tensor> dense;
  for (const Tensor& e : edges) {
    check_edges(e, input.dtype(), "histogramdd");
    dense.push_back(contiguous(e));
  }
  TG_CHECK(!dense.empty(), Runtime, "histogramdd: expected at least one coordinate: got sizes {}",
           format_ints(input.sizes()));
  const Tensor points = reshape(input, IntSpan({-1, input.size(-1)}));
  TG_CHECK(!weight.defined() || weight.numel() == points.size(0), Runtime,
           "histogramdd: expected {} weights for as many points: got {}", points.size(0),
           weight.defined() ? weight.numel() : 0);
  return count_points(points, dense, weight.defined() ? reshape(weight, IntSpan({-1})) : weight, density);
}

Tensor combinations(const Tensor& input, int64_t r, bool with_replacement) {
  const int64_t n = input.size(0);
  if (r == 0) return empty_tensor({0}, input.dtype(), input.device());
  const Tensor places = to(choices(n, r, with_replacement), DType::int64, input.device());
  return reshape(index_select(input, 0, reshape(places, IntSpan({-1}))), places.sizes());
}

Tensor pdist(const Tensor& input, double p) {
  TG_CHECK(input.ndim() == 2, Runtime, "pdist: expected a matrix: got sizes {}", format_ints(input.sizes()));
  TG_CHECK(input.is_floating_point(), Runtime, "pdist: expected a floating tensor: got {}", input.dtype());
  TG_CHECK(p >= 0, Runtime, "pdist: p must not be negative: got {}", p);
  const int64_t n = input.size(0);
  const Tensor distances = cdist(input, input, p, "donot_use_mm_for_euclid_dist");
  const Tensor pairs = triu_indices(n, n, 1, DType::int64, input.device());
  const Tensor places = add(mul(select(pairs, 0, 0), n), select(pairs, 0, 1));
  return index_select(reshape(distances, IntSpan({n * n})), 0, places);
}

Tensor renorm(const Tensor& input, const Scalar& p, int64_t dim, const Scalar& maxnorm) {
  TG_CHECK(input.ndim() > 1, Runtime, "renorm: expected at least 2 dimensions: got sizes {}",
           format_ints(input.sizes()));
  TG_CHECK(!p.is_complex() && p.to<double>() > 0, Runtime, "renorm: p must be positive: got {}", to_string(p));
  TG_CHECK(!maxnorm.is_complex() && maxnorm.to<double>() >= 0, Runtime, "renorm: maxnorm must not be negative: got {}",
           to_string(maxnorm));
  const int64_t d = wrap_dim(dim, input.ndim(), "renorm");
  if (std::isinf(maxnorm.to<double>())) return mul(input, 1);  // nothing is too long
  DimVector others;
  for (int64_t k = 0; k < input.ndim(); ++k)
    if (k != d) others.push_back(k);
  const Tensor norms = vector_norm(input, p, OptionalInts(IntSpan(others)), true);
  const Tensor scale = where(gt(norms, maxnorm), Operand(maxnorm) / (norms + 1e-7), 1.0);
  return input * scale;
}

}  // namespace tapegrad::composite
