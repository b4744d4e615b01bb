#include "tapegrad/nn/optim/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tapegrad::optim {

LRScheduler::~LRScheduler() = default;

void LRScheduler::set_epoch(int64_t epoch) {
  TG_CHECK(epoch >= 0, Value, "schedule: expected an epoch that is not negative: got {}", epoch);
  const double lr = lr_at(epoch);
  epoch_ = epoch;
  optimizer_.set_lr(lr);
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  TG_CHECK(step_size > 0, Value, "StepLR: expected a positive step_size: got {}", step_size);
}
double StepLR::lr_at(int64_t epoch) const {
  return base_lr() * std::pow(gamma_, static_cast<double>(epoch / step_size_));
}

double ExponentialLR::lr_at(int64_t epoch) const { return base_lr() * std::pow(gamma_, static_cast<double>(epoch)); }

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min)
    : LRScheduler(optimizer), t_max_(t_max), eta_min_(eta_min) {
  TG_CHECK(t_max > 0, Value, "CosineAnnealingLR: expected a positive t_max: got {}", t_max);
}
double CosineAnnealingLR::lr_at(int64_t epoch) const {
  const double part = static_cast<double>(epoch) / static_cast<double>(t_max_);
  return eta_min_ + (base_lr() - eta_min_) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, int64_t total)
    : LRScheduler(optimizer), start_(start_factor), end_(end_factor), total_(total) {
  TG_CHECK(start_ > 0 && start_ <= 1, Value, "LinearLR: start_factor must be more than 0 and at most 1: got {}",
           start_);
  TG_CHECK(end_ >= 0 && end_ <= 1, Value, "LinearLR: end_factor must be between 0 and 1: got {}", end_);
  TG_CHECK(total > 0, Value, "LinearLR: expected a positive number of epochs: got {}", total);
  set_epoch(0);
}
double LinearLR::lr_at(int64_t epoch) const {
  const double done = static_cast<double>(std::min(epoch, total_)) / static_cast<double>(total_);
  return base_lr() * (start_ + (end_ - start_) * done);
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> factor)
    : LRScheduler(optimizer), factor_(std::move(factor)) {
  TG_CHECK(factor_, Value, "LambdaLR: the function is empty");
  set_epoch(0);
}
double LambdaLR::lr_at(int64_t epoch) const { return base_lr() * factor_(epoch); }

}  // namespace tapegrad::optim
