#include "tapegrad/nn/optim/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tapegrad::optim {
namespace {

double as_double(int64_t n) { return static_cast<double>(n); }

double half_cosine(double from, double to, double part) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * part)) / 2;
}

void check_functions(const char* name, const std::vector<EpochFactor>& factors, size_t groups) {
  TG_CHECK(factors.size() == 1 || factors.size() == groups, Value,
           "{}: expected one function, or one per group: got {}", name, factors.size());
  for (const EpochFactor& f : factors) TG_CHECK(f, Value, "{}: the function is empty", name);
}

}  // namespace

LRScheduler::LRScheduler(Optimizer& optimizer) : optimizer_(optimizer) {
  for (ParamGroup& group : optimizer.param_groups()) {
    if (!group.initial_lr_) group.initial_lr_ = group.lr();
    base_lrs_.push_back(*group.initial_lr_);
  }
}

LRScheduler::~LRScheduler() = default;

void LRScheduler::set_bases(const std::vector<double>& bases) {
  for (size_t i = 0; i < bases.size(); ++i) group(i).initial_lr_ = bases[i];
  base_lrs_ = bases;
}

void LRScheduler::set_epoch(int64_t epoch) {
  TG_CHECK(epoch >= 0, Value, "schedule: expected an epoch that is not negative: got {}", epoch);
  for (size_t i = base_lrs_.size(); i < groups(); ++i)  // groups that came later
    base_lrs_.push_back(group(i).initial_lr_.emplace(group(i).initial_lr_.value_or(group(i).lr())));
  std::vector<double> rates;
  for (size_t i = 0; i < groups(); ++i) rates.push_back(lr_at(epoch, base_lrs_[i], i));
  for (size_t i = 0; i < groups(); ++i) set_rate(group(i), rates[i]);
  apply(epoch);
  epoch_ = epoch;
}

std::vector<double> LRScheduler::get_last_lr() const {
  std::vector<double> rates;
  for (const ParamGroup& group : optimizer_.param_groups()) rates.push_back(group.lr());
  return rates;
}

std::vector<double> PerGroup::of(const char* what, size_t groups) const {
  TG_CHECK(values_.size() == 1 || values_.size() == groups, Value,
           "schedule: expected one {}, or one for each of {} groups: got {}", what, groups, values_.size());
  return values_.size() == groups ? values_ : std::vector<double>(groups, values_[0]);
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::vector<EpochFactor> factors)
    : LRScheduler(optimizer), factors_(std::move(factors)) {
  check_functions("LambdaLR", factors_, groups());
  set_epoch(0);
}
double LambdaLR::lr_at(int64_t epoch, double base, size_t group) const {
  return base * factors_[factors_.size() == 1 ? 0 : group](epoch);
}

MultiplicativeLR::MultiplicativeLR(Optimizer& optimizer, std::vector<EpochFactor> factors)
    : LRScheduler(optimizer), factors_(std::move(factors)), products_(factors_.size(), {1.0}) {
  check_functions("MultiplicativeLR", factors_, groups());
}
double MultiplicativeLR::lr_at(int64_t epoch, double base, size_t group) const {
  const size_t which = factors_.size() == 1 ? 0 : group;
  std::vector<double>& products = products_[which];
  while (static_cast<int64_t>(products.size()) <= epoch)
    products.push_back(products.back() * factors_[which](static_cast<int64_t>(products.size())));
  return base * products[static_cast<size_t>(epoch)];
}

StepLR::StepLR(Optimizer& optimizer, int64_t step_size, double gamma)
    : LRScheduler(optimizer), step_size_(step_size), gamma_(gamma) {
  TG_CHECK(step_size > 0, Value, "StepLR: expected a positive step_size: got {}", step_size);
}
double StepLR::lr_at(int64_t epoch, double base, size_t) const {
  return base * std::pow(gamma_, as_double(epoch / step_size_));
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, std::vector<int64_t> milestones, double gamma)
    : LRScheduler(optimizer), milestones_(std::move(milestones)), gamma_(gamma) {
  std::sort(milestones_.begin(), milestones_.end());
}
double MultiStepLR::lr_at(int64_t epoch, double base, size_t) const {
  const auto passed = std::upper_bound(milestones_.begin(), milestones_.end(), epoch) - milestones_.begin();
  return base * std::pow(gamma_, as_double(passed));
}

ConstantLR::ConstantLR(Optimizer& optimizer, double factor, int64_t total)
    : LRScheduler(optimizer), factor_(factor), total_(total) {
  TG_CHECK(factor >= 0 && factor <= 1, Value, "ConstantLR: the factor must be between 0 and 1: got {}", factor);
  set_epoch(0);
}
double ConstantLR::lr_at(int64_t epoch, double base, size_t) const { return epoch < total_ ? base * factor_ : base; }

LinearLR::LinearLR(Optimizer& optimizer, double start_factor, double end_factor, int64_t total)
    : LRScheduler(optimizer), start_(start_factor), end_(end_factor), total_(total) {
  TG_CHECK(start_ > 0 && start_ <= 1, Value, "LinearLR: start_factor must be more than 0 and at most 1: got {}",
           start_);
  TG_CHECK(end_ >= 0 && end_ <= 1, Value, "LinearLR: end_factor must be between 0 and 1: got {}", end_);
  TG_CHECK(total > 0, Value, "LinearLR: expected a positive number of epochs: got {}", total);
  set_epoch(0);
}
double LinearLR::lr_at(int64_t epoch, double base, size_t) const {
  const double done = as_double(std::min(epoch, total_)) / as_double(total_);
  return base * (start_ + (end_ - start_) * done);
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, double gamma) : LRScheduler(optimizer), gamma_(gamma) {}
double ExponentialLR::lr_at(int64_t epoch, double base, size_t) const {
  return base * std::pow(gamma_, as_double(epoch));
}

PolynomialLR::PolynomialLR(Optimizer& optimizer, int64_t total, double power)
    : LRScheduler(optimizer), total_(total), power_(power) {
  TG_CHECK(total > 0, Value, "PolynomialLR: expected a positive number of epochs: got {}", total);
}
double PolynomialLR::lr_at(int64_t epoch, double base, size_t) const {
  return base * std::pow(1 - as_double(std::min(epoch, total_)) / as_double(total_), power_);
}

CosineAnnealingLR::CosineAnnealingLR(Optimizer& optimizer, int64_t t_max, double eta_min)
    : LRScheduler(optimizer), t_max_(t_max), eta_min_(eta_min) {
  TG_CHECK(t_max > 0, Value, "CosineAnnealingLR: expected a positive t_max: got {}", t_max);
}
double CosineAnnealingLR::lr_at(int64_t epoch, double base, size_t) const {
  return half_cosine(base, eta_min_, as_double(epoch) / as_double(t_max_));
}

CosineAnnealingWarmRestarts::CosineAnnealingWarmRestarts(Optimizer& optimizer, int64_t t_0, int64_t t_mult,
                                                         double eta_min)
    : LRScheduler(optimizer), t_0_(t_0), t_mult_(t_mult), eta_min_(eta_min) {
  TG_CHECK(t_0 > 0 && t_mult > 0, Value, "CosineAnnealingWarmRestarts: expected positive t_0 and t_mult: got {} and {}",
           t_0, t_mult);
}
double CosineAnnealingWarmRestarts::lr_at(int64_t epoch, double base, size_t) const {
  int64_t length = t_0_;
  if (t_mult_ == 1) epoch %= t_0_;
  while (epoch >= length) {
    epoch -= length;
    length *= t_mult_;
  }
  return half_cosine(base, eta_min_, as_double(epoch) / as_double(length));
}

namespace {

void check_schedules(const char* name, const std::vector<LRScheduler*>& schedules) {
  TG_CHECK(!schedules.empty(), Value, "{}: expected at least one schedule", name);
  for (const LRScheduler* s : schedules)
    TG_CHECK(s && &s->optimizer() == &schedules[0]->optimizer(), Value,
             "{}: expected all schedules to belong to the same optimizer", name);
}

Optimizer& common_optimizer(const char* name, const std::vector<LRScheduler*>& schedules) {
  check_schedules(name, schedules);
  return schedules[0]->optimizer();
}

}  // namespace

SequentialLR::SequentialLR(Optimizer& optimizer, std::vector<LRScheduler*> schedules, std::vector<int64_t> milestones)
    : LRScheduler(optimizer), schedules_(std::move(schedules)), milestones_(std::move(milestones)) {
  TG_CHECK(&common_optimizer("SequentialLR", schedules_) == &optimizer, Value,
           "SequentialLR: expected schedules of this optimizer");
  TG_CHECK(milestones_.size() + 1 == schedules_.size() && std::is_sorted(milestones_.begin(), milestones_.end()), Value,
           "SequentialLR: expected rising milestones, one less than schedules: got {} and {}", format_ints(milestones_),
           schedules_.size());
  set_epoch(0);
}
double SequentialLR::lr_at(int64_t epoch, double base, size_t group) const {
  const auto i =
      static_cast<size_t>(std::upper_bound(milestones_.begin(), milestones_.end(), epoch) - milestones_.begin());
  return schedules_[i]->lr_at(epoch - (i ? milestones_[i - 1] : 0), base, group);
}

ChainedScheduler::ChainedScheduler(std::vector<LRScheduler*> schedules)
    : LRScheduler(common_optimizer("ChainedScheduler", schedules)), schedules_(std::move(schedules)) {
  set_epoch(0);
}
double ChainedScheduler::lr_at(int64_t epoch, double base, size_t group) const {
  for (const LRScheduler* s : schedules_) base = s->lr_at(epoch, base, group);
  return base;
}

ReduceLROnPlateau::ReduceLROnPlateau(Optimizer& optimizer, const ReduceLROnPlateauOptions& options)
    : optimizer_(optimizer),
      options_(options),
      best_((options.larger_is_better ? -1 : 1) * std::numeric_limits<double>::infinity()) {
  TG_CHECK(options.factor < 1, Value, "ReduceLROnPlateau: the factor should be less than 1: got {}", options.factor);
}

bool ReduceLROnPlateau::is_better(double measure) const {
  const double sign = options_.larger_is_better ? -1 : 1;
  if (options_.threshold_is_relative) return sign * measure < sign * best_ * (1 - sign * options_.threshold);
  return sign * measure < sign * best_ - options_.threshold;
}

void ReduceLROnPlateau::step(double measure) {
  if (is_better(measure)) {
    best_ = measure;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooling_ > 0) {
    --cooling_;
    bad_ = 0;
  }
  if (bad_ <= options_.patience) return;
  for (ParamGroup& group : optimizer_.param_groups()) {
    const double lr = std::max(group.lr() * options_.factor, options_.min_lr);
    if (group.lr() - lr > options_.eps) group.set_lr(lr);
  }
  cooling_ = options_.cooldown;
  bad_ = 0;
}

}  // namespace tapegrad::optim
