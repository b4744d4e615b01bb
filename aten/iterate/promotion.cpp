#include "tapegrad/aten/iterate/promotion.h"

namespace tapegrad {
namespace {

constexpr uint8_t kNone = 255;

uint8_t promote(uint8_t a, uint8_t b) {
  if (a == kNone) return b;
  if (b == kNone) return a;
  return static_cast<uint8_t>(promote_types(static_cast<DType>(a), static_cast<DType>(b)));
}

uint8_t combine(uint8_t higher, uint8_t lower) {
  if (higher == kNone) return lower;
  if (lower == kNone) return higher;
  const DType h = static_cast<DType>(higher);
  const DType l = static_cast<DType>(lower);
  if (is_complex(h)) return higher;
  if (is_floating_point(h) || is_float8(h)) return is_complex(l) ? static_cast<uint8_t>(to_complex(h)) : higher;
  if (h == DType::bool_ || is_differentiable(l)) return promote(higher, lower);
  return higher;
}

}  // namespace

void PromotionState::add(const Tensor& t) {
  DType d = t.dtype();
  if (t.is_wrapped_number()) {
    if (is_complex(d))
      d = to_complex(default_dtype());
    else if (is_floating_point(d))
      d = default_dtype();
    number_ = promote(number_, static_cast<uint8_t>(d));
  } else if (t.ndim() == 0) {
    zero_dim_ = promote(zero_dim_, static_cast<uint8_t>(d));
  } else {
    dimensioned_ = promote(dimensioned_, static_cast<uint8_t>(d));
  }
}

DType PromotionState::result() const { return static_cast<DType>(combine(combine(dimensioned_, zero_dim_), number_)); }

}  // namespace tapegrad
