// A few steps of training, as tests of layers take them.
#pragma once

#include <utility>

#include "tapegrad/nn/optim/optimizers.h"

namespace tapegrad::test {

// Takes `steps` steps on what `loss` gives; `before_step` is called after backward. The first loss and the last.
template <class Loss, class BeforeStep>
std::pair<float, float> train(optim::Optimizer& optimizer, int steps, Loss&& loss_of, BeforeStep&& before_step) {
  float first = 0, last = 0;
  for (int step = 0; step < steps; ++step) {
    const Tensor loss = loss_of();
    optimizer.zero_grad();
    loss.backward();
    before_step();
    optimizer.step();
    last = loss.template item<float>();
    if (step == 0) first = last;
  }
  return {first, last};
}

}  // namespace tapegrad::test
