// Optimizer steps over many tensors at once. A step is one pass over all elements of all tensors: parameters, gradients
// and state are read and written once, in one parallel_for whatever the number of tensors. The formulas are in
// aten/optim/rules.h; this header declares how a step is run.
//
// The functions take tensors as they are; parameter, gradient and state of one entry must agree in shape, dtype and
// device. They write through data pointers, outside the tape, and bump the versions of what they write.
// Thread rules: one step at a time for a given set of tensors.
#pragma once

#include <span>
#include <string_view>

#include "tapegrad/aten/optim/steps.h"

namespace tapegrad::nn {

namespace rules = optim::rules;
using optim::kMaxConstants, optim::kMaxOptions, optim::kMaxScalars, optim::kMaxStates;

// The description of a rule without its formulas.
struct Rule {
  const char* name;
  int index;  // in TG_OPTIM_RULES
  std::span<const rules::Option> options;
  std::span<const char* const> scalars;                  // names; the first is the step count
  rules::StateTensors (*states)(const double* options);  // what a group with these options keeps per parameter
  void (*prepare)(const double* options, rules::Scalars<double>&, rules::Plan<double>&);
};

TG_API std::span<const Rule> optimizer_rules();
TG_API const Rule& optimizer_rule(std::string_view name);  // raises Value when there is none

// State of a parameter before its first step: of its layout, and of a complex one with the value in both parts, which
// are numbers of their own to a rule.
TG_API Tensor first_state(const Tensor& param, double value);

struct StepEntry {
  Tensor param, grad;
  Tensor states[kMaxStates];       // as many as `states(options)` says
  rules::Scalars<double> scalars;  // before the step; after it, what to keep
  // Whether the parameter's device computes the constants of the step, so that recorded steps go on counting when they
  // are replayed: it reads and updates these tensors of one element (all float32 or all float64) instead of the values
  // above. To a recorded step they are where those values lie, so that gradients flow from one step to the next.
  bool planned = false;
  Tensor counts[kMaxScalars];
};

// One step of all entries that have a gradient. `options` in the rule's order. For planned entries an option may be a
// tensor of their device, in `tensors` at its place; the others are undefined there. With `found_inf`, one float32 on
// each device of the parameters, the step of a device changes nothing if that is not 0, without the host knowing. The
// parameters must then be on CUDA, and planned if the rule has scalars, else Runtime is raised.
TG_API void fused_step(const Rule& rule, std::span<const double> options, std::span<const Tensor> tensors,
                       std::span<StepEntry> entries, std::span<const Tensor> found_inf = {});

// grads *= scale, and found = 1 where an element was infinite or NaN before, else as it was. All floating point; found
// and scale have one element of float32; all on one device. Does not synchronise with the device.
TG_API void fused_unscale(std::span<const Tensor> grads, const Tensor& found, const Tensor& scale);

// The same step with tensor operators, recorded on the tape where it is on, so that a gradient flows through the step
// to gradients, parameters and options. An option that is a tensor (of one element) is in `tensors` at its place; the
// others are undefined there.
TG_API void recorded_step(const Rule& rule, std::span<const double> options, std::span<const Tensor> tensors,
                          std::span<StepEntry> entries);

}  // namespace tapegrad::nn
