// Control flow in programs: what an operation with bodies does, in a run of its program and as one call of a recorded
// step.
#pragma once

#include <functional>

#include "tapegrad/aten/record/program.h"

namespace tapegrad::record {

// The results of such an operation for the tensors in its three lists. `sizes`: those of the program's symbols.
std::vector<Tensor> run_control(const Program::Operation& o, std::span<const ListValue> lists,
                                std::vector<int64_t> sizes);

// Makes of a body something that plans and replays it, for calls without gradients; null: nothing is there that does.
// Set once, while the library is loaded.
using BodyRunner = std::function<std::vector<Tensor>(TensorSpan)>;
TG_API extern BodyRunner (*make_body_runner)(std::shared_ptr<const Program> body);

}  // namespace tapegrad::record
