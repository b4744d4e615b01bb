#pragma once

namespace tapegrad::cuda {

// Hands the device's fused steps (nn/optim/fused.h) to the optimizers.
void set_optimizer_steps();

}  // namespace tapegrad::cuda
