#pragma once

namespace tapegrad::cuda {

// Hands the device's fused steps (aten/optim/steps.h) to the optimizers.
void set_optimizer_steps();

}  // namespace tapegrad::cuda
