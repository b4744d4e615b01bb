// Pointwise operators: one call for all of them. The row gives a functor and a promotion rule; this file
// does broadcasting, promotion, allocation of the result, the checks of `out=` and in-place targets, and
// calls the kernel that the table holds for the device.
#pragma once

#include "tapegrad/aten/iterate/pointwise_iterator.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/kernel_table.h"

namespace tapegrad::pointwise {

enum class Promotion : uint8_t {
  Promote,      // the common dtype of the operands
  Float,        // likewise, integers and bool become the default floating dtype
  KeepFirst,    // the dtype of the first operand (others are converted to it)
  PromoteRest,  // the common dtype of all but the first, which is a condition
};
enum class Result : uint8_t {
  Compute,  // the dtype computed in
  Bool,     // comparisons
  Real,     // the real part's dtype of a complex operand (abs, angle)
};

// What a row says, as a constant that the generator emits.
struct Op {
  const char* name;
  const OperatorEntry* entry;
  Promotion promotion;
  Result result;
  // Bit i: compute dtype i (enum DType) has a kernel, or, if it is only stored, works by the kernel of its bits_dtype.
  uint16_t dtypes;
  // Numbers that must fit the dtype computed in: the parameters; the operands that are numbers, too.
  bool fit_parameters = false, fit_operands = false;
};

// Runs the operator. `out` undefined: a new result. Otherwise the result is written there: its shape is resized
// when it is empty-sized for `out=` (resize_out true), else must equal the broadcast shape; overlaps raise.
// Nothing is written before every check has passed. No tape.
TG_API Tensor run(const Op& op, std::span<const Tensor* const> inputs, std::span<const Scalar> params,
                  const Tensor& out = {}, bool resize_out = false);

// The dtype that a rule gives for operands (of the result, unless the row says bool or real).
TG_API DType promoted_dtype(Promotion rule, std::span<const Tensor* const> inputs);

}  // namespace tapegrad::pointwise
