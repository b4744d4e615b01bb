#include "tapegrad/nn/optim/cycles.h"

#include <cmath>
#include <numbers>

namespace tapegrad::optim {

MomentumCycle::MomentumCycle(Optimizer& optimizer, bool cycle_momentum, const PerGroup& base_momentum,
                             const PerGroup& max_momentum)
    : LRScheduler(optimizer),
      cycles_(cycle_momentum),
      lowest_(base_momentum.of("base_momentum", groups())),
      highest_(max_momentum.of("max_momentum", groups())) {
  TG_CHECK(!cycles_ || group(0).has("momentum") || group(0).has("betas", 0), Value,
           "schedule: the optimizer must have momentum or betas where cycle_momentum is on");
}

void MomentumCycle::set_momentum(size_t i, double value) const {
  if (group(i).has("momentum"))
    group(i).set("momentum", value);
  else
    group(i).set("betas", value, 0);
}

CyclicLR::CyclicLR(Optimizer& optimizer, const PerGroup& base_lr, const PerGroup& max_lr, const CyclicLROptions& given)
    : MomentumCycle(optimizer, given.cycle_momentum, given.base_momentum, given.max_momentum),
      options_(given),
      max_lrs_(max_lr.of("max_lr", groups())) {
  TG_CHECK(options_.step_size_up > 0 && options_.step_size_down.value_or(1) > 0, Value,
           "CyclicLR: expected positive step sizes: got {} and {}", options_.step_size_up,
           options_.step_size_down.value_or(options_.step_size_up));
  TG_CHECK(options_.mode == "triangular" || options_.mode == "triangular2" || options_.mode == "exp_range", Value,
           "CyclicLR: the mode is unknown: '{}'", options_.mode);
  set_bases(base_lr.of("base_lr", groups()));
  set_epoch(0);
}

double CyclicLR::amplitude(int64_t step) const {
  const auto up = static_cast<double>(options_.step_size_up), at = static_cast<double>(step);
  const double total = up + (options_.step_size_down ? static_cast<double>(*options_.step_size_down) : up);
  const double ratio = up / total, cycle = std::floor(1 + at / total), x = 1.0 + at / total - cycle;
  const double height = x <= ratio ? x / ratio : (x - 1) / (ratio - 1);
  if (options_.mode == "triangular") return height;
  return height * (options_.mode == "triangular2" ? 1 / std::pow(2.0, cycle - 1) : std::pow(options_.gamma, at));
}

double CyclicLR::lr_at(int64_t step, double base, size_t group) const {
  return base + (max_lrs_.at(group) - base) * amplitude(step);
}

void CyclicLR::apply(int64_t step) {
  for (size_t i = 0; cycles_momentum() && i < groups(); ++i)
    set_momentum(i, highest_momentum(i) - (highest_momentum(i) - lowest_momentum(i)) * amplitude(step));
}

OneCycleLR::OneCycleLR(Optimizer& optimizer, const PerGroup& max_lr, int64_t total_steps,
                       const OneCycleLROptions& given)
    : MomentumCycle(optimizer, given.cycle_momentum, given.base_momentum, given.max_momentum),
      options_(given),
      total_steps_(total_steps),
      max_lrs_(max_lr.of("max_lr", groups())) {
  TG_CHECK(total_steps > 0, Value, "OneCycleLR: expected a positive number of steps: got {}", total_steps);
  TG_CHECK(options_.pct_start >= 0 && options_.pct_start <= 1, Value,
           "OneCycleLR: pct_start must be between 0 and 1: got {}", options_.pct_start);
  TG_CHECK(options_.anneal_strategy == "cos" || options_.anneal_strategy == "linear", Value,
           "OneCycleLR: anneal_strategy must be 'cos' or 'linear': got '{}'", options_.anneal_strategy);
  const double rise = options_.pct_start * static_cast<double>(total_steps);
  const auto end = static_cast<double>(total_steps - 1);
  if (options_.three_phase)
    phases_ = {{rise - 1, first, highest}, {2 * rise - 2, highest, first}, {end, first, last}};
  else
    phases_ = {{rise - 1, first, highest}, {end, highest, last}};
  std::vector<double> bases;
  for (double most : max_lrs_) bases.push_back(most / options_.div_factor);
  set_bases(bases);
  set_epoch(0);
}

double OneCycleLR::annealed(double from, double to, double part) const {
  if (options_.anneal_strategy == "linear") return (to - from) * part + from;
  return to + (from - to) / 2.0 * (std::cos(std::numbers::pi * part) + 1);
}

const OneCycleLR::Phase& OneCycleLR::phase_of(int64_t step, double& part) const {
  TG_CHECK(step <= total_steps_, Value, "OneCycleLR: tried to go to step {} of {}", step, total_steps_);
  double start = 0;
  size_t i = 0;
  for (; i + 1 < phases_.size() && static_cast<double>(step) > phases_[i].end; ++i) start = phases_[i].end;
  const double length = phases_[i].end - start;
  part = length == 0 ? 1 : (static_cast<double>(step) - start) / length;
  return phases_[i];
}

double OneCycleLR::rate(Level level, size_t group) const {
  const double lowest = max_lrs_.at(group) / options_.div_factor;
  return level == highest ? max_lrs_.at(group) : level == first ? lowest : lowest / options_.final_div_factor;
}

double OneCycleLR::lr_at(int64_t step, double, size_t group) const {
  double part = 0;
  const Phase& phase = phase_of(step, part);
  return annealed(rate(phase.from, group), rate(phase.to, group), part);
}

void OneCycleLR::apply(int64_t step) {
  double part = 0;
  const Phase& phase = phase_of(step, part);
  for (size_t i = 0; cycles_momentum() && i < groups(); ++i) {
    const auto momentum = [&](Level level) { return level == highest ? lowest_momentum(i) : highest_momentum(i); };
    set_momentum(i, annealed(momentum(phase.from), momentum(phase.to), part));
  }
}

}  // namespace tapegrad::optim
