// Optimizer steps over many tensors at once. A step is one pass over all elements of all tensors: parameters,
// gradients and state are read and written once, in one parallel_for whatever the number of tensors. The formulas
// are in rules.h; here is how a step by one of them is made.
//
// The functions take tensors as they are; parameter, gradient and state of one entry must agree in shape, dtype and
// device. They write through data pointers, outside the tape, and bump the versions of what they write.
// Thread rules: one step at a time for a given set of tensors.
#pragma once

#include <atomic>
#include <span>
#include <string_view>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/nn/optim/rules.h"

namespace tapegrad::nn {

// What is known of a rule without its formulas.
struct Rule {
  const char* name;
  int index;  // in TG_OPTIM_RULES
  std::span<const rules::Option> options;
  std::span<const char* const> scalars;                  // names; the first counts steps
  rules::StateTensors (*states)(const double* options);  // what a group with these options keeps per parameter
  void (*prepare)(const double* options, rules::Scalars<double>&, rules::Plan<double>&);
};

TG_API std::span<const Rule> optimizer_rules();
TG_API const Rule& optimizer_rule(std::string_view name);  // raises Value when there is none

struct StepEntry {
  Tensor param, grad;
  Tensor states[kMaxStates];       // as many as `states(options)` says
  rules::Scalars<double> scalars;  // before the step; after it, what to keep
};

// One step of all entries. `options` in the rule's order.
TG_API void fused_step(const Rule& rule, std::span<const double> options, std::span<StepEntry> entries);

// grads *= scale, and found = 1 where an element was infinite or NaN before, else as it was. All floating point; found
// and scale have one element of float32; all on one device, which nobody waits for.
TG_API void fused_unscale(std::span<const Tensor> grads, const Tensor& found, const Tensor& scale);

// How a device other than the CPU does this; its library hangs it in when it is loaded. Runs are of one device and may
// differ in dtype; `operands` owns what they point to. Complex numbers are pairs of real ones.
struct DeviceSteps {
  void (*step)(int rule, std::span<const RuleRun> runs, std::span<const DType> dtypes,
               std::span<const Tensor> operands);
  void (*unscale)(std::span<const Tensor> dense, const Tensor& found, const Tensor& scale);
};
TG_API extern std::atomic<const DeviceSteps*> device_steps;

// The same step with tensor operators, recorded on the tape where it is on, so that a gradient flows through the step
// to gradients, parameters and options. An option that is a tensor (of one element) is in `tensors` at its place; the
// others are undefined there.
TG_API void recorded_step(const Rule& rule, std::span<const double> options, std::span<const Tensor> tensors,
                          std::span<StepEntry> entries);

}  // namespace tapegrad::nn
