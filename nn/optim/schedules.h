// Schedules of the learning rate. Each computes the rate of an epoch from the rate that the optimizer had when the
// schedule was made (in closed form, so that set_epoch resumes anywhere); `step()` goes on by one epoch.
//
// A schedule refers to its optimizer, which has to live as long. One thread at a time.
#pragma once

#include <functional>

#include "tapegrad/nn/optim/optimizers.h"

namespace tapegrad::optim {

class TG_API LRScheduler {
 public:
  virtual ~LRScheduler();
  void step() { set_epoch(epoch_ + 1); }
  void set_epoch(int64_t epoch);  // raises Value for a negative one
  int64_t epoch() const noexcept { return epoch_; }
  double base_lr() const noexcept { return base_lr_; }

 protected:
  explicit LRScheduler(Optimizer& optimizer) : optimizer_(optimizer), base_lr_(optimizer.lr()) {}
  virtual double lr_at(int64_t epoch) const = 0;

 private:
  Optimizer& optimizer_;
  double base_lr_;
  int64_t epoch_ = 0;
};

// Times gamma every step_size epochs.
class TG_API StepLR : public LRScheduler {
 public:
  StepLR(Optimizer& optimizer, int64_t step_size, double gamma = 0.1);

 protected:
  double lr_at(int64_t epoch) const override;

 private:
  int64_t step_size_;
  double gamma_;
};

// Times gamma every epoch.
class TG_API ExponentialLR : public LRScheduler {
 public:
  ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) {}

 protected:
  double lr_at(int64_t epoch) const override;

 private:
  double gamma_;
};

// Down to eta_min along half a cosine of t_max epochs, and up again (Loshchilov and Hutter, 2017).
class TG_API CosineAnnealingLR : public LRScheduler {
 public:
  CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min = 0);

 protected:
  double lr_at(int64_t epoch) const override;

 private:
  int64_t t_max_;
  double eta_min_;
};

// From start_factor to end_factor of the rate in equal steps over total epochs; sets the first rate at once.
class TG_API LinearLR : public LRScheduler {
 public:
  LinearLR(Optimizer& optimizer, double start_factor = 1.0 / 3, double end_factor = 1, int64_t total = 5);

 protected:
  double lr_at(int64_t epoch) const override;

 private:
  double start_, end_;
  int64_t total_;
};

// The first rate times a function of the epoch; sets the rate of epoch 0 at once.
class TG_API LambdaLR : public LRScheduler {
 public:
  LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> factor);

 protected:
  double lr_at(int64_t epoch) const override;

 private:
  std::function<double(int64_t)> factor_;
};

}  // namespace tapegrad::optim
