// Optimizer steps and GradScaler's unscaling over many tensors by few launches: a launch takes the addresses of several
// runs, and each of its blocks a part of one. The formulas are the CPU's (aten/optim/rules.h), compiled for the device.
#include "tapegrad/cuda/optim/fused.h"

#include "tapegrad/aten/optim/steps.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

using optim::PlanRun, optim::RuleRun;

using Plan = optim::rules::Plan<double>;

constexpr int kRuns = 24;                // of a launch: what fits its arguments
constexpr int64_t kPerBlock = 16 * 256;  // elements

template <class Run>
struct Runs {
  int n = 0;
  uint32_t last_block[kRuns];  // the blocks of run r end before it
  Run run[kRuns];
};

// Calls f(run, first, last) for the part of a run that this block has.
template <class Run, class F>
TG_DEVICE void each_part(const Runs<Run>& runs, F&& f) {
  int r = 0;
  while (block_index() >= runs.last_block[r]) ++r;
  const int64_t part = block_index() - (r == 0 ? 0 : runs.last_block[r - 1]);
  const int64_t first = part * kPerBlock, n = runs.run[r].n;
  f(runs.run[r], first, first + kPerBlock < n ? first + kPerBlock : n);
}

// Starts launch(runs, blocks) for groups of what `next(i)` gives.
template <class Run, class F>
void in_groups(const std::vector<Run>& all, F&& start) {
  Runs<Run> runs;
  uint32_t blocks = 0;
  auto flush = [&] {
    if (runs.n > 0) start(runs, blocks);
    runs.n = 0;
    blocks = 0;
  };
  for (const Run& given : all) {
    const int64_t needed = (given.n + kPerBlock - 1) / kPerBlock;
    TG_CHECK(needed < INT32_MAX, NotImplemented, "optimizer step: a parameter of {} elements on cuda", given.n);
    if (needed == 0) continue;
    if (runs.n == kRuns || blocks + needed > INT32_MAX) flush();
    blocks += static_cast<uint32_t>(needed);
    runs.run[runs.n] = given;
    runs.last_block[runs.n++] = blocks;
  }
  flush();
}

template <class T, class Rule, int kVariant>
TG_DEVICE void step_part(const RuleRun& run, const Plan& plan, int64_t first, int64_t last) {
  using C = compute_t<T>;
  constexpr int kSlots = Rule::slots(kVariant);
  auto* param = static_cast<T*>(run.param);
  const auto* grad = static_cast<const T*>(run.grad);
  const C sign = static_cast<C>(plan.sign), weight_decay = static_cast<C>(plan.weight_decay);
  const C decay = static_cast<C>(plan.decay);
  C c[optim::kMaxConstants];
  for (int k = 0; k < optim::kMaxConstants; ++k) c[k] = static_cast<C>(plan.c[k]);
  for (int64_t i = first + thread_index(); i < last; i += block_size()) {
    C p = load_value(param + i);
    C g = sign * load_value(grad + i);
    g += weight_decay == C(0) ? C(0) : weight_decay * p;  // no decay of an infinite p is 0, and not NaN
    p = p * decay;
    C s[optim::kMaxStates] = {};
    for (int k = 0; k < kSlots; ++k) s[k] = load_value(static_cast<const T*>(run.states[k]) + i);
    Rule::template update<kVariant>(p, g, s, c);
    store_value(param + i, p);
    for (int k = 0; k < kSlots; ++k) store_value(static_cast<T*>(run.states[k]) + i, s[k]);
  }
}

template <class T, class Rule>
TG_KERNEL void step_kernel(Runs<RuleRun> runs, const float* found_inf) {
  if (found_inf != nullptr && *found_inf != 0) return;
  each_part(runs, [](const RuleRun& run, int64_t first, int64_t last) {
    static_assert(Rule::kVariants <= 4);
    constexpr int kLast = Rule::kVariants - 1;
    const Plan plan = run.planned != nullptr ? *run.planned : run.plan;
    switch (plan.variant) {
      case 0:
        return step_part<T, Rule, 0>(run, plan, first, last);
      case 1:
        return step_part < T, Rule, kLast<1 ? kLast : 1>(run, plan, first, last);
      case 2:
        return step_part < T, Rule, kLast<2 ? kLast : 2>(run, plan, first, last);
      default:
        return step_part<T, Rule, kLast>(run, plan, first, last);
    }
  });
}

template <class T>
void step_runs(const Work& work, int rule, const std::vector<RuleRun>& all, const float* found_inf) {
  using Kernel = void (*)(Runs<RuleRun>, const float*);
  using namespace optim::rules;
#define TG_KERNEL_OF(name) &step_kernel<T, name>,
  static constexpr Kernel kernels[] = {TG_OPTIM_RULES(TG_KERNEL_OF)};
#undef TG_KERNEL_OF
  in_groups(all, [&](const Runs<RuleRun>& runs, uint32_t blocks) {
    launch(work, kernels[rule], Grid(blocks), kBlock, runs, found_inf);
  });
}

void step(int rule, std::span<const RuleRun> runs, std::span<const DType> dtypes, std::span<const Tensor> operands,
          const Tensor& found_inf) {
  const Work work(operands[0].device(), {&found_inf});
  const float* found = data_of<float>(found_inf);
  for (const Tensor& t : operands) work.use(t);
  for (DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    std::vector<RuleRun> own;
    for (size_t i = 0; i < runs.size(); ++i)
      if (dtypes[i] == dtype) own.push_back(runs[i]);
    if (own.empty()) continue;
    if (dtype == DType::float32)
      step_runs<float>(work, rule, own, found);
    else if (dtype == DType::float64)
      step_runs<double>(work, rule, own, found);
    else if (dtype == DType::float16)
      step_runs<Half>(work, rule, own, found);
    else
      step_runs<BFloat16>(work, rule, own, found);
  }
}

constexpr size_t kPlans = 64;  // of a launch

struct PlanRuns {
  optim::PlanOptions options;
  int n = 0;
  PlanRun run[kPlans];
};
// One thread per parameter: the constants of its step, and the numbers of its state for the next one.
template <class Rule>
TG_KERNEL void plan_kernel(PlanRuns runs, const float* found_inf) {
  const int64_t i = global_index();
  if (i >= runs.n || (found_inf != nullptr && *found_inf != 0)) return;
  const PlanRun run = runs.run[i];
  double o[optim::kMaxOptions];
  for (int k = 0; k < optim::kMaxOptions; ++k)
    o[k] = runs.options.tensors[k] != nullptr ? *runs.options.tensors[k] : runs.options.numbers[k];
  optim::rules::Scalars<double> state;
  state.first = run.first;
  state.single = run.single;
  for (int k = 0; k < Rule::kScalars; ++k)
    state.values[k] = run.single ? static_cast<double>(*static_cast<const float*>(run.scalars[k]))
                                 : *static_cast<const double*>(run.scalars[k]);
  if constexpr (Rule::kScalars > 0) state.values[0] += 1;
  Plan plan;
  Rule::template prepare<double>(o, state, plan);
  *run.plan = plan;
  for (int k = 0; k < Rule::kScalars; ++k) {
    if (run.single)
      *static_cast<float*>(run.scalars[k]) = static_cast<float>(state.values[k]);
    else
      *static_cast<double*>(run.scalars[k]) = state.values[k];
  }
}

void plan(int rule, std::span<const PlanRun> all, const optim::PlanOptions& options, std::span<const Tensor> operands,
          const Tensor& found_inf) {
  using Kernel = void (*)(PlanRuns, const float*);
  using namespace optim::rules;
#define TG_KERNEL_OF(name) &plan_kernel<name>,
  static constexpr Kernel kernels[] = {TG_OPTIM_RULES(TG_KERNEL_OF)};
#undef TG_KERNEL_OF
  const Work work(operands[0].device(), {&found_inf});
  for (const Tensor& t : operands) work.use(t);
  PlanRuns runs;
  runs.options = options;
  for (size_t first = 0; first < all.size(); first += kPlans) {
    const auto part = all.subspan(first, std::min(kPlans, all.size() - first));
    std::copy(part.begin(), part.end(), runs.run);
    runs.n = static_cast<int>(part.size());
    launch(work, kernels[rule], Grid(1), kPlans, runs, data_of<float>(found_inf));
  }
}

struct GradRun {
  void* data;
  int64_t n;
};
// Every thread that finds a bad element writes the same number.
template <class T>
TG_KERNEL void unscale_kernel(Runs<GradRun> runs, float* found, const float* scale) {
  each_part(runs, [=](const GradRun& run, int64_t first, int64_t last) {
    using C = compute_t<T>;
    const C by = static_cast<C>(*scale);
    auto* grad = static_cast<T*>(run.data);
    bool bad = false;
    for (int64_t i = first + thread_index(); i < last; i += block_size()) {
      const C g = load_value(grad + i);
      bad |= !(g - g == 0);
      store_value(grad + i, g * by);
    }
    if (bad) *found = 1;
  });
}

void unscale(std::span<const Tensor> dense, const Tensor& found, const Tensor& scale) {
  const Work work(found.device(), {&found, &scale});
  for (DType dtype : {DType::float32, DType::float64, DType::float16, DType::bfloat16}) {
    std::vector<GradRun> own;
    for (const Tensor& t : dense)
      if (t.dtype() == dtype) {
        work.use(t);
        own.push_back({t.data_ptr(), t.numel()});
      }
    dispatch_floating(dtype, [&]<class T>() {
      in_groups(own, [&](const Runs<GradRun>& runs, uint32_t blocks) {
        launch(work, &unscale_kernel<T>, Grid(blocks), kBlock, runs, target_of<float>(found), data_of<float>(scale));
      });
    });
  }
}

constexpr optim::DeviceSteps kSteps{&plan, &step, &unscale};

}  // namespace

void set_optimizer_steps() { optim::device_steps.store(&kSteps); }

}  // namespace tapegrad::cuda
