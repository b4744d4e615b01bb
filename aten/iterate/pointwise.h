// Pointwise operators: one call for all of them. The row gives a functor and a promotion rule; this file
// does broadcasting, promotion, allocation of the result, the checks of `out=` and in-place targets, and
// calls the kernel that the table holds for the device.
#pragma once

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/kernel_table.h"

namespace tapegrad::pointwise {

enum class Promotion : uint8_t {
  Promote,       // the common dtype of the operands
  Float,         // likewise, integers and bool become the default floating dtype
  KeepFirst,     // the dtype of the first operand (others are converted to it)
};
enum class Result : uint8_t {
  Compute,       // the dtype computed in
  Bool,          // comparisons
  Real,          // the real part's dtype of a complex operand (abs, angle)
};

inline constexpr int kMaxInputs = 4;
inline constexpr int kMaxParams = 4;

// What a row says, as a constant that the generator emits.
struct Op {
  const char* name;
  OpId id;
  Promotion promotion;
  Result result;
  uint16_t dtypes;  // bit i: compute dtype i (enum DType) has a kernel
};

// Operands prepared for a kernel: broadcast to one shape, dimensions merged where strides allow, sorted so that
// the last one is the fastest of the output. Strides are in bytes. Inputs may be of any dtype: kernels load them
// converted to `compute`. A wrapped number or CPU scalar is an input with all strides 0.
struct Iterator {
  int ndim = 0;
  int num_inputs = 0;
  DType compute = DType::float32;
  DType result = DType::float32;      // dtype that the functor returns: compute, bool or real
  int64_t numel = 0;
  int64_t shape[kMaxDims];
  // Index 0 is the output, 1... the inputs.
  char* data[1 + kMaxInputs];
  DType dtype[1 + kMaxInputs];
  Device device;
  int64_t strides[1 + kMaxInputs][kMaxDims];
  Scalar params[kMaxParams];
};

using Kernel = void (*)(const Iterator& it);

// Runs the operator. `out` undefined: a new result. Otherwise the result is written there: its shape is resized
// when it is empty-sized for `out=` (resize_out true), else must equal the broadcast shape; overlaps raise.
// Nothing is written before every check has passed. No tape.
TG_API Tensor run(const Op& op, std::span<const Tensor* const> inputs, std::span<const Scalar> params,
                  const Tensor& out = {}, bool resize_out = false);

// The dtype to compute in and the dtype of the result, for tests and for shape functions.
TG_API DType promoted_dtype(Promotion rule, std::span<const Tensor* const> inputs);

}  // namespace tapegrad::pointwise
