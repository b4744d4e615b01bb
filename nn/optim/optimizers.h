// Optimizers: SGD, Adam and AdamW, each step one pass over all parameters (fused.h).
//
//   optim::AdamW optimizer(model->parameters(), {.lr = 1e-3});
//   optimizer.zero_grad();
//   loss.backward();
//   optimizer.step();
//
// An optimizer keeps handles of its parameters; those without a gradient are skipped. State (averages, momentum) is
// made in the first step that needs it. One thread at a time.
#pragma once

#include <vector>

#include "tapegrad/nn/optim/fused.h"

namespace tapegrad::optim {

class TG_API Optimizer {
 public:
  explicit Optimizer(std::vector<Tensor> parameters);
  virtual ~Optimizer();
  virtual void step() = 0;
  void zero_grad(bool set_to_none = true);
  virtual double lr() const = 0;
  virtual void set_lr(double lr) = 0;
  const std::vector<Tensor>& parameters() const noexcept { return parameters_; }

 protected:
  std::vector<Tensor> parameters_;
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
  void step() override;
  double lr() const override { return options_.lr; }
  void set_lr(double lr) override { options_.lr = lr; }

 private:
  SGDOptions options_;
  std::vector<Tensor> momentum_;  // undefined until the first step with momentum
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
  void step() override;
  double lr() const override { return settings_.lr; }
  void set_lr(double lr) override { settings_.lr = lr; }

 protected:
  Adam(std::vector<Tensor> parameters, const AdamOptions& options, bool decoupled);

 private:
  struct State {
    Tensor exp_avg, exp_avg_sq, max_exp_avg_sq;
    double step = 0;
  };
  nn::AdamSettings settings_;
  std::vector<State> state_;
};

// Adam with weight decay apart from the gradient (Loshchilov and Hutter, 2019).
class TG_API AdamW : public Adam {
 public:
  explicit AdamW(std::vector<Tensor> parameters, const AdamWOptions& options = {});
};

}  // namespace tapegrad::optim
