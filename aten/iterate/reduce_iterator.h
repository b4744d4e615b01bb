// The argument of a reduction kernel. Separate from reduce.h, so that kernel files do not depend on the list of
// operators.
#pragma once

#include "tapegrad/c10/device/device.h"
#include "tapegrad/c10/tensor/dtype.h"
#include "tapegrad/c10/tensor/scalar.h"
#include "tapegrad/c10/tensor/small_vector.h"

namespace tapegrad::reduce {

// Seen by kernels: the input as [outer..., reduced...] with byte strides, the output contiguous over outer.
struct Iterator {
  DType compute;
  DType input_dtype;
  DType output_dtype;
  Device device;
  int outer_ndim = 0;
  int reduced_ndim = 0;
  int64_t outer_numel = 1;
  int64_t reduced_numel = 1;
  int64_t outer_shape[kMaxDims];
  int64_t reduced_shape[kMaxDims];
  int64_t outer_strides[kMaxDims];
  int64_t reduced_strides[kMaxDims];
  const char* input;
  char* output;
  Scalar params[4];
};
using Kernel = void (*)(const Iterator& it);

}  // namespace tapegrad::reduce
