// Tensors over memory of the caller. The memory must outlive the tensor unless a deleter is given, which runs once,
// when the last tensor that refers to the memory is gone.
#pragma once

#include <functional>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

TG_API Tensor from_blob(void* data, IntSpan sizes, DType dtype = DType::float32,
                        std::function<void(void*)> deleter = {});
// With strides, in elements; they must not be negative.
TG_API Tensor from_blob(void* data, IntSpan sizes, IntSpan strides, DType dtype = DType::float32,
                        std::function<void(void*)> deleter = {});

}  // namespace tapegrad
