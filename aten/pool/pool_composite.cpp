// The public pooling operators in terms of `_max_pool`, `_avg_pool` and their adaptive forms.
#include <cmath>
#include <limits>

#include "tapegrad/aten/functions_activation.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_pool.h"
#include "tapegrad/aten/kernels_pool.h"
#include "tapegrad/aten/pool/windows.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/tensor/checked_int.h"

namespace tapegrad::composite {
namespace {

DimVector stride_or(OptionalInts stride, IntSpan kernel) {
  return stride && !stride->empty() ? DimVector(*stride) : DimVector(kernel);
}

void check_ndim(const char* op, const Tensor& input, size_t spatial) {
  TG_CHECK(input.ndim() == static_cast<int>(spatial) + 1 || input.ndim() == static_cast<int>(spatial) + 2, Runtime,
           "{}: input must have {} or {} dimensions: got shape {}", op, spatial + 1, spatial + 2,
           format_ints(input.sizes()));
}

Tensor lp_pool(const char* op, size_t spatial, const Tensor& input, double norm_type, IntSpan kernel,
               OptionalInts stride, bool ceil_mode) {
  check_ndim(op, input, spatial);
  TG_CHECK(norm_type != 0, Runtime, "{}: norm_type must not be zero", op);
  DimVector zero(spatial, 0);
  double size = 1;
  for (int64_t k : kernel) size *= static_cast<double>(k);
  Tensor mean =
      _avg_pool(tapegrad::pow(input, norm_type), kernel, stride_or(stride, kernel), zero, ceil_mode, true, {});
  return tapegrad::pow(mul(mul(sign(mean), relu(abs(mean))), size), 1.0 / norm_type);
}

Tensor max_unpool(const char* op, size_t spatial, const Tensor& input, const Tensor& indices, IntSpan kernel,
                  OptionalInts stride_given, IntSpan padding, OptionalInts output_size) {
  TG_CHECK(input.is_floating_point(), NotImplemented, "{}: expected a floating point input: got {}", op, input.dtype());
  check_ndim(op, input, spatial);
  DimVector stride = stride_or(stride_given, kernel), sizes(input.sizes());
  size_t leading = sizes.size() - spatial;
  DimVector wanted;
  if (output_size && !output_size->empty()) {
    TG_CHECK(output_size->size() == spatial || output_size->size() == sizes.size(), Value,
             "{}: output_size must have {} or {} elements: got {}", op, spatial, sizes.size(),
             format_ints(*output_size));
    wanted = DimVector(IntSpan(output_size->data() + output_size->size() - spatial, spatial));
  }
  for (size_t i = 0; i < spatial; ++i) {
    TG_CHECK(stride[i] > 0 && kernel[i] > 0 && padding[i] >= 0, Runtime,
             "{}: kernel_size and stride must be positive, padding not negative: got {}, {}, {}", op,
             format_ints(kernel), format_ints(stride), format_ints(padding));
    const CheckedInt plain = CheckedInt(sizes[leading + i] - 1) * stride[i] - CheckedInt(2) * padding[i] + kernel[i];
    int64_t usual = plain.value();
    constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
    TG_CHECK(plain.fits() && usual < kMost && -usual < kMost && stride[i] < kMost, Runtime,
             "{}: the output's size does not fit: got kernel_size {}, stride {}, padding {}", op, format_ints(kernel),
             format_ints(stride), format_ints(padding));
    if (!wanted.empty()) {
      TG_CHECK(wanted[i] > usual - stride[i] && wanted[i] < usual + stride[i], Value,
               "{}: output_size {} is out of reach in dimension {}: expected between {} and {}", op,
               format_ints(wanted), leading + i, usual - stride[i] + 1, usual + stride[i] - 1);
      usual = wanted[i];
    }
    sizes[leading + i] = usual;
  }
  return _plane_scatter(input, indices, sizes, static_cast<int64_t>(spatial), false, {}, {}, {}, {});
}

}  // namespace

#define TG_POOL(N)                                                                                                    \
  Tensor max_pool##N##d(const Tensor& input, IntSpan kernel_size, OptionalInts stride, IntSpan padding,               \
                        IntSpan dilation, bool ceil_mode) {                                                           \
    check_ndim("max_pool" #N "d", input, N);                                                                          \
    return std::get<0>(_max_pool(input, kernel_size, stride_or(stride, kernel_size), padding, dilation, ceil_mode));  \
  }                                                                                                                   \
  std::tuple<Tensor, Tensor> max_pool##N##d_with_indices(const Tensor& input, IntSpan kernel_size,                    \
                                                         OptionalInts stride, IntSpan padding, IntSpan dilation,      \
                                                         bool ceil_mode) {                                            \
    check_ndim("max_pool" #N "d", input, N);                                                                          \
    return _max_pool(input, kernel_size, stride_or(stride, kernel_size), padding, dilation, ceil_mode);               \
  }                                                                                                                   \
  Tensor adaptive_avg_pool##N##d(const Tensor& input, IntSpan output_size) {                                          \
    check_ndim("adaptive_avg_pool" #N "d", input, N);                                                                 \
    return _adaptive_avg_pool(input, output_size);                                                                    \
  }                                                                                                                   \
  Tensor adaptive_max_pool##N##d(const Tensor& input, IntSpan output_size) {                                          \
    check_ndim("adaptive_max_pool" #N "d", input, N);                                                                 \
    return std::get<0>(_adaptive_max_pool(input, output_size));                                                       \
  }                                                                                                                   \
  std::tuple<Tensor, Tensor> adaptive_max_pool##N##d_with_indices(const Tensor& input, IntSpan output_size) {         \
    check_ndim("adaptive_max_pool" #N "d", input, N);                                                                 \
    return _adaptive_max_pool(input, output_size);                                                                    \
  }                                                                                                                   \
  Tensor lp_pool##N##d(const Tensor& input, double norm_type, IntSpan kernel_size, OptionalInts stride,               \
                       bool ceil_mode) {                                                                              \
    if (std::isinf(norm_type)) { /* the largest magnitude, or the least */                                            \
      const double sign = norm_type > 0 ? 1 : -1;                                                                     \
      const DimVector none(N, 0), dense(N, 1);                                                                        \
      return mul(tapegrad::max_pool##N##d(mul(abs(input), sign), kernel_size, stride, none, dense, ceil_mode), sign); \
    }                                                                                                                 \
    return lp_pool("lp_pool" #N "d", N, input, norm_type, kernel_size, stride, ceil_mode);                            \
  }                                                                                                                   \
  Tensor max_unpool##N##d(const Tensor& input, const Tensor& indices, IntSpan kernel_size, OptionalInts stride,       \
                          IntSpan padding, OptionalInts output_size) {                                                \
    return max_unpool("max_unpool" #N "d", N, input, indices, kernel_size, stride, padding, output_size);             \
  }
TG_POOL(1)
TG_POOL(2)
TG_POOL(3)
#undef TG_POOL

Tensor avg_pool1d(const Tensor& input, IntSpan kernel_size, OptionalInts stride, IntSpan padding, bool ceil_mode,
                  bool count_include_pad) {
  check_ndim("avg_pool1d", input, 1);
  return _avg_pool(input, kernel_size, stride_or(stride, kernel_size), padding, ceil_mode, count_include_pad, {});
}

#define TG_AVG_POOL(N)                                                                                          \
  Tensor avg_pool##N##d(const Tensor& input, IntSpan kernel_size, OptionalInts stride, IntSpan padding,         \
                        bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override) {      \
    check_ndim("avg_pool" #N "d", input, N);                                                                    \
    return _avg_pool(input, kernel_size, stride_or(stride, kernel_size), padding, ceil_mode, count_include_pad, \
                     divisor_override);                                                                         \
  }
TG_AVG_POOL(2)
TG_AVG_POOL(3)
#undef TG_AVG_POOL

}  // namespace tapegrad::composite
