// Schedules that go up and down: CyclicLR and OneCycleLR. Both move the momentum in the opposite direction: the option
// "momentum" of the groups, or the first of their "betas". Value is raised if they have neither.
#pragma once

#include <optional>

#include "tapegrad/nn/optim/schedules.h"

namespace tapegrad::optim {

// Base of both: the groups' momentum between two limits.
class TG_API MomentumCycle : public LRScheduler {
 protected:
  MomentumCycle(Optimizer& optimizer, bool cycle_momentum, const PerGroup& base_momentum, const PerGroup& max_momentum);
  bool cycles_momentum() const noexcept { return cycles_; }
  double lowest_momentum(size_t group) const { return lowest_[group]; }
  double highest_momentum(size_t group) const { return highest_[group]; }
  void set_momentum(size_t group, double value) const;

 private:
  bool cycles_;
  std::vector<double> lowest_, highest_;
};

struct CyclicLROptions {
  int64_t step_size_up = 2000;
  std::optional<int64_t> step_size_down = {};  // as many as up
  std::string mode = "triangular";             // or "triangular2" (the amplitude halves in each cycle), "exp_range"
  double gamma = 1;                            // of exp_range: the amplitude's factor of each step
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.8, max_momentum = 0.9;
};

// Up from base_lr to max_lr and down again, over and over (Smith, 2017).
class TG_API CyclicLR : public MomentumCycle {
 public:
  CyclicLR(Optimizer& optimizer, const PerGroup& base_lr, const PerGroup& max_lr, const CyclicLROptions& options = {});
  double lr_at(int64_t step, double base, size_t group) const override;

 protected:
  void apply(int64_t step) override;

 private:
  double amplitude(int64_t step) const;  // of the way from low to high

  CyclicLROptions options_;
  std::vector<double> max_lrs_;
};

struct OneCycleLROptions {
  double pct_start = 0.3;               // part of the steps on which the rate rises
  std::string anneal_strategy = "cos";  // or "linear"
  bool cycle_momentum = true;
  PerGroup base_momentum = 0.85, max_momentum = 0.95;
  double div_factor = 25;         // the first rate is max_lr / div_factor
  double final_div_factor = 1e4;  // the last one is the first / final_div_factor
  bool three_phase = false;
};

// Up to max_lr and down to almost nothing within total_steps (Smith and Topin, 2019). Steps beyond raise Value.
class TG_API OneCycleLR : public MomentumCycle {
 public:
  OneCycleLR(Optimizer& optimizer, const PerGroup& max_lr, int64_t total_steps, const OneCycleLROptions& options = {});
  double lr_at(int64_t step, double base, size_t group) const override;

 protected:
  void apply(int64_t step) override;

 private:
  enum Level { first, highest, last };  // of the rate
  struct Phase {
    double end;
    Level from, to;
  };
  double annealed(double from, double to, double part) const;
  const Phase& phase_of(int64_t step, double& part) const;
  double rate(Level level, size_t group) const;

  OneCycleLROptions options_;
  int64_t total_steps_;
  std::vector<double> max_lrs_;
  std::vector<Phase> phases_;
};

}  // namespace tapegrad::optim
