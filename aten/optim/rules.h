// The formulas of the optimizers, one struct each, written once for floats, doubles and (in a step that is itself
// recorded, nn/optim/recorded.cpp) tensors, for host and device. A rule says
//
//   options     names of what a parameter group holds, in the order of the array `o` that `prepare` gets;
//   scalars     numbers of state per parameter, the count of steps first;
//   states(o)   tensors of state per parameter: name and first value;
//   prepare     from options and scalars: the constants of one parameter's step, and which variant of the loop runs;
//   kVariants, slots(variant), update<variant>(p, g, s, c)
//               the step of one element: parameter p, gradient g, state s, constants c.
//
// What all have in common is in the loop: g = sign * gradient + weight_decay * p, p = decay * p.
// A new optimizer is a struct here and its name in TG_OPTIM_RULES.
#pragma once

#include <cmath>
#include <cstdint>
#include <type_traits>

#include "tapegrad/c10/macros.h"

namespace tapegrad::optim {

inline constexpr int kMaxStates = 3;     // tensors of state per parameter
inline constexpr int kMaxScalars = 3;    // numbers of state per parameter
inline constexpr int kMaxConstants = 7;  // numbers that a rule's loop reads
inline constexpr int kMaxOptions = 8;    // numbers that a rule reads from a parameter group

}  // namespace tapegrad::optim

namespace tapegrad::optim::rules {

// What the formulas need beyond + - * /; recorded.cpp has the same for tensors.
TG_HD inline double number(double x) { return x; }
TG_HD inline double narrow(double x) { return static_cast<double>(static_cast<float>(x)); }
template <class C>
requires std::is_floating_point_v<C> TG_HD C root(C x) { return std::sqrt(x); }
template <class C>
requires std::is_floating_point_v<C> TG_HD C magnitude(C x) { return std::abs(x); }
template <class C>
requires std::is_floating_point_v<C> TG_HD C larger(C a, C b) { return a > b ? a : b; }
template <class C>
requires std::is_floating_point_v<C> TG_HD C smaller(C a, C b) { return a < b ? a : b; }
template <class C>
requires std::is_floating_point_v<C> TG_HD C by_sign(C x, C positive, C zero, C negative) {
  return x > C(0) ? positive : x < C(0) ? negative : zero;
}
TG_HD inline double power(double base, double exponent) { return std::pow(base, exponent); }

struct Option {
  const char* name;
  int item = -1;            // of a pair, the first or the second
  double absent = kNeeded;  // what a group without it means
  static constexpr double kNeeded = -1e300;
};
constexpr Option flag(const char* name) { return {name, -1, 0}; }

struct StateTensor {
  const char* name;
  double first = 0;
};
struct StateTensors {
  int n = 0;
  StateTensor tensors[kMaxStates];
};

// The numbers of state of one parameter, read and written by `prepare`. The count of steps is this step's, from 1. In a
// recorded step the others may be tensors, through which gradients of earlier steps flow.
template <class S>
struct Scalars {
  S values[kMaxScalars] = {};
  bool first = false;  // the state was made for this step
  bool single = true;  // kept in float32
  TG_HD double step() const { return number(values[0]); }
  TG_HD S rounded(const S& x) const { return single ? narrow(x) : x; }
};

template <class S>
struct Plan {
  S sign = 1, weight_decay = 0, decay = 1;
  S c[kMaxConstants] = {};
  int variant = 0;

  TG_HD void ascend(const S& maximize) { sign = number(maximize) != 0 ? -1 : 1; }
  TG_HD void begin(const S& maximize, const S& weight) {
    ascend(maximize);
    weight_decay = weight;
  }
  TG_HD void decay_by(const S& rate, const S& weight, bool decoupled) {
    if (decoupled)
      decay = 1 - rate * weight;
    else
      weight_decay = weight;
  }
};

// Robbins and Monro, 1951; momentum of Sutskever et al., 2013.
struct Sgd {
  static constexpr const char* kName = "SGD";
  enum { kLr, kMomentum, kDampening, kWeightDecay, kNesterov, kMaximize };
  static constexpr Option options[] = {{"lr"},           {"momentum"},     {"dampening"},
                                       {"weight_decay"}, flag("nesterov"), flag("maximize")};
  static constexpr const char* const* scalars = nullptr;
  static constexpr int kScalars = 0;
  static StateTensors states(const double* o) {
    return o[kMomentum] != 0 ? StateTensors{1, {{"momentum_buffer"}}} : StateTensors{};
  }

  static constexpr int kVariants = 3;  // plain, momentum, Nesterov
  static constexpr int slots(int variant) { return variant == 0 ? 0 : 1; }
  template <class S>
  TG_HD static void prepare(const S* o, Scalars<S>& state, Plan<S>& plan) {
    plan.begin(o[kMaximize], o[kWeightDecay]);
    plan.variant = number(o[kMomentum]) == 0 ? 0 : number(o[kNesterov]) == 0 ? 1 : 2;
    plan.c[0] = o[kLr];
    plan.c[1] = state.first ? S(0) : o[kMomentum];  // the first step sets the buffer to the gradient
    plan.c[2] = state.first ? S(1) : 1 - o[kDampening];
    plan.c[3] = o[kMomentum];
  }
  template <int kVariant, class C>
  TG_HD static void update(C& p, C& g, C* s, const C* c) {
    if constexpr (kVariant == 0) {
      p = p - c[0] * g;
      return;
    }
    s[0] = c[1] * s[0] + c[2] * g;
    p = p - c[0] * (kVariant == 2 ? g + c[3] * s[0] : s[0]);
  }
};

constexpr const char* kStep[] = {"step"};

// What most rules have in common: the step is all that they count, and they have one loop, over `kTensors` tensors of
// state.
template <int kTensors>
struct OneLoop {
  static constexpr const char* const* scalars = kStep;
  static constexpr int kScalars = 1, kVariants = 1;
  static constexpr int slots(int) { return kTensors; }
};

// The running means of the gradient and of its square, which Adam and its relatives keep: c[0] to c[3] and the first
// two states.
template <class S>
TG_HD void prepare_moments(Plan<S>& plan, const S& beta1, const S& beta2, const S& eps) {
  plan.c[0] = 1 - beta1;
  plan.c[1] = beta2;
  plan.c[2] = 1 - beta2;
  plan.c[3] = eps;
}
template <class C>
TG_HD void update_moments(const C& g, C* s, const C* c) {
  s[0] = s[0] + c[0] * (g - s[0]);
  s[1] = c[1] * s[1] + c[2] * g * g;
}

// Kingma and Ba, 2015; amsgrad of Reddi et al., 2018; decoupled decay of Loshchilov and Hutter, 2019.
struct Adam {
  static constexpr const char* kName = "Adam";
  enum { kLr, kBeta1, kBeta2, kEps, kWeightDecay, kAmsgrad, kMaximize, kDecoupled };
  static constexpr Option options[] = {
      {"lr"},           {"betas", 0},    {"betas", 1},     {"eps"},
      {"weight_decay"}, flag("amsgrad"), flag("maximize"), flag("decoupled_weight_decay")};
  static constexpr const char* const* scalars = kStep;
  static constexpr int kScalars = 1;
  static StateTensors states(const double* o) {
    return {o[kAmsgrad] != 0 ? 3 : 2, {{"exp_avg"}, {"exp_avg_sq"}, {"max_exp_avg_sq"}}};
  }

  static constexpr int kVariants = 2;  // without and with the maximum
  static constexpr int slots(int variant) { return 2 + variant; }
  template <class S>
  TG_HD static void prepare(const S* o, Scalars<S>& state, Plan<S>& plan) {
    const double step = state.step();
    plan.ascend(o[kMaximize]);
    plan.decay_by(o[kLr], o[kWeightDecay], number(o[kDecoupled]) != 0);
    plan.variant = number(o[kAmsgrad]) != 0;
    prepare_moments(plan, o[kBeta1], o[kBeta2], o[kEps]);
    plan.c[4] = o[kLr] / (1 - power(o[kBeta1], step));
    plan.c[5] = 1 / root(1 - power(o[kBeta2], step));  // a quotient of each element would be a third of the loop
  }
  template <int kVariant, class C>
  TG_HD static void update(C& p, C& g, C* s, const C* c) {
    update_moments(g, s, c);
    if constexpr (kVariant == 1) s[2] = larger(s[2], s[1]);
    p = p - c[4] * s[0] / (root(s[1 + kVariant]) * c[5] + c[3]);
  }
};

// Duchi, Hazan and Singer, 2011.
struct Adagrad : OneLoop<1> {
  static constexpr const char* kName = "Adagrad";
  enum { kLr, kLrDecay, kEps, kWeightDecay, kInitial, kMaximize };
  static constexpr Option options[] = {
      {"lr"}, {"lr_decay"}, {"eps"}, {"weight_decay"}, {"initial_accumulator_value"}, flag("maximize")};
  static StateTensors states(const double* o) { return {1, {{"sum", o[kInitial]}}}; }

  template <class S>
  TG_HD static void prepare(const S* o, Scalars<S>& state, Plan<S>& plan) {
    plan.begin(o[kMaximize], o[kWeightDecay]);
    plan.c[0] = o[kLr] / (1 + (state.step() - 1) * o[kLrDecay]);
    plan.c[1] = o[kEps];
  }
  template <int kVariant, class C>
  TG_HD static void update(C& p, C& g, C* s, const C* c) {
    s[0] = s[0] + g * g;
    p = p - c[0] * (g / (root(s[0]) + c[1]));
  }
};

// Hinton's lecture 6e of Neural Networks for Machine Learning, 2012; centred as in Graves, 2013.
struct RmsProp {
  static constexpr const char* kName = "RMSprop";
  enum { kLr, kMomentum, kAlpha, kEps, kCentered, kWeightDecay, kMaximize };
  static constexpr Option options[] = {{"lr"},           {"momentum"},     {"alpha"},       {"eps"},
                                       flag("centered"), {"weight_decay"}, flag("maximize")};
  static constexpr const char* const* scalars = kStep;
  static constexpr int kScalars = 1;
  static StateTensors states(const double* o) {
    StateTensors all{1, {{"square_avg"}}};
    if (o[kMomentum] > 0) all.tensors[all.n++] = {"momentum_buffer"};
    if (o[kCentered] != 0) all.tensors[all.n++] = {"grad_avg"};
    return all;
  }

  static constexpr int kVariants = 4;  // 1: momentum, 2: centered
  static constexpr int slots(int variant) { return 1 + (variant & 1) + (variant >> 1); }
  template <class S>
  TG_HD static void prepare(const S* o, Scalars<S>&, Plan<S>& plan) {
    plan.begin(o[kMaximize], o[kWeightDecay]);
    plan.variant = (number(o[kMomentum]) > 0 ? 1 : 0) + (number(o[kCentered]) != 0 ? 2 : 0);
    plan.c[0] = o[kLr];
    plan.c[1] = o[kAlpha];
    plan.c[2] = 1 - o[kAlpha];
    plan.c[3] = o[kEps];
    plan.c[4] = o[kMomentum];
  }
  template <int kVariant, class C>
  TG_HD static void update(C& p, C& g, C* s, const C* c) {
    constexpr int kMean = 1 + (kVariant & 1);
    s[0] = c[1] * s[0] + c[2] * g * g;
    C variance = s[0];
    if constexpr ((kVariant & 2) != 0) {
      s[kMean] = s[kMean] + c[2] * (g - s[kMean]);
      variance = variance - s[kMean] * s[kMean];
    }
    const C change = g / (root(variance) + c[3]);
    if constexpr ((kVariant & 1) != 0) {
      s[1] = c[4] * s[1] + change;
      p = p - c[0] * s[1];
    } else {
      p = p - c[0] * change;
    }
  }
};

// Zeiler, 2012.
struct Adadelta : OneLoop<2> {
  static constexpr const char* kName = "Adadelta";
  enum { kLr, kRho, kEps, kWeightDecay, kMaximize };
  static constexpr Option options[] = {{"lr"}, {"rho"}, {"eps"}, {"weight_decay"}, flag("maximize")};
  static StateTensors states(const double*) { return {2, {{"square_avg"}, {"acc_delta"}}}; }

  template <class S>
  TG_HD static void prepare(const S* o, Scalars<S>&, Plan<S>& plan) {
    plan.begin(o[kMaximize], o[kWeightDecay]);
    plan.c[0] = o[kLr];
    plan.c[1] = o[kRho];
    plan.c[2] = 1 - o[kRho];
    plan.c[3] = o[kEps];
  }
  template <int kVariant, class C>
  TG_HD static void update(C& p, C& g, C* s, const C* c) {
    s[0] = c[1] * s[0] + c[2] * g * g;
    const C delta = root(s[1] + c[3]) / root(s[0] + c[3]) * g;
    s[1] = c[1] * s[1] + c[2] * delta * delta;
    p = p - c[0] * delta;
  }
};

// Kingma and Ba, 2015, section 7.1.
struct Adamax : OneLoop<2> {
  static constexpr const char* kName = "Adamax";
  enum { kLr, kBeta1, kBeta2, kEps, kWeightDecay, kMaximize };
  static constexpr Option options[] = {{"lr"}, {"betas", 0}, {"betas", 1}, {"eps"}, {"weight_decay"}, flag("maximize")};
  static StateTensors states(const double*) { return {2, {{"exp_avg"}, {"exp_inf"}}}; }

  template <class S>
  TG_HD static void prepare(const S* o, Scalars<S>& state, Plan<S>& plan) {
    plan.begin(o[kMaximize], o[kWeightDecay]);
    plan.c[0] = 1 - o[kBeta1];
    plan.c[1] = o[kBeta2];
    plan.c[2] = o[kEps];
    plan.c[3] = o[kLr] / (1 - power(o[kBeta1], state.step()));
  }
  template <int kVariant, class C>
  TG_HD static void update(C& p, C& g, C* s, const C* c) {
    s[0] = s[0] + c[0] * (g - s[0]);
    s[1] = larger(c[1] * s[1], magnitude(g) + c[2]);
    p = p - c[3] * (s[0] / s[1]);
  }
};

constexpr const char* kStepAndProduct[] = {"step", "mu_product"};

// Dozat, 2016.
struct NAdam : OneLoop<2> {
  static constexpr const char* kName = "NAdam";
  enum { kLr, kBeta1, kBeta2, kEps, kWeightDecay, kMomentumDecay, kMaximize, kDecoupled };
  static constexpr Option options[] = {
      {"lr"},           {"betas", 0},       {"betas", 1},     {"eps"},
      {"weight_decay"}, {"momentum_decay"}, flag("maximize"), flag("decoupled_weight_decay")};
  static constexpr const char* const* scalars = kStepAndProduct;
  static constexpr int kScalars = 2;
  static StateTensors states(const double*) { return {2, {{"exp_avg"}, {"exp_avg_sq"}}}; }

  template <class S>
  TG_HD static void prepare(const S* o, Scalars<S>& state, Plan<S>& plan) {
    const double step = state.step(), decay = number(o[kMomentumDecay]);
    if (state.first) state.values[1] = 1;
    plan.ascend(o[kMaximize]);
    plan.decay_by(o[kLr], o[kWeightDecay], number(o[kDecoupled]) != 0);
    const S mu = o[kBeta1] * (1 - 0.5 * std::pow(0.96, step * decay));
    const S next = o[kBeta1] * (1 - 0.5 * std::pow(0.96, (step + 1) * decay));
    const S product = state.rounded(state.values[1] * state.rounded(mu));
    state.values[1] = product;
    prepare_moments(plan, o[kBeta1], o[kBeta2], o[kEps]);
    plan.c[4] = 1 / root(1 - power(o[kBeta2], step));
    plan.c[5] = o[kLr] * (1 - mu) / (1 - product);
    plan.c[6] = o[kLr] * next / (1 - product * next);
  }
  template <int kVariant, class C>
  TG_HD static void update(C& p, C& g, C* s, const C* c) {
    update_moments(g, s, c);
    p = p - (c[5] * g + c[6] * s[0]) / (root(s[1]) * c[4] + c[3]);
  }
};

// Liu et al., 2020.
struct RAdam {
  static constexpr const char* kName = "RAdam";
  enum { kLr, kBeta1, kBeta2, kEps, kWeightDecay, kMaximize, kDecoupled };
  static constexpr Option options[] = {
      {"lr"}, {"betas", 0}, {"betas", 1}, {"eps"}, {"weight_decay"}, flag("maximize"), flag("decoupled_weight_decay")};
  static constexpr const char* const* scalars = kStep;
  static constexpr int kScalars = 1;
  static StateTensors states(const double*) { return {2, {{"exp_avg"}, {"exp_avg_sq"}}}; }

  static constexpr int kVariants = 2;  // while the variance is unknown; then
  static constexpr int slots(int) { return 2; }
  template <class S>
  TG_HD static void prepare(const S* o, Scalars<S>& state, Plan<S>& plan) {
    const double step = state.step();
    plan.ascend(o[kMaximize]);
    plan.decay_by(o[kLr], o[kWeightDecay], number(o[kDecoupled]) != 0);
    const S correction = 1 - power(o[kBeta2], step);
    const S longest = 2 / (1 - o[kBeta2]) - 1;
    const S length = longest - 2 * step * power(o[kBeta2], step) / correction;
    plan.variant = number(length) > 5;
    prepare_moments(plan, o[kBeta1], o[kBeta2], o[kEps]);
    plan.c[4] = o[kLr] / (1 - power(o[kBeta1], step));
    if (plan.variant == 1)
      plan.c[4] = plan.c[4] * root(correction) *
                  root((length - 4) * (length - 2) * longest / ((longest - 4) * (longest - 2) * length));
  }
  template <int kVariant, class C>
  TG_HD static void update(C& p, C& g, C* s, const C* c) {
    update_moments(g, s, c);
    if constexpr (kVariant == 0)
      p = p - c[4] * s[0];
    else
      p = p - c[4] * s[0] / (root(s[1]) + c[3]);
  }
};

// Riedmiller and Braun, 1993.
struct Rprop : OneLoop<2> {
  static constexpr const char* kName = "Rprop";
  enum { kLr, kEtaMinus, kEtaPlus, kLeast, kMost, kMaximize };
  static constexpr Option options[] = {{"lr"},          {"etas", 0}, {"etas", 1}, {"step_sizes", 0}, {"step_sizes", 1},
                                       flag("maximize")};
  static StateTensors states(const double* o) { return {2, {{"prev"}, {"step_size", o[kLr]}}}; }

  template <class S>
  TG_HD static void prepare(const S* o, Scalars<S>&, Plan<S>& plan) {
    plan.ascend(o[kMaximize]);
    for (int i = 0; i < 4; ++i) plan.c[i] = o[kEtaMinus + i];
  }
  template <int kVariant, class C>
  TG_HD static void update(C& p, C& g, C* s, const C* c) {
    const C turn = g * s[0];
    s[1] = smaller(larger(s[1] * by_sign(turn, c[1], C(1), c[0]), c[2]), c[3]);
    s[0] = by_sign(turn, g, g, C(0));
    p = p - by_sign(s[0], s[1], C(0), C(0) - s[1]);
  }
};

constexpr const char* kAsgdScalars[] = {"step", "eta", "mu"};

// Polyak and Juditsky, 1992, with the schedule of Xu, 2011.
struct Asgd {
  static constexpr const char* kName = "ASGD";
  enum { kLr, kLambda, kAlpha, kStart, kWeightDecay, kMaximize };
  static constexpr Option options[] = {{"lr"}, {"lambd"}, {"alpha"}, {"t0"}, {"weight_decay"}, flag("maximize")};
  static constexpr const char* const* scalars = kAsgdScalars;
  static constexpr int kScalars = 3;
  static StateTensors states(const double*) { return {1, {{"ax"}}}; }

  static constexpr int kVariants = 2;  // the average is the parameter, an average
  static constexpr int slots(int) { return 1; }
  template <class S>
  TG_HD static void prepare(const S* o, Scalars<S>& state, Plan<S>& plan) {
    const double step = state.step();
    if (state.first) {
      state.values[1] = state.rounded(o[kLr]);
      state.values[2] = 1;
    }
    const S eta = state.values[1], mu = state.values[2];
    plan.begin(o[kMaximize], o[kWeightDecay]);
    plan.decay = 1 - o[kLambda] * eta;
    plan.variant = number(mu) != 1;
    plan.c[0] = eta;
    plan.c[1] = mu;
    state.values[1] = state.rounded(o[kLr] / power(1 + o[kLambda] * o[kLr] * step, number(o[kAlpha])));
    state.values[2] = state.rounded(1 / larger(1.0, step - number(o[kStart])));
  }
  template <int kVariant, class C>
  TG_HD static void update(C& p, C& g, C* s, const C* c) {
    p = p - c[0] * g;
    if constexpr (kVariant == 0)
      s[0] = p;
    else
      s[0] = s[0] + (p - s[0]) * c[1];
  }
};

#define TG_OPTIM_RULES(X) X(Sgd) X(Adam) X(Adagrad) X(RmsProp) X(Adadelta) X(Adamax) X(NAdam) X(RAdam) X(Rprop) X(Asgd)

}  // namespace tapegrad::optim::rules
