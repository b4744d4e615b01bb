// Pointwise operators that choose among others; see aten/ops/pointwise/pointwise.toml and compare.toml.
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functors/arithmetic.h"
#include "tapegrad/aten/iterate/limits.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {

namespace fn {
void throw_zero_division() { TG_THROW(Runtime, "division: an integer was divided by zero"); }
}  // namespace fn

namespace composite {

Tensor div(const Tensor& input, const Operand& other, std::optional<std::string_view> rounding_mode) {
  if (!rounding_mode) return true_divide(input, other);
  return *rounding_mode == "floor" ? _floor_divide(input, other) : _trunc_divide(input, other);
}

Tensor nan_to_num(const Tensor& input, std::optional<double> nan, std::optional<double> posinf,
                  std::optional<double> neginf) {
  const double largest = largest_number(input.dtype());
  return _nan_to_num(input, nan.value_or(0), posinf.value_or(largest), neginf.value_or(-largest));
}

bool equal(const Tensor& input, const Tensor& other) {
  TG_CHECK(input.device() == other.device(), Runtime, "equal: expected all tensors on one device: got {} and {}",
           input.device(), other.device());
  if (!(input.sizes() == other.sizes())) return false;
  if (input.numel() == 0) return true;
  return raw::eq(input, other).all().item<bool>();
}

}  // namespace composite
}  // namespace tapegrad
