// What the fused steps hand to the kernels of a device: raw runs of elements, all of one dtype.
#pragma once

#include <cstdint>

#include "tapegrad/c10/dtype.h"

namespace tapegrad::nn {

struct AdamRun {
  void* param;
  const void* grad;
  void* exp_avg;
  void* exp_avg_sq;
  void* max_exp_avg_sq;  // null without amsgrad
  int64_t n;
  double step_size;  // lr / (1 - beta1^step)
  double root;       // sqrt(1 - beta2^step)
};

struct AdamConstants {
  double beta1, beta2, eps, weight_decay, decay;  // decay: 1 - lr * weight_decay when decoupled, else 1
  bool maximize;
};

struct SgdRun {
  void* param;
  const void* grad;
  void* buffer;  // null without momentum
  int64_t n;
  bool first;
};

struct SgdConstants {
  double lr, momentum, dampening, weight_decay;
  bool nesterov, maximize;
};

using AdamKernel = void (*)(DType, const AdamRun&, const AdamConstants&);
using SgdKernel = void (*)(DType, const SgdRun&, const SgdConstants&);

}  // namespace tapegrad::nn
