// What a row says of a call with batched tensors (key `batch` in aten/ops/README.md). By it the handler of vmap
// (handler.cpp) runs the operator once, on tensors that have the samples along dimension 0 and on dimensions counted
// accordingly, or once per sample, and stacks the results.
#pragma once

#include <cstdint>

namespace tapegrad::batch {

enum class Rule : uint8_t {
  Loop,        // once per sample
  Broadcast,   // tensors broadcast against each other: samples lead, then as many dimensions as the widest has
  First,       // only the first tensor may have samples; dimensions are counted from the front
  FirstNew,    // likewise, and the result has a dimension more
  All,         // all tensors have as many dimensions; each gets the samples in front
  AllNew,      // likewise, and the result has a dimension more
  Merge,       // all tensors have samples of the operator's own along dimension 0: they become more
  Rest,        // the first tensor has no samples; the others are of any shape
  Reduce,      // as First, with all dimensions when none is named
  Random,      // by the randomness of the level
  RandomLoop,  // likewise, once per sample
  Parts,       // a composite: its parts are calls of their own; once per sample when it asks for values
};

}  // namespace tapegrad::batch
