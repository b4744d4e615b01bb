// Steps that are recorded on the tape: the same formulas (rules.h), on tensors. For `differentiable=True`, where an
// outer loss goes through the steps of an inner optimizer; every operator of a formula allocates, so this is slow.
#include <algorithm>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/nn/optim/fused.h"

namespace tapegrad::nn {
namespace {

// A number, or a tensor of the parameter's shape or of one element.
struct Value {
  Tensor tensor;
  double plain = 0;

  Value() = default;
  Value(double number) : plain(number) {}
  explicit Value(Tensor t) : tensor(std::move(t)) {}
  bool is_plain() const { return !tensor.defined(); }
  bool is(double x) const { return is_plain() && plain == x; }
  Operand operand() const { return is_plain() ? Operand(plain) : Operand(tensor); }
};

Value operator+(const Value& a, const Value& b) {
  if (a.is_plain() && b.is_plain()) return a.plain + b.plain;
  if (a.is(0)) return b;
  if (b.is(0)) return a;
  return Value(add(a.operand(), b.operand()));
}
Value operator-(const Value& a, const Value& b) {
  if (a.is_plain() && b.is_plain()) return a.plain - b.plain;
  if (b.is(0)) return a;
  return Value(sub(a.operand(), b.operand()));
}
Value operator*(const Value& a, const Value& b) {
  if (a.is_plain() && b.is_plain()) return a.plain * b.plain;
  if (a.is(0) || b.is(0)) return 0;
  if (a.is(1)) return b;
  if (b.is(1)) return a;
  return Value(mul(a.operand(), b.operand()));
}
Value operator/(const Value& a, const Value& b) {
  if (a.is_plain() && b.is_plain()) return a.plain / b.plain;
  if (b.is(1)) return a;
  return Value(div(a.operand(), b.operand()));
}

Value narrow(const Value& x) { return x.is_plain() ? Value(rules::narrow(x.plain)) : x; }
double number(const Value& x) { return x.is_plain() ? x.plain : x.tensor.item<double>(); }
Value root(const Value& x) { return x.is_plain() ? Value(std::sqrt(x.plain)) : Value(tapegrad::sqrt(x.tensor)); }
Value magnitude(const Value& x) { return Value(tapegrad::abs(x.tensor)); }
Value power(const Value& base, double exponent) {
  return base.is_plain() ? Value(std::pow(base.plain, exponent)) : Value(tapegrad::pow(base.tensor, exponent));
}
Tensor dense(const Value& x, const Tensor& like) { return x.is_plain() ? full_like(like, x.plain) : x.tensor; }
Value larger(const Value& a, const Value& b) {
  const Tensor& like = a.is_plain() ? b.tensor : a.tensor;
  return Value(tapegrad::maximum(dense(a, like), dense(b, like)));
}
Value smaller(const Value& a, const Value& b) {
  const Tensor& like = a.is_plain() ? b.tensor : a.tensor;
  return Value(tapegrad::minimum(dense(a, like), dense(b, like)));
}
Value by_sign(const Value& x, const Value& positive, const Value& zero, const Value& negative) {
  const Tensor& t = x.tensor;
  const Tensor rest = where(lt(t, 0.0), dense(negative, t), dense(zero, t));
  return Value(where(gt(t, 0.0), dense(positive, t), rest));
}

// Real and imaginary part are numbers of their own.
Tensor as_real(const Tensor& t) { return t.is_complex() ? view_as_real(t) : t; }

template <class R, int kVariant>
void step_of(StepEntry& e, const rules::Plan<Value>& plan) {
  const Tensor param = as_real(e.param);
  Tensor states[kMaxStates];
  Value s[kMaxStates];
  for (int i = 0; i < R::slots(kVariant); ++i) {
    states[i] = as_real(e.states[i]);
    s[i] = Value(states[i].clone());  // what the tape keeps is not what is written below
  }
  Value p(param.clone());
  Value g = plan.sign * Value(as_real(e.grad)) + plan.weight_decay * p;
  p = p * plan.decay;
  R::template update<kVariant>(p, g, s, plan.c);
  for (int i = 0; i < R::slots(kVariant); ++i) states[i].copy_(s[i].tensor);
  param.copy_(p.tensor);
}

template <class R>
void recorded(std::span<const double> options, std::span<const Tensor> tensors, std::span<StepEntry> entries) {
  Value values[kMaxOptions];
  for (size_t i = 0; i < options.size(); ++i) values[i] = tensors[i].defined() ? Value(tensors[i]) : Value(options[i]);
  for (StepEntry& e : entries) {
    rules::Scalars<Value> scalars{{}, e.scalars.first, e.scalars.single};
    for (int i = 0; i < R::kScalars; ++i) {
      const bool flows = i > 0 && e.counts[i].defined() && e.counts[i].requires_grad();
      scalars.values[i] = flows ? Value(e.counts[i].clone()) : Value(e.scalars.values[i] + (i == 0 ? 1 : 0));
    }
    rules::Plan<Value> plan;
    R::template prepare<Value>(values, scalars, plan);
    constexpr int kLast = R::kVariants - 1;
    switch (plan.variant) {
      case 0:
        step_of<R, 0>(e, plan);
        break;
      case 1:
        step_of<R, std::min(1, kLast)>(e, plan);
        break;
      case 2:
        step_of<R, std::min(2, kLast)>(e, plan);
        break;
      default:
        step_of<R, kLast>(e, plan);
    }
    for (int i = 0; i < R::kScalars; ++i) {
      const Value& after = scalars.values[i];
      e.scalars.values[i] = number(after);
      if (e.counts[i].defined() && (e.counts[i].requires_grad() || !after.is_plain()))
        e.counts[i].copy_(dense(after, e.counts[i]));  // on the tape: a number ends what flowed
    }
  }
}

}  // namespace

void recorded_step(const Rule& rule, std::span<const double> options, std::span<const Tensor> tensors,
                   std::span<StepEntry> entries) {
  using Step = void (*)(std::span<const double>, std::span<const Tensor>, std::span<StepEntry>);
  using namespace rules;
#define TG_RECORDED(name) &recorded<name>,
  static constexpr Step steps[] = {TG_OPTIM_RULES(TG_RECORDED)};
#undef TG_RECORDED
  TG_ASSERT(options.size() == rule.options.size() && tensors.size() == options.size());
  steps[rule.index](options, tensors, entries);
}

}  // namespace tapegrad::nn
