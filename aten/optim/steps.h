// The arguments of fused optimizer kernels (nn/optim/fused.h): raw runs of elements, all of one dtype.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "tapegrad/aten/optim/rules.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::optim {

struct RuleRun {
  void* param;
  const void* grad;
  void* states[kMaxStates];
  int64_t n;
  rules::Plan<double> plan;
  const rules::Plan<double>* planned;  // of the device, where it counts the steps itself; null: `plan` holds
};

// By position in TG_OPTIM_RULES (rules.h).
using RuleKernel = void (*)(int rule, DType, const RuleRun&);
// That of the CPU at hand.
TG_API RuleKernel cpu_steps();

// One parameter's step whose constants the device computes, from numbers kept on the device: so that a recorded step
// goes on counting when it is replayed.
struct PlanRun {
  void* scalars[kMaxScalars];  // of the device, one element each; read, and written
  rules::Plan<double>* plan;   // written
  bool single;                 // the scalars are float32, else float64
  bool first;                  // the state was made for this step
};
struct PlanOptions {
  double numbers[kMaxOptions];
  const double* tensors[kMaxOptions];  // of the device; null: the number holds
};

// The step on a device other than the CPU, registered by the device's library when it is loaded. Runs are of one device
// and may differ in dtype; `operands` owns what they point to. Complex numbers are pairs of real ones. `plan` is called
// before the step that reads what it writes. Both write nothing where `found_inf`, a float32 of the device or
// undefined, is not 0 when they run.
struct DeviceSteps {
  void (*plan)(int rule, std::span<const PlanRun> runs, const PlanOptions& options, std::span<const Tensor> operands,
               const Tensor& found_inf);
  void (*step)(int rule, std::span<const RuleRun> runs, std::span<const DType> dtypes, std::span<const Tensor> operands,
               const Tensor& found_inf);
  void (*unscale)(std::span<const Tensor> dense, const Tensor& found, const Tensor& scale);
};
TG_API extern std::atomic<const DeviceSteps*> device_steps;

}  // namespace tapegrad::optim
