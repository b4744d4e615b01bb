// Maps dtypes and reductions to NCCL's constants: what it can reduce, and as which type.
#pragma once

#include "tapegrad/cuda/nccl/api.h"
#include "tapegrad/distributed/backend.h"

namespace tapegrad::cuda::nccl_api {

struct Numbers {
  DataType type = kUint8;
  size_t parts = 1;  // of an element: complex numbers are two
  Operator op = kSum;
};

// Error(Value) and Error(Type) with PyTorch's messages for types and reductions that NCCL does not support.
Numbers numbers_of(const char* op, DType dtype, distributed::Reduce reduce);

}  // namespace tapegrad::cuda::nccl_api
