#include "tapegrad/nn/optim/fused.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/record/recording.h"
#include "tapegrad/autograd/profiler/call_site.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad {

namespace nn {
namespace {

using optim::device_steps, optim::PlanRun, optim::RuleRun;

// Elements per thread that pay for waking it.
constexpr int64_t kGrain = 16384;

TG_COLD void refuse_entry(const char* op, const Tensor& param, const Tensor& other, const char* what) {
  TG_CHECK(other.sizes() == param.sizes(), Runtime, "{}: the {} has another shape than its parameter: {} and {}", op,
           what, format_ints(other.sizes()), format_ints(param.sizes()));
  TG_CHECK(other.dtype() == param.dtype(), Runtime, "{}: the {} has another dtype than its parameter: {} and {}", op,
           what, other.dtype(), param.dtype());
  TG_CHECK(other.device() == param.device(), Runtime, "{}: the {} is on another device than its parameter: {} and {}",
           op, what, other.device(), param.device());
}

bool is_alike(const TensorImpl& a, const TensorImpl& b) {
  bool alike = a.ndim() == b.ndim() && a.dtype() == b.dtype() && a.device() == b.device();
  for (int d = 0; alike && d < a.ndim(); ++d) alike = a.size(d) == b.size(d);
  return alike;
}

void check_entry(const char* op, const Tensor& param, const Tensor& other, const char* what) {
  if (TG_UNLIKELY(!is_alike(*param.impl(), *other.impl()))) refuse_entry(op, param, other, what);
}

// The loops walk memory in one run per tensor, so all tensors of an entry must lie in memory in the same order.
// Those that do not are replaced by copies in the parameter's order, and written back in the end.
class Layouts {
 public:
  explicit Layouts(const char* op) : op_(op), site_(autograd::current_site()) {}

  void param(const Tensor& p) {
    TG_CHECK(is_floating_point(p.dtype()) || is_complex(p.dtype()), Runtime,
             "{}: expected a floating point or complex parameter: got {}", op_, p.dtype());
    TG_CHECK(p.is_cpu() || (p.is_cuda() && device_steps.load() != nullptr), NotImplemented,
             "{}: no kernel for tensors on {}", op_, p.device());
    dense_ = p.impl()->is_non_overlapping_and_dense();
    param_ = &p;
  }
  void* written(const Tensor& t, const char* what) {
    check_entry(op_, *param_, t, what);
    t.impl()->bump_version(op_, site_);
    if (fits(t)) return use(t).data_ptr();
    Tensor copy = matching(t);
    back_.emplace_back(t, copy);
    return use(copy).data_ptr();
  }
  const void* read(const Tensor& t, const char* what) {
    check_entry(op_, *param_, t, what);
    if (fits(t)) return use(t).data_ptr();
    keep_.push_back(matching(t));
    return use(keep_.back()).data_ptr();
  }
  // What the runs of parameters on another device than the CPU point to.
  std::span<const Tensor> operands() const { return operands_; }
  void write_back() {
    for (const auto& [target, copy] : back_) target.copy_(copy);
  }

 private:
  bool fits(const Tensor& t) const {
    if (t.is_contiguous() && param_->is_contiguous()) return true;
    return dense_ && t.strides() == param_->strides();
  }
  const Tensor& use(const Tensor& t) {
    if (!t.is_cpu()) operands_.push_back(t);
    return t;
  }
  Tensor matching(const Tensor& t) const {
    TensorSpec spec{DimVector(t.sizes()), t.dtype(), t.device(), {}};
    if (dense_) spec.strides = DimVector(param_->strides());
    Tensor copy = empty_tensor(spec);
    copy.copy_(t);
    return copy;
  }

  const char* op_;
  uint32_t site_;
  const Tensor* param_ = nullptr;
  bool dense_ = true;
  std::vector<Tensor> keep_, operands_;
  std::vector<std::pair<Tensor, Tensor>> back_;
};

// The tensor that is on this device, or none.
Tensor on(Device device, std::span<const Tensor> tensors) {
  for (const Tensor& t : tensors)
    if (t.device() == device) return t;
  return {};
}

void check_found_inf(const Rule& rule, std::span<const StepEntry> entries, std::span<const Tensor> found_inf) {
  if (found_inf.empty()) return;
  for (const Tensor& t : found_inf)
    TG_CHECK(t.numel() == 1 && t.dtype() == DType::float32 && t.is_cuda(), Runtime,
             "{}: found_inf must have one element of float32 on a CUDA device: got shape {} of {} on {}", rule.name,
             format_ints(t.sizes()), t.dtype(), t.device());
  for (const StepEntry& e : entries) {
    TG_CHECK(on(e.param.device(), found_inf).defined(), Runtime,
             "{}: found_inf is not on the device of a parameter: got a parameter on {}", rule.name, e.param.device());
    TG_CHECK(e.planned || rule.scalars.empty(), Runtime,
             "{}: with found_inf the host does not know whether the step is taken, and cannot count it\n{}", rule.name,
             "hint: make the optimizer with capturable=True, so that the device counts");
  }
}

// The runs of a step; all their elements form one range that the threads share.
class Batch {
 public:
  explicit Batch(size_t n) {
    runs_.reserve(n);
    dtypes_.reserve(n);
    ends_.reserve(n);
  }
  void add(const RuleRun& run, DType dtype) {
    if (run.n == 0) return;
    RuleRun& added = runs_.emplace_back(run);
    if (is_complex(dtype)) added.n *= 2;  // real and imaginary part are numbers of their own
    dtypes_.push_back(to_real(dtype));
    ends_.push_back(added.n + (ends_.empty() ? 0 : ends_.back()));
  }

  void run(int rule, std::span<const Tensor> operands, Device device, const Tensor& found_inf) const {
    if (runs_.empty()) return;
    if (device.type != DeviceType::CPU) return device_steps.load()->step(rule, runs_, dtypes_, operands, found_inf);
    const optim::RuleKernel kernel = optim::cpu_steps();
    parallel_for(0, ends_.back(), kGrain, [&](int64_t first, int64_t last) {
      size_t i = static_cast<size_t>(std::upper_bound(ends_.begin(), ends_.end(), first) - ends_.begin());
      while (first < last) {
        const int64_t start = ends_[i] - runs_[i].n;
        const int64_t stop = std::min(last, ends_[i]);
        if (stop - first == runs_[i].n)
          kernel(rule, dtypes_[i], runs_[i]);
        else
          kernel(rule, dtypes_[i], part(runs_[i], dtypes_[i], first - start, stop - first));
        first = stop;
        ++i;
      }
    });
  }

 private:
  static RuleRun part(RuleRun run, DType dtype, int64_t from, int64_t n) {
    const int64_t bytes = from * static_cast<int64_t>(element_size(dtype));
    run.param = static_cast<char*>(run.param) + bytes;
    run.grad = static_cast<const char*>(run.grad) + bytes;
    for (void*& state : run.states)
      if (state != nullptr) state = static_cast<char*>(state) + bytes;
    run.n = n;
    return run;
  }

  std::vector<RuleRun> runs_;
  std::vector<DType> dtypes_;
  std::vector<int64_t> ends_;  // position in the range after each run
};

// The constants of each parameter's step. Most parameters are of one age, and have those of the one before: powers of
// the betas would be a good part of a small step.
class Constants {
 public:
  Constants(const Rule& rule, std::span<const double> options) : rule_(rule), options_(options) {}

  void prepare(rules::Scalars<double>& scalars, rules::Plan<double>& plan) {
    if (!rule_.scalars.empty()) scalars.values[0] += 1;
    if (!made_ || !is_same(scalars, before_)) {
      before_ = scalars;
      plan_ = {};
      rule_.prepare(options_.data(), scalars, plan_);
      after_ = scalars;
      made_ = true;
    }
    scalars = after_;
    plan = plan_;
  }

 private:
  static bool is_same(const rules::Scalars<double>& a, const rules::Scalars<double>& b) {
    return std::memcmp(a.values, b.values, sizeof a.values) == 0 && a.first == b.first && a.single == b.single;
  }
  const Rule& rule_;
  std::span<const double> options_;
  bool made_ = false;
  rules::Scalars<double> before_, after_;
  rules::Plan<double> plan_;
};

// Whether all tensors of an entry lie in the CPU's memory one element behind the other.
bool is_plain(const StepEntry& e, int states) {
  const TensorImpl& param = *e.param.impl();
  const auto goes_with = [&](const Tensor& t) { return t.impl()->is_contiguous() && is_alike(param, *t.impl()); };
  if (e.planned || !param.device().is_cpu() || !param.is_contiguous() || !goes_with(e.grad)) return false;
  if (!is_floating_point(param.dtype()) && !is_complex(param.dtype())) return false;
  for (int k = 0; k < states; ++k)
    if (!goes_with(e.states[k])) return false;
  return true;
}

// A step of few elements, whose preparation would take longer than its loops. False, and nothing done, where it is
// none.
bool take_small_step(const Rule& rule, std::span<const double> options, std::span<StepEntry> entries, int states) {
  int64_t left = kGrain;
  for (const StepEntry& e : entries)
    if (e.grad.defined() && (!is_plain(e, states) || (left -= e.param.numel()) < 0)) return false;
  const uint32_t site = autograd::current_site();
  const optim::RuleKernel kernel = optim::cpu_steps();
  Constants constants(rule, options);
  RuleRun run{};
  for (StepEntry& e : entries) {
    if (!e.grad.defined()) continue;
    TensorImpl& param = *e.param.impl();
    constants.prepare(e.scalars, run.plan);
    const bool pairs = is_complex(param.dtype());
    run.n = pairs ? 2 * param.numel() : param.numel();
    run.param = param.data();
    run.grad = e.grad.impl()->data();
    param.bump_version(rule.name, site);
    for (int k = 0; k < states; ++k) {
      run.states[k] = e.states[k].impl()->data();
      e.states[k].impl()->bump_version(rule.name, site);
    }
    if (run.n > 0) kernel(rule.index, pairs ? to_real(param.dtype()) : param.dtype(), run);
  }
  return true;
}

// The steps that devices plan themselves: where their plans are to lie, and what the plans are made from.
class Plans {
 public:
  Plans(size_t entries, std::span<const double> options, std::span<const Tensor> tensors)
      : entries_(entries), options_(options), tensors_(tensors) {}

  const rules::Plan<double>* add(StepEntry& e, size_t num_scalars) {
    Group& group = of(e.param.device());
    auto* plan = static_cast<rules::Plan<double>*>(group.operands[0].data_ptr()) + group.runs.size();
    PlanRun run{{}, plan, true, e.scalars.first};
    for (size_t i = 0; i < num_scalars; ++i) {
      const Tensor& count = e.counts[i];
      TG_CHECK(count.numel() == 1 && count.device() == e.param.device() && count.dtype() == e.counts[0].dtype() &&
                   (count.dtype() == DType::float32 || count.dtype() == DType::float64),
               Runtime, "optimizer step: numbers that the device counts are one float there: got shape {} of {} on {}",
               format_ints(count.sizes()), count.dtype(), count.device());
      run.single = count.dtype() == DType::float32;
      run.scalars[i] = count.data_ptr();
      group.operands.push_back(count);
    }
    group.runs.push_back(run);
    return plan;
  }
  void run(const Rule& rule, std::span<const Tensor> found_inf) const {
    for (const Group& group : groups_)
      device_steps.load()->plan(rule.index, group.runs, group.options, group.operands, on(group.device, found_inf));
  }

 private:
  struct Group {
    Device device;
    std::vector<PlanRun> runs;
    std::vector<Tensor> operands;  // the plans first
    optim::PlanOptions options{};
  };
  Group& of(Device device) {
    for (Group& known : groups_)
      if (known.device == device) return known;
    Group& group = groups_.emplace_back();
    group.device = device;
    const auto nbytes = static_cast<int64_t>(entries_ * sizeof(rules::Plan<double>));
    group.operands.push_back(empty_tensor(DimVector{nbytes}, DType::uint8, device));
    std::copy(options_.begin(), options_.end(), group.options.numbers);
    for (size_t i = 0; i < tensors_.size(); ++i) {
      if (!tensors_[i].defined()) continue;
      TG_CHECK(tensors_[i].numel() == 1, Runtime,
               "optimizer step: an option that is a tensor has one element: got shape {}",
               format_ints(tensors_[i].sizes()));
      group.operands.push_back(raw::to(tensors_[i], DType::float64, device));
      group.options.tensors[i] = static_cast<const double*>(group.operands.back().data_ptr());
    }
    return group;
  }

  size_t entries_;
  std::span<const double> options_;
  std::span<const Tensor> tensors_;
  std::vector<Group> groups_;
};

// The runs of each device.
class Batches {
 public:
  explicit Batches(size_t entries) : entries_(entries) {}
  Batch& of(Device device) {
    for (auto& [known, batch] : all_)
      if (known == device) return batch;
    return all_.emplace_back(device, Batch(entries_)).second;
  }
  void run(int rule, std::span<const Tensor> operands, std::span<const Tensor> found_inf) const {
    for (const auto& [device, batch] : all_) {
      const Tensor found = on(device, found_inf);
      if (all_.size() == 1 || device.type == DeviceType::CPU) {
        batch.run(rule, operands, device, found);
        continue;
      }
      std::vector<Tensor> own;
      for (const Tensor& t : operands)
        if (t.device() == device) own.push_back(t);
      batch.run(rule, own, device, found);
    }
  }

 private:
  size_t entries_;
  std::vector<std::pair<Device, Batch>> all_;
};

}  // namespace

void fused_unscale(std::span<const Tensor> grads, const Tensor& found, const Tensor& scale) {
  const NoGradGuard no_grad;
  const char* op = "unscale";
  for (const Tensor* t : {&found, &scale})
    TG_CHECK(t->numel() == 1 && t->dtype() == DType::float32, Runtime,
             "{}: found_inf and the scale must have one element of float32: got shape {} of {}", op,
             format_ints(t->sizes()), t->dtype());
  std::vector<Tensor> dense, apart;  // and those that do not lie in one run
  const uint32_t site = autograd::current_site();
  for (const Tensor& t : grads) {
    TG_CHECK(t.is_floating_point(), Runtime, "{}: expected floating point gradients: got {}", op, t.dtype());
    TG_CHECK(t.device() == found.device() && t.device() == scale.device(), Runtime,
             "{}: expected all tensors on one device: got {} and {}", op, t.device(), found.device());
    const bool direct = t.is_cuda() && t.impl()->is_non_overlapping_and_dense();
    (direct ? dense : apart).push_back(t);
    t.impl()->bump_version(op, site);
  }
  for (const Tensor& t : apart) {
    raw::maximum_out(found, raw::to(raw::logical_not(raw::all(raw::isfinite(t))), DType::float32), found);
    raw::mul_(t, scale);
  }
  if (dense.empty()) return;
  record::refuse("gradients are unscaled on a device");
  TG_CHECK(device_steps.load() != nullptr, NotImplemented, "{}: no kernel for tensors on {}", op, found.device());
  device_steps.load()->unscale(dense, found, scale);
}

Tensor first_state(const Tensor& param, double value) {
  TensorSpec spec{DimVector(param.sizes()), param.dtype(), param.device(), {}};
  if (param.impl()->is_non_overlapping_and_dense()) spec.strides = DimVector(param.strides());
  Tensor made = empty_tensor(spec);
  raw::fill_(made.is_complex() ? raw::view_as_real(made) : made, value);
  return made;
}

void fused_step(const Rule& rule, std::span<const double> options, std::span<const Tensor> tensors,
                std::span<StepEntry> entries, std::span<const Tensor> found_inf) {
  TG_ASSERT(options.size() == rule.options.size());
  check_found_inf(rule, entries, found_inf);
  const NoGradGuard no_grad;
  const rules::StateTensors states = rule.states(options.data());
  if (found_inf.empty() && take_small_step(rule, options, entries, states.n)) return;
  Layouts layouts(rule.name);
  Batches batches(entries.size());
  Plans plans(entries.size(), options, tensors);
  Constants constants(rule, options);
  for (StepEntry& e : entries) {
    if (!e.grad.defined()) continue;
    layouts.param(e.param);
    RuleRun run{};
    run.grad = layouts.read(e.grad, "gradient");
    run.param = layouts.written(e.param, "parameter");
    for (int i = 0; i < states.n; ++i) run.states[i] = layouts.written(e.states[i], states.tensors[i].name);
    run.n = e.param.numel();
    if (e.planned) {
      run.planned = plans.add(e, rule.scalars.size());
    } else {
      constants.prepare(e.scalars, run.plan);
    }
    batches.of(e.param.device()).add(run, e.param.dtype());
  }
  plans.run(rule, found_inf);
  batches.run(rule.index, layouts.operands(), found_inf);
  layouts.write_back();
}

}  // namespace nn
}  // namespace tapegrad
