// The loops of the fused steps, compiled once per instruction set. Plain loops over independent elements: the
// compiler vectorises them. 16-bit types compute in float; a complex number is two real ones.
#include <algorithm>

#include "tapegrad/aten/optim/steps.h"
#include "tapegrad/aten/typed.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

template <class T, class Rule, int kVariant>
void loop(const optim::RuleRun& run) {
  using C = compute_t<T>;
  constexpr int kSlots = Rule::slots(kVariant);
  T* __restrict param = static_cast<T*>(run.param);
  const T* __restrict grad = static_cast<const T*>(run.grad);
  T* __restrict s0 = static_cast<T*>(run.states[0]);
  T* __restrict s1 = static_cast<T*>(run.states[1]);
  T* __restrict s2 = static_cast<T*>(run.states[2]);
  const C sign = static_cast<C>(run.plan.sign), weight_decay = static_cast<C>(run.plan.weight_decay);
  const C decay = static_cast<C>(run.plan.decay);
  C c[optim::kMaxConstants];
  for (int k = 0; k < optim::kMaxConstants; ++k) c[k] = static_cast<C>(run.plan.c[k]);
  for (int64_t i = 0; i < run.n; ++i) {
    C p = static_cast<C>(param[i]);
    C g = sign * static_cast<C>(grad[i]);
    g += weight_decay == C(0) ? C(0) : weight_decay * p;  // no decay of an infinite p is 0, and not NaN
    p = p * decay;
    C s[optim::kMaxStates] = {};
    if constexpr (kSlots > 0) s[0] = static_cast<C>(s0[i]);
    if constexpr (kSlots > 1) s[1] = static_cast<C>(s1[i]);
    if constexpr (kSlots > 2) s[2] = static_cast<C>(s2[i]);
    Rule::template update<kVariant>(p, g, s, c);
    param[i] = static_cast<T>(p);
    if constexpr (kSlots > 0) s0[i] = static_cast<T>(s[0]);
    if constexpr (kSlots > 1) s1[i] = static_cast<T>(s[1]);
    if constexpr (kSlots > 2) s2[i] = static_cast<T>(s[2]);
  }
}

template <class T, class Rule>
void run_rule(const optim::RuleRun& run) {
  static_assert(Rule::kVariants <= 4);
  constexpr int kLast = Rule::kVariants - 1;
  switch (run.plan.variant) {
    case 0:
      return loop<T, Rule, 0>(run);
    case 1:
      return loop<T, Rule, std::min(1, kLast)>(run);
    case 2:
      return loop<T, Rule, std::min(2, kLast)>(run);
    default:
      return loop<T, Rule, kLast>(run);
  }
}

}  // namespace

void fused_rule(int rule, DType dtype, const optim::RuleRun& run) {
  dispatch_floating(dtype, [&]<class T>() {
    using Loop = void (*)(const optim::RuleRun&);
    using namespace optim::rules;
#define TG_LOOP(name) &run_rule<T, name>,
    static constexpr Loop loops[] = {TG_OPTIM_RULES(TG_LOOP)};
#undef TG_LOOP
    loops[rule](run);
  });
}

}  // namespace tapegrad::cpu::TG_ISA
