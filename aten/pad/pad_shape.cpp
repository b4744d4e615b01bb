// Shapes and checks of padding. `pad` lists (before, after) from the last dimension backwards, as PyTorch's.
#include <algorithm>

#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/functions_pad.h"
#include "tapegrad/aten/iterate/number.h"
#include "tapegrad/aten/kernels_pad.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {
namespace {

DimVector padded_sizes(const char* op, IntSpan sizes, IntSpan pad) {
  TG_CHECK(pad.size() % 2 == 0, Runtime, "{}: pad must have an even number of elements: got {}", op, format_ints(pad));
  TG_CHECK(pad.size() <= 2 * sizes.size(), Runtime, "{}: pad {} names more dimensions than shape {} has", op,
           format_ints(pad), format_ints(sizes));
  DimVector result(sizes);
  for (size_t i = 0; i < pad.size() / 2; ++i) {
    size_t d = sizes.size() - 1 - i;
    int64_t before, after;
    bool bad =
        __builtin_add_overflow(sizes[d], pad[2 * i], &before) || __builtin_add_overflow(before, pad[2 * i + 1], &after);
    TG_CHECK(!bad && after >= 0, Runtime,
             "{}: the result would have a negative or too large size in dimension {}: shape {}, pad {}", op, d,
             format_ints(sizes), format_ints(pad));
    result[d] = after;
  }
  return result;
}

// Which modes reach how far: a reflection never repeats the border, a circle goes round at most once.
void check_mode(const char* op, IntSpan sizes, IntSpan pad, std::string_view mode) {
  bool reflect = mode == "reflect", replicate = mode == "replicate", circular = mode == "circular";
  TG_CHECK(reflect || replicate || circular, NotImplemented,
           "{}: unknown mode '{}'\nexpected 'constant', 'reflect', 'replicate' or 'circular'", op, mode);
  size_t n = pad.size() / 2;
  TG_CHECK(n >= 1 && n <= 3 && (sizes.size() == n + 1 || sizes.size() == n + 2), NotImplemented,
           "{}: mode '{}' pads the last 1, 2 or 3 dimensions of tensors with one or two more: got shape {} "
           "and pad {}",
           op, mode, format_ints(sizes), format_ints(pad));
  for (size_t d = sizes.size() == n + 2 ? 1 : 0; !circular && d < sizes.size(); ++d)
    TG_CHECK(sizes[d] > 0, Runtime,
             "{}: Expected {}D or {}D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
             "input, but got: {}",
             op, n + 1, n + 2, format_ints(sizes));
  for (size_t i = 0; i < n; ++i) {
    size_t d = sizes.size() - 1 - i;
    for (int64_t p : {pad[2 * i], pad[2 * i + 1]}) {
      TG_CHECK(!reflect || p < std::max<int64_t>(sizes[d], 1), Runtime,
               "{}: a reflection must be smaller than the dimension: {} in dimension {} of shape {}", op, p, d,
               format_ints(sizes));
      TG_CHECK(!circular || p <= sizes[d], Runtime,
               "{}: circular padding must not be larger than the dimension: {} in dimension {} of shape {}", op, p, d,
               format_ints(sizes));
      TG_CHECK(p <= 0 || sizes[d] > 0, Runtime, "{}: nothing to repeat in dimension {} of shape {}", op, d,
               format_ints(sizes));
    }
  }
}

}  // namespace

TensorSpec constant_pad_shape(const Tensor& input, IntSpan pad, const Scalar& value) {
  TG_CHECK(is_complex(input.dtype()) || !value.is_complex(), Runtime, "constant_pad_nd: complex value {} for dtype {}",
           to_string(value), input.dtype());
  check_number("constant_pad_nd", value, input.dtype());
  return spec_like_image(input, padded_sizes("constant_pad_nd", input.sizes(), pad));
}

TensorSpec pad_mode_shape(const Tensor& input, IntSpan pad, std::string_view mode) {
  DimVector sizes = padded_sizes("pad", input.sizes(), pad);
  check_mode("pad", input.sizes(), pad, mode);
  if (mode == "circular") return {std::move(sizes), input.dtype(), input.device(), {}};  // as PyTorch's
  return spec_like_image(input, std::move(sizes));
}

TensorSpec pad_mode_grad_shape(const Tensor& output, IntSpan input_size, IntSpan pad, std::string_view mode) {
  TG_CHECK(padded_sizes("pad", input_size, pad) == DimVector(output.sizes()), Runtime,
           "pad: gradient of shape {} does not fit input of shape {} and pad {}", format_ints(output.sizes()),
           format_ints(input_size), format_ints(pad));
  check_mode("pad", input_size, pad, mode);
  if (mode == "circular") return {DimVector(input_size), output.dtype(), output.device(), {}};
  return spec_like_image(output, DimVector(input_size));
}

namespace composite {

Tensor pad(const Tensor& input, IntSpan pad, std::string_view mode, const std::optional<Scalar>& value) {
  if (mode == "constant") return constant_pad_nd(input, pad, value.value_or(Scalar(0)));
  TG_CHECK(!value || *value == Scalar(0), Value, "pad: mode '{}' takes no value: got {}", mode, to_string(*value));
  if (mode == "circular" && std::any_of(pad.begin(), pad.end(), [](int64_t p) { return p < 0; })) {
    // What is left after cutting goes round.
    DimVector cut(pad), more(pad);
    for (int64_t& p : cut) p = std::min<int64_t>(p, 0);
    for (int64_t& p : more) p = std::max<int64_t>(p, 0);
    return _pad_mode(constant_pad_nd(input, cut, 0), more, mode);
  }
  return _pad_mode(input, pad, mode);
}

}  // namespace composite
}  // namespace tapegrad
