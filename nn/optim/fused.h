// Optimizer steps over many tensors at once. A step is one pass over all elements of all tensors: parameters,
// gradients and state are read and written once, in one parallel_for whatever the number of tensors.
//
// The functions take tensors as they are; parameter, gradient and state of one entry must agree in shape, dtype and
// device. They write through data pointers, outside the tape, and bump the versions of what they write.
// Thread rules: one step at a time for a given set of tensors.
#pragma once

#include <span>
#include <vector>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::nn {

struct AdamSettings {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
  bool decoupled = false;  // AdamW: decay the weights themselves, not through the gradient
};

struct AdamEntry {
  Tensor param, grad, exp_avg, exp_avg_sq, max_exp_avg_sq;  // the last one with amsgrad only
  double step = 1;                                          // this step's number, from 1
};

struct SgdSettings {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

struct SgdEntry {
  Tensor param, grad, momentum_buffer;  // the last one with momentum only
  bool first = false;                   // the buffer holds nothing yet: it becomes the gradient
};

TG_API void fused_adam_step(std::span<const AdamEntry> entries, const AdamSettings& settings);
TG_API void fused_sgd_step(std::span<const SgdEntry> entries, const SgdSettings& settings);

}  // namespace tapegrad::nn
