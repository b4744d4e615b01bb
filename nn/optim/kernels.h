// What the fused steps hand to the kernels of a device: raw runs of elements, all of one dtype.
#pragma once

#include <cstdint>

#include "tapegrad/c10/dtype.h"

namespace tapegrad::nn {

inline constexpr int kMaxStates = 3;     // tensors of state per parameter
inline constexpr int kMaxScalars = 3;    // numbers of state per parameter
inline constexpr int kMaxConstants = 7;  // numbers that a rule's loop reads
inline constexpr int kMaxOptions = 8;    // numbers that a rule reads from a parameter group

struct RuleRun {
  void* param;
  const void* grad;
  void* states[kMaxStates];
  int64_t n;
  int variant;
  double sign, weight_decay, decay;
  double constants[kMaxConstants];
};

// By position in TG_OPTIM_RULES (rules.h).
using RuleKernel = void (*)(int rule, DType, const RuleRun&);

}  // namespace tapegrad::nn
