#pragma once

namespace tapegrad::cuda {

// Registers the device's fused steps (aten/optim/steps.h) with the optimizers.
void set_optimizer_steps();

}  // namespace tapegrad::cuda
