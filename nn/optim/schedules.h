// Schedules of the learning rate. Each computes the rate of an epoch from the rate that a group had before the first
// schedule changed it (in closed form, so that set_epoch resumes anywhere); `step()` goes on by one epoch. The
// constructor sets the rate of epoch 0.
//
//   optim::LinearLR warm_up(optimizer, 0.1, 1, 5);
//   optim::CosineAnnealingLR cosine(optimizer, 95);
//   optim::SequentialLR schedule(optimizer, {&warm_up, &cosine}, {5});
//
// A schedule refers to its optimizer (and to the schedules that it combines), which must outlive it. One thread at a
// time. Invalid arguments raise Value.
#pragma once

#include <functional>
#include <vector>

#include "tapegrad/nn/optim/optimizers.h"

namespace tapegrad::optim {

class TG_API LRScheduler {
 public:
  virtual ~LRScheduler();
  LRScheduler(const LRScheduler&) = delete;
  LRScheduler& operator=(const LRScheduler&) = delete;
  void step() { set_epoch(epoch_ + 1); }
  void set_epoch(int64_t epoch);  // raises Value for a negative one
  int64_t epoch() const noexcept { return epoch_; }
  double base_lr(size_t group = 0) const { return base_lrs_.at(group); }
  std::vector<double> get_last_lr() const;  // the rate of each group
  Optimizer& optimizer() const noexcept { return optimizer_; }

  // The rate of an epoch for a group whose rate would be `base` without this schedule.
  virtual double lr_at(int64_t epoch, double base, size_t group) const = 0;

 protected:
  explicit LRScheduler(Optimizer& optimizer);
  // What else an epoch changes.
  virtual void apply(int64_t) {}
  size_t groups() const noexcept { return optimizer_.param_groups().size(); }
  ParamGroup& group(size_t i) const { return optimizer_.param_groups()[i]; }
  static void set_rate(ParamGroup& group, double lr) { group.options_.front() = lr; }
  // Sets the base rates of the groups; for schedules that define the rates themselves.
  void set_bases(const std::vector<double>& bases);

 private:
  Optimizer& optimizer_;
  std::vector<double> base_lrs_;
  int64_t epoch_ = 0;
};

// A number for all groups, or one per group.
class TG_API PerGroup {
 public:
  PerGroup(double value) : values_{value} {}
  PerGroup(std::initializer_list<double> values) : values_(values) {}
  PerGroup(std::vector<double> values) : values_(std::move(values)) {}
  std::vector<double> of(const char* what, size_t groups) const;  // raises Value for another number

 private:
  std::vector<double> values_;
};

using EpochFactor = std::function<double(int64_t)>;

// The first rate times a function of the epoch, one for all groups or one per group.
class TG_API LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, EpochFactor factor) : LambdaLR(optimizer, std::vector{std::move(factor)}) {}
  LambdaLR(Optimizer& optimizer, std::vector<EpochFactor> factors);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  std::vector<EpochFactor> factors_;
};

// The rate times the product of a function of the epochs from 1 on.
class TG_API MultiplicativeLR : public LRScheduler {
 public:
  MultiplicativeLR(Optimizer& optimizer, EpochFactor factor)
      : MultiplicativeLR(optimizer, std::vector{std::move(factor)}) {}
  MultiplicativeLR(Optimizer& optimizer, std::vector<EpochFactor> factors);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  std::vector<EpochFactor> factors_;
  mutable std::vector<std::vector<double>> products_;  // per function, of all epochs so far
};

// Times gamma every step_size epochs.
class TG_API StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  int64_t step_size_;
  double gamma_;
};

// Times gamma at each of the milestones.
class TG_API MultiStepLR : public LRScheduler {
 public:
  MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma = 0.1);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  std::vector<int64_t> milestones_;  // sorted
  double gamma_;
};

// Times factor for the first `total` epochs.
class TG_API ConstantLR : public LRScheduler {
 public:
  explicit ConstantLR(Optimizer& optimizer, double factor = 1.0 / 3, int64_t total = 5);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  double factor_;
  int64_t total_;
};

// From start_factor to end_factor of the rate in equal steps over total epochs.
class TG_API LinearLR : public LRScheduler {
 public:
  explicit LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1, int64_t total = 5);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  double start_, end_;
  int64_t total_;
};

// Times gamma every epoch.
class TG_API ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  double gamma_;
};

// Down to zero over `total` epochs, as a power of what is left.
class TG_API PolynomialLR : public LRScheduler {
 public:
  explicit PolynomialLR(Optimizer& optimizer, int64_t total = 5, double power = 1);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  int64_t total_;
  double power_;
};

// Down to eta_min along half a cosine of t_max epochs, and up again (Loshchilov and Hutter, 2017).
class TG_API CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min = 0);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  int64_t t_max_;
  double eta_min_;
};

// Half a cosine of t_0 epochs, then from the top again, each time t_mult times as long.
class TG_API CosineAnnealingWarmRestarts : public LRScheduler {
 public:
  CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t t_0, int64_t t_mult = 1, double eta_min = 0);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  int64_t t_0_, t_mult_;
  double eta_min_;
};

// One schedule after the other, changing at the milestones, where the next begins with its epoch 0.
class TG_API SequentialLR : public LRScheduler {
 public:
  SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedules, std::vector<int64_t> milestones);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  std::vector<LRScheduler*> schedules_;
  std::vector<int64_t> milestones_;
};

// Several schedules at once: each changes the rate that those before it give.
class TG_API ChainedScheduler : public LRScheduler {
 public:
  explicit ChainedScheduler(std::vector<LRScheduler*> schedules);
  double lr_at(int64_t epoch, double base, size_t group) const override;

 private:
  std::vector<LRScheduler*> schedules_;
};

struct ReduceLROnPlateauOptions {
  bool larger_is_better = false;  // Python's mode "max"
  double factor = 0.1;
  int64_t patience = 10;
  double threshold = 1e-4;
  bool threshold_is_relative = true;  // Python's threshold_mode
  int64_t cooldown = 0;
  double min_lr = 0;
  double eps = 1e-8;  // smaller changes of the rate are left out
};

// Multiplies the rate by a factor when a metric has not improved for more than `patience` epochs. Not an LRScheduler:
// its step takes the metric.
class TG_API ReduceLROnPlateau {
 public:
  explicit ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options = {});
  void step(double measure);
  int64_t num_bad_epochs() const noexcept { return bad_; }
  double best() const noexcept { return best_; }

 private:
  bool is_better(double measure) const;

  Optimizer& optimizer_;
  ReduceLROnPlateauOptions options_;
  double best_;
  int64_t bad_ = 0, cooling_ = 0;
};

}  // namespace tapegrad::optim
