// The `reduction` argument of losses.
#pragma once

#include <string_view>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

enum class Reduction : int64_t { None = 0, Mean = 1, Sum = 2 };

// Raises Value for a word other than the three.
Reduction parse_reduction(std::string_view text, const char* op);
// The same with PyTorch's deprecated flags, which win when one is given.
Reduction parse_reduction(std::string_view text, std::optional<bool> size_average, std::optional<bool> reduce,
                          const char* op);
// Warns where the two broadcast: as a rule [N, 1] against [N], which makes N * N pairs.
void warn_of_broadcast(const Tensor& input, const Tensor& target);
Tensor apply_reduction(const Tensor& loss, Reduction reduction);

}  // namespace tapegrad
