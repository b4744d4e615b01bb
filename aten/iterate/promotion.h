// Type promotion of operands, as PyTorch's `result_type`: tensors with dimensions count most, then
// zero-dimensional tensors, then numbers; a lower group only lifts the category (bool < integer < floating <
// complex), never the width inside a category.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

class PromotionState {
 public:
  void add(const Tensor& t);
  DType result() const;

 private:
  // kNone stands for "no operand of this group yet".
  static constexpr uint8_t kNone = 255;
  uint8_t dimensioned_ = kNone;
  uint8_t zero_dim_ = kNone;
  uint8_t number_ = kNone;
};

}  // namespace tapegrad
