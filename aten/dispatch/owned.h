// Lists by value, each with the spans that an Argument refers to. Spans point into the same object: they are set where
// it lies.
#pragma once

#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/tensor/small_vector.h"

namespace tapegrad::dispatch {

struct OwnedTensors {
  std::vector<Tensor> tensors;
  TensorSpan span;
};
struct OwnedInts {
  DimVector values;
  IntSpan span;
  OptionalInts optional;
};

}  // namespace tapegrad::dispatch
