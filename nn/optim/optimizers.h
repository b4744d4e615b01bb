// Optimizers: each step is one pass over all parameters of a group (fused.h).
//
//   optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
//   optim::CosineAnnealingLR schedule(optimizer, 100);
//   optimizer.zero_grad();
//   loss.backward();
//   optimizer.step();
//   schedule.step();
//
// Parameters are in groups, each with options of its own; the constructor makes the first one:
//
//   optim::SGD optimizer(body->parameters(), {.lr = 0.01, .momentum = 0.9});
//   optimizer.add_param_group(head->parameters(), {.lr = 0.1});
//   optimizer.param_groups()[1].set("weight_decay", 1e-4);
//
// An optimizer keeps handles of its parameters; those without a gradient are skipped. State (averages, momentum) is
// created by the first step that needs it. One thread at a time.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tapegrad/nn/optim/fused.h"

namespace tapegrad::optim {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

// Some parameters and their options, by the names that Python's groups have: "lr", "momentum", "weight_decay", ...; of
// a pair such as "betas" the item has to be given. Flags are 0 and 1.
class TG_API ParamGroup {
 public:
  const std::vector<Tensor>& params() const noexcept { return params_; }
  double lr() const { return options_.front(); }
  // Raises Value for a negative one. A schedule that is made afterwards starts from here.
  void set_lr(double lr);
  bool has(std::string_view name, int item = -1) const;
  double get(std::string_view name, int item = -1) const;  // raises Key
  void set(std::string_view name, double value, int item = -1);

 private:
  friend class Optimizer;
  friend class LRScheduler;
  ParamGroup(const nn::Rule& rule, std::vector<Tensor> params, std::vector<double> options)
      : rule_(&rule), params_(std::move(params)), options_(std::move(options)) {}
  size_t place(std::string_view name, int item) const;  // number of options where there is none

  const nn::Rule* rule_;
  std::vector<Tensor> params_;
  std::vector<double> options_;       // in the order of the rule (rules.h); the learning rate is the first
  std::optional<double> initial_lr_;  // the rate before the first schedule changed it
};

class TG_API Optimizer {
 public:
  virtual ~Optimizer();
  void step();
  void zero_grad(bool set_to_none = true);
  double lr() const { return groups_.front().lr(); }                              // of the first group
  void set_lr(double lr);                                                         // of all groups
  const std::vector<Tensor>& parameters() const noexcept { return parameters_; }  // of all groups in turn
  std::span<ParamGroup> param_groups() noexcept { return groups_; }
  std::span<const ParamGroup> param_groups() const noexcept { return groups_; }
  // A group with the options that the constructor got; each class has one that takes its own options as well. Raises
  // Value for parameters that are not leaves or are in a group already.
  void add_param_group(std::vector<Tensor> parameters) { add(std::move(parameters), defaults_); }

  // The state by number of parameter: "3.exp_avg" is an average of the fourth, "3.step" its count of steps. Parameters
  // without state yet are left out, and options are not included. Loading copies; it raises Runtime, before anything is
  // written, for unknown names and mismatched shapes.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 protected:
  // `options` in the order of the rule.
  Optimizer(std::vector<Tensor> parameters, const char* rule, std::vector<double> options);
  void add(std::vector<Tensor> parameters, std::vector<double> options);
  const std::vector<double>& defaults() const noexcept { return defaults_; }

 private:
  struct State {
    Tensor tensors[nn::kMaxStates];
    nn::rules::Scalars<double> scalars;
    bool made = false;
  };
  void step(const ParamGroup& group, size_t first);
  const ParamGroup& group_of(size_t parameter) const;

  const nn::Rule& rule_;
  std::vector<double> defaults_;
  std::vector<ParamGroup> groups_;
  std::vector<Tensor> parameters_;
  std::vector<State> state_;
};

// An optimizer with a kind of options of its own, which each group may have others of.
#define TG_OPTIMIZER(Name)                                                              \
  class TG_API Name : public Optimizer {                                                \
   public:                                                                              \
    explicit Name(std::vector<Tensor> parameters, const Name##Options& options = {});   \
    using Optimizer::add_param_group;                                                   \
    void add_param_group(std::vector<Tensor> parameters, const Name##Options& options); \
  }

struct SGDOptions {
  double lr = 1e-3, momentum = 0, dampening = 0, weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

TG_OPTIMIZER(SGD);

struct AdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};
struct AdamWOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 1e-2;
  bool amsgrad = false;
  bool maximize = false;
};

class TG_API Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {});
  using Optimizer::add_param_group;
  void add_param_group(std::vector<Tensor> parameters, const AdamOptions& options);

 protected:
  Adam(std::vector<Tensor> parameters, const AdamOptions& options, bool decoupled);
};

// Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019).
class TG_API AdamW : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {});
  using Optimizer::add_param_group;
  void add_param_group(std::vector<Tensor> parameters, const AdamWOptions& options);
};

struct RMSpropOptions {
  double lr = 1e-2, alpha = 0.99, eps = 1e-8, weight_decay = 0, momentum = 0;
  bool centered = false;
  bool maximize = false;
};

TG_OPTIMIZER(RMSprop);

struct AdagradOptions {
  double lr = 1e-2, lr_decay = 0, weight_decay = 0, initial_accumulator_value = 0, eps = 1e-10;
  bool maximize = false;
};

TG_OPTIMIZER(Adagrad);

struct AdadeltaOptions {
  double lr = 1.0, rho = 0.9, eps = 1e-6, weight_decay = 0;
  bool maximize = false;
};

TG_OPTIMIZER(Adadelta);

struct AdamaxOptions {
  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool maximize = false;
};

TG_OPTIMIZER(Adamax);

struct NAdamOptions {
  double lr = 2e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool maximize = false;
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
};

TG_OPTIMIZER(NAdam);

struct RAdamOptions {
  double lr = 1e-3, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool maximize = false;
  bool decoupled_weight_decay = false;
};

TG_OPTIMIZER(RAdam);

struct RpropOptions {
  double lr = 1e-2;
  double eta_minus = 0.5, eta_plus = 1.2;  // factors of a step after a change of sign and without
  double least_step = 1e-6, most_step = 50;
  bool maximize = false;
};

// Riedmiller and Braun, 1993.
TG_OPTIMIZER(Rprop);

struct ASGDOptions {
  double lr = 1e-2, lambd = 1e-4, alpha = 0.75, t0 = 1e6, weight_decay = 0;
  bool maximize = false;
};

// Averaged stochastic gradient descent (Polyak and Juditsky, 1992).
TG_OPTIMIZER(ASGD);

#undef TG_OPTIMIZER

}  // namespace tapegrad::optim
