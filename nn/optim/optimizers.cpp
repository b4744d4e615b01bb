#include "tapegrad/nn/optim/optimizers.h"

#include "tapegrad/c10/modes.h"

namespace tapegrad::optim {

Optimizer::Optimizer(std::vector<Tensor> parameters) : parameters_(std::move(parameters)) {
  TG_CHECK(!parameters_.empty(), Value, "optimizer: got no parameters");
  for (const Tensor& p : parameters_) {
    TG_CHECK(p.defined(), Value, "optimizer: got an undefined parameter");
    TG_CHECK(p.is_leaf(), Value, "optimizer: can't optimize a tensor that is the result of a recorded operator");
  }
}

Optimizer::~Optimizer() = default;

void Optimizer::zero_grad(bool set_to_none) {
  const NoGradGuard no_grad;
  for (const Tensor& p : parameters_) {
    if (set_to_none)
      p.set_grad({});
    else if (const Tensor grad = p.grad(); grad.defined())
      grad.detach().zero_();
  }
}

SGD::SGD(std::vector<Tensor> parameters, const SGDOptions& options)
    : Optimizer(std::move(parameters)), options_(options), momentum_(parameters_.size()) {
  TG_CHECK(options.lr >= 0, Value, "SGD: the learning rate must not be negative: got {}", options.lr);
  TG_CHECK(options.momentum >= 0, Value, "SGD: the momentum must not be negative: got {}", options.momentum);
  TG_CHECK(options.weight_decay >= 0, Value, "SGD: weight_decay must not be negative: got {}", options.weight_decay);
  TG_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), Value,
           "SGD: Nesterov momentum requires a momentum and zero dampening: got {} and {}", options.momentum,
           options.dampening);
}

void SGD::step() {
  std::vector<nn::SgdEntry> entries;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i];
    Tensor grad = p.grad();
    if (!grad.defined()) continue;
    const bool first = options_.momentum != 0 && !momentum_[i].defined();
    if (first) momentum_[i] = raw::empty_like(p);
    entries.push_back({p, std::move(grad), momentum_[i], first});
  }
  nn::fused_sgd_step(entries, {.lr = options_.lr,
                               .momentum = options_.momentum,
                               .dampening = options_.dampening,
                               .weight_decay = options_.weight_decay,
                               .nesterov = options_.nesterov,
                               .maximize = options_.maximize});
}

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& o, bool decoupled)
    : Optimizer(std::move(parameters)),
      settings_{.lr = o.lr,
                .beta1 = o.beta1,
                .beta2 = o.beta2,
                .eps = o.eps,
                .weight_decay = o.weight_decay,
                .amsgrad = o.amsgrad,
                .maximize = o.maximize,
                .decoupled = decoupled},
      state_(parameters_.size()) {
  TG_CHECK(o.lr >= 0, Value, "Adam: the learning rate must not be negative: got {}", o.lr);
  TG_CHECK(o.eps >= 0, Value, "Adam: eps must not be negative: got {}", o.eps);
  TG_CHECK(o.beta1 >= 0 && o.beta1 < 1 && o.beta2 >= 0 && o.beta2 < 1, Value,
           "Adam: beta1 and beta2 must lie in [0, 1): got {} and {}", o.beta1, o.beta2);
  TG_CHECK(o.weight_decay >= 0, Value, "Adam: weight_decay must not be negative: got {}", o.weight_decay);
}
Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options) : Adam(std::move(parameters), options, false) {}
AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options)
    : Adam(std::move(parameters), options, true) {}

void Adam::step() {
  std::vector<nn::AdamEntry> entries;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor& p = parameters_[i];
    Tensor grad = p.grad();
    if (!grad.defined()) continue;
    State& s = state_[i];
    if (!s.exp_avg.defined()) {
      s.exp_avg = raw::zeros_like(p);
      s.exp_avg_sq = raw::zeros_like(p);
      if (settings_.amsgrad) s.max_exp_avg_sq = raw::zeros_like(p);
    }
    entries.push_back({p, std::move(grad), s.exp_avg, s.exp_avg_sq, s.max_exp_avg_sq, ++s.step});
  }
  nn::fused_adam_step(entries, settings_);
}

}  // namespace tapegrad::optim
