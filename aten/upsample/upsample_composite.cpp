// The public resampling functions in terms of the kernel, and rearrangements made of views.
#include <cmath>
#include <vector>

#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pool.h"
#include "tapegrad/aten/functions_upsample.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_upsample.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::composite {
namespace {

struct ModeName {
  std::string_view name, kernel;
  int64_t ndim;             // 0: any
  std::string_view smooth;  // the kernel with antialias
};

constexpr ModeName kModes[] = {
    {"nearest", "nearest", 0, ""},  {"nearest-exact", "nearest-exact", 0, ""},  {"area", "", 0, ""},
    {"linear", "linear", 3, ""},    {"bilinear", "linear", 4, "smooth-linear"}, {"bicubic", "cubic", 4, "smooth-cubic"},
    {"trilinear", "linear", 5, ""}, {"lanczos", "lanczos", 4, "lanczos"}};

const ModeName& find_mode(std::string_view mode, const Tensor& input) {
  for (const ModeName& m : kModes)
    if (m.name == mode) {
      TG_CHECK(m.ndim == 0 || m.ndim == input.ndim(), NotImplemented,
               "interpolate: mode '{}' is for inputs of {} dimensions: got shape {}", mode, m.ndim,
               format_ints(input.sizes()));
      return m;
    }
  TG_THROW(
      NotImplemented,
      "interpolate: mode must be nearest, nearest-exact, linear, bilinear, bicubic, trilinear, lanczos or area: got "
      "'{}'",
      mode);
}

// `n` values from one or n.
template <class V, class Given>
std::vector<V> repeated(const char* name, Given given, size_t n) {
  TG_CHECK(given.size() == n || given.size() == 1, Value,
           "interpolate: {} must have {} elements, one for each spatial dimension: got {}", name, n, given.size());
  std::vector<V> values(given.begin(), given.end());
  values.resize(n, values[0]);
  return values;
}

// The last `kept` sizes, the ones before them as one size (1 where there are none).
DimVector folded(const Tensor& t, int64_t kept) {
  DimVector sizes;
  int64_t batch = 1;
  for (int64_t d = 0; d + kept < t.ndim(); ++d) batch *= t.size(d);
  sizes.push_back(batch);
  for (int64_t d = t.ndim() - kept; d < t.ndim(); ++d) sizes.push_back(t.size(d));
  return sizes;
}

DimVector unfolded(const Tensor& t, int64_t c, int64_t h, int64_t w) {
  DimVector sizes(IntSpan(t.sizes().data(), static_cast<size_t>(t.ndim() - 3)));
  for (int64_t s : {c, h, w}) sizes.push_back(s);
  return sizes;
}

}  // namespace

Tensor interpolate(const Tensor& input, OptionalInts size, const std::optional<std::vector<double>>& scale_factor,
                   std::string_view mode, std::optional<bool> align_corners, std::optional<bool> recompute_scale_factor,
                   bool antialias) {
  bool has_corners = mode != "nearest" && mode != "nearest-exact" && mode != "area";
  TG_CHECK(has_corners || !align_corners, Value,
           "interpolate: align_corners goes with linear, bilinear, bicubic and trilinear: got mode '{}'", mode);
  TG_CHECK(input.ndim() >= 3 && input.ndim() <= 5, NotImplemented,
           "interpolate: expected input of 3, 4 or 5 dimensions (N, C, spatial...): got shape {}",
           format_ints(input.sizes()));
  TG_CHECK(!size || !scale_factor, Value, "interpolate: only one of size and scale_factor may be given");
  TG_CHECK(size || scale_factor, Value, "interpolate: either size or scale_factor must be given");
  bool recompute = recompute_scale_factor.value_or(false);
  TG_CHECK(!recompute || !size, Value, "interpolate: recompute_scale_factor does not go with size");
  TG_CHECK(
      !antialias || (input.ndim() == 4 && (mode == "bilinear" || mode == "bicubic" || mode == "lanczos")), Value,
      "interpolate: antialias goes with bilinear, bicubic and lanczos and inputs of 4 dimensions: got mode '{}' and "
      "shape {}",
      mode, format_ints(input.sizes()));
  const ModeName& m = find_mode(mode, input);
  TG_CHECK(mode != "lanczos" || (antialias && !align_corners.value_or(false)), Value,
           "interpolate: mode 'lanczos' needs antialias=True and align_corners=False");
  size_t n = static_cast<size_t>(input.ndim() - 2);
  DimVector sizes;
  std::optional<std::vector<double>> scales;
  if (size) {
    for (int64_t s : repeated<int64_t>("size", *size, n)) sizes.push_back(s);
  } else {
    std::vector<double> factors = repeated<double>("scale_factor", std::span<const double>(*scale_factor), n);
    for (size_t d = 0; d < n; ++d)
      sizes.push_back(
          static_cast<int64_t>(std::floor(static_cast<double>(input.size(static_cast<int64_t>(d) + 2)) * factors[d])));
    if (!recompute) scales = std::move(factors);
  }
  // Images: where the scale was rounded to a size that keeps the elements, or repeats each once, that is what PyTorch
  // does.
  for (size_t d = 0; scales && input.ndim() == 4 && d < n; ++d) {
    const int64_t in = input.size(static_cast<int64_t>(d) + 2);
    const bool kept = sizes[d] == in && (antialias || mode == "nearest");
    if (kept || (sizes[d] == 2 * in && mode == "nearest")) (*scales)[d] = kept ? 1 : 2;
  }
  const Tensor result = m.kernel.empty() ? _adaptive_avg_pool(input, sizes)
                                         : _upsample(input, sizes, antialias ? m.smooth : m.kernel,
                                                     align_corners.value_or(false), scales);
  if (!has_channels_last(input)) return result;
  return contiguous(result, MemoryFormat::ChannelsLast);
}

namespace {

// Never a view, so that whether memory is shared does not depend on the factor.
Tensor of_its_own(const Tensor& result, const Tensor& input) {
  return result.impl()->storage() == input.impl()->storage() ? clone(result) : result;
}

}  // namespace

Tensor pixel_shuffle(const Tensor& input, int64_t upscale_factor) {
  int64_t r = upscale_factor;
  TG_CHECK(r > 0 && r < (int64_t{1} << 31), Runtime,
           "pixel_shuffle: upscale_factor must be positive and below 2^31: got {}", r);
  TG_CHECK(input.ndim() >= 3 && input.size(-3) % (r * r) == 0, Runtime,
           "pixel_shuffle: expected (*, C, H, W) with C a multiple of {}: got {}", r * r, format_ints(input.sizes()));
  DimVector s = folded(input, 3);
  int64_t c = s[1] / (r * r);
  if (input.ndim() == 4 && !input.is_cuda() && has_channels_last(input)) {  // whose layout the result keeps
    Tensor places = reshape(permute(input, {0, 2, 3, 1}), {s[0], s[2], s[3], c, r, r});
    Tensor moved = reshape(permute(places, {0, 1, 4, 2, 5, 3}), {s[0], s[2] * r, s[3] * r, c});
    return of_its_own(permute(moved, {0, 3, 1, 2}), input);
  }
  Tensor parts = permute(reshape(input, {s[0], c, r, r, s[2], s[3]}), {0, 1, 4, 2, 5, 3});
  return of_its_own(reshape(parts, unfolded(input, c, s[2] * r, s[3] * r)), input);
}

Tensor pixel_unshuffle(const Tensor& input, int64_t downscale_factor) {
  int64_t r = downscale_factor;
  TG_CHECK(r > 0 && r < (int64_t{1} << 31), Runtime,
           "pixel_unshuffle: downscale_factor must be positive and below 2^31: got {}", r);
  TG_CHECK(input.ndim() >= 3 && input.size(-1) % r == 0 && input.size(-2) % r == 0, Runtime,
           "pixel_unshuffle: expected (*, C, H, W) with H and W multiples of {}: got {}", r,
           format_ints(input.sizes()));
  DimVector s = folded(input, 3);
  int64_t h = s[2] / r, w = s[3] / r;
  if (input.ndim() == 4 && !input.is_cuda() && has_channels_last(input)) {
    Tensor places = reshape(permute(input, {0, 2, 3, 1}), {s[0], h, r, w, r, s[1]});
    Tensor moved = reshape(permute(places, {0, 1, 3, 5, 2, 4}), {s[0], h, w, s[1] * r * r});
    return of_its_own(permute(moved, {0, 3, 1, 2}), input);
  }
  Tensor parts = permute(reshape(input, {s[0], s[1], h, r, w, r}), {0, 1, 3, 5, 2, 4});
  return of_its_own(reshape(parts, unfolded(input, s[1] * r * r, h, w)), input);
}

Tensor channel_shuffle(const Tensor& input, int64_t groups) {
  TG_CHECK(input.ndim() >= 3, Runtime, "channel_shuffle: expected (N, C, *): got {}", format_ints(input.sizes()));
  TG_CHECK(groups > 0 && input.size(1) % groups == 0, Runtime,
           "channel_shuffle: {} channels cannot be divided into {} groups", input.size(1), groups);
  if (input.numel() == 0) return clone(input);
  int64_t n = input.size(0), c = input.size(1);
  Tensor parts = reshape(input, {n, groups, c / groups, input.numel() / (n * c)});
  return reshape(transpose(parts, 1, 2), input.sizes());
}

Tensor affine_grid(const Tensor& theta, IntSpan size, std::optional<bool> align_corners) {
  TG_CHECK(theta.is_floating_point(), Value, "affine_grid: theta must be of a floating dtype: got {}", theta.dtype());
  TG_CHECK(size.size() == 4 || size.size() == 5, NotImplemented,
           "affine_grid: size must be (N, C, H, W) or (N, C, D, H, W): got {}", format_ints(size));
  int64_t n = static_cast<int64_t>(size.size()) - 2;
  TG_CHECK(theta.ndim() == 3 && theta.size(0) == size[0] && theta.size(1) == n && theta.size(2) == n + 1, Value,
           "affine_grid: theta must have shape [{}, {}, {}] for size {}: got {}", size[0], n, n + 1, format_ints(size),
           format_ints(theta.sizes()));
  for (int64_t s : size) TG_CHECK(s > 0, Value, "affine_grid: sizes must be positive: got {}", format_ints(size));
  bool corners = align_corners.value_or(false);
  // Homogeneous coordinates (x, y[, z], 1) of every position, x running along the last dimension.
  DimVector shape(IntSpan(size.data() + 2, static_cast<size_t>(n)));
  std::vector<Tensor> parts;
  const int64_t positions = checked_numel(shape, "affine_grid");
  for (int64_t k = 0; k < n; ++k) {
    int64_t d = n - 1 - k, s = shape[static_cast<size_t>(d)];
    double end = s <= 1 ? 0.0 : corners ? 1.0 : static_cast<double>(s - 1) / static_cast<double>(s);
    Tensor line = linspace(Scalar(-end), Scalar(end), s, theta.dtype(), theta.device());
    DimVector at(static_cast<size_t>(n), 1);
    at[static_cast<size_t>(d)] = s;
    parts.push_back(expand(reshape(line, at), shape));
  }
  parts.push_back(ones(shape, theta.dtype(), theta.device()));
  Tensor base = reshape(stack(parts, -1), {1, positions, n + 1});
  DimVector result{size[0]};
  for (int64_t s : shape) result.push_back(s);
  result.push_back(n);
  return reshape(matmul(base, transpose(theta, 1, 2)), result);
}

}  // namespace tapegrad::composite
