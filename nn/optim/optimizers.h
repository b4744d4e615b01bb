// Optimizers: each step is one pass over all parameters (fused.h).
//
//   optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
//   optim::CosineAnnealingLR schedule(optimizer, 100);
//   optimizer.zero_grad();
//   loss.backward();
//   optimizer.step();
//   schedule.step();
//
// An optimizer keeps handles of its parameters; those without a gradient are skipped. State (averages, momentum) is
// made in the first step that needs it. One thread at a time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tapegrad/nn/optim/fused.h"

namespace tapegrad::optim {

using NamedTensors = std::vector<std::pair<std::string, Tensor>>;

class TG_API Optimizer {
 public:
  virtual ~Optimizer();
  void step();
  void zero_grad(bool set_to_none = true);
  double lr() const { return options_.front(); }
  void set_lr(double lr) { options_.front() = lr; }
  const std::vector<Tensor>& parameters() const noexcept { return parameters_; }

  // The state by number of parameter: "3.exp_avg" is an average of the fourth, "3.step" its count of steps. What a
  // parameter has no state of yet is left out. Loading copies; it raises Runtime, before anything is written, for names
  // that this optimizer does not know and for other shapes.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state);

 protected:
  // `options` in the order of the rule (rules.h); the learning rate is the first.
  Optimizer(std::vector<Tensor> parameters, const char* rule, std::vector<double> options);

 private:
  struct State {
    Tensor tensors[nn::kMaxStates];
    nn::rules::Scalars<double> scalars;
    bool made = false;
  };
  void make_state(size_t i);

  std::vector<Tensor> parameters_;
  const nn::Rule& rule_;
  std::vector<double> options_;
  std::vector<State> state_;
};

struct SGDOptions {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
};

class TG_API SGD : public Optimizer {
 public:
  explicit SGD(std::vector<Tensor> parameters, const SGDOptions& options = {});
};

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool maximize = false;
};
struct AdamWOptions : AdamOptions {
  AdamWOptions() { weight_decay = 1e-2; }
  AdamWOptions(const AdamOptions& options) : AdamOptions(options) {}
};

class TG_API Adam : public Optimizer {
 public:
  explicit Adam(std::vector<Tensor> parameters, const AdamOptions& options = {});

 protected:
  Adam(std::vector<Tensor> parameters, const AdamOptions& options, bool decoupled);
};

// Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019).
class TG_API AdamW : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {});
};

struct RMSpropOptions {
  double lr = 1e-2;
  double alpha = 0.99;
  double eps = 1e-8;
  double weight_decay = 0;
  double momentum = 0;
  bool centered = false;
  bool maximize = false;
};

class TG_API RMSprop : public Optimizer {
 public:
  explicit RMSprop(std::vector<Tensor> parameters, const RMSpropOptions& options = {});
};

struct AdagradOptions {
  double lr = 1e-2;
  double lr_decay = 0;
  double weight_decay = 0;
  double initial_accumulator_value = 0;
  double eps = 1e-10;
  bool maximize = false;
};

class TG_API Adagrad : public Optimizer {
 public:
  explicit Adagrad(std::vector<Tensor> parameters, const AdagradOptions& options = {});
};

struct AdadeltaOptions {
  double lr = 1.0;
  double rho = 0.9;
  double eps = 1e-6;
  double weight_decay = 0;
  bool maximize = false;
};

class TG_API Adadelta : public Optimizer {
 public:
  explicit Adadelta(std::vector<Tensor> parameters, const AdadeltaOptions& options = {});
};

struct AdamaxOptions {
  double lr = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0;
  bool maximize = false;
};

class TG_API Adamax : public Optimizer {
 public:
  explicit Adamax(std::vector<Tensor> parameters, const AdamaxOptions& options = {});
};

struct NAdamOptions : AdamaxOptions {
  double momentum_decay = 4e-3;
  bool decoupled_weight_decay = false;
};

class TG_API NAdam : public Optimizer {
 public:
  explicit NAdam(std::vector<Tensor> parameters, const NAdamOptions& options = {});
};

struct RAdamOptions : AdamaxOptions {
  RAdamOptions() { lr = 1e-3; }
  bool decoupled_weight_decay = false;
};

class TG_API RAdam : public Optimizer {
 public:
  explicit RAdam(std::vector<Tensor> parameters, const RAdamOptions& options = {});
};

}  // namespace tapegrad::optim
