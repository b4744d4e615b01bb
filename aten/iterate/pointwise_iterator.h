// The argument of a pointwise kernel. Separate from pointwise.h, so that kernel files do not depend on the list of
// operators.
#pragma once

#include "tapegrad/c10/device/device.h"
#include "tapegrad/c10/tensor/dtype.h"
#include "tapegrad/c10/tensor/scalar.h"
#include "tapegrad/c10/tensor/small_vector.h"

namespace tapegrad::pointwise {

inline constexpr int kMaxInputs = 4;
inline constexpr int kMaxParams = 4;

// Operands prepared for a kernel: broadcast to one shape, dimensions merged where strides allow, sorted so that
// the last one is the fastest of the output. Strides are in bytes. Inputs may be of any dtype: kernels load them
// converted to `compute`. A wrapped number or CPU scalar is an input with all strides 0.
struct Iterator {
  int ndim = 0;
  int num_inputs = 0;
  DType compute = DType::float32;
  DType result = DType::float32;  // dtype that the functor returns: compute, bool or real
  int64_t numel = 0;
  int64_t shape[kMaxDims];
  // Index 0 is the output, 1... the inputs.
  char* data[1 + kMaxInputs];
  DType dtype[1 + kMaxInputs];
  Device device;
  uint8_t on_host = 0;  // bit k: operand k is a CPU scalar among tensors of another device; kernels read it at once
  int64_t strides[1 + kMaxInputs][kMaxDims];
  Scalar params[kMaxParams];
};

using Kernel = void (*)(const Iterator& it);

}  // namespace tapegrad::pointwise
