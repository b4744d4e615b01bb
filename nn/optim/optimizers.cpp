#include "tapegrad/nn/optim/optimizers.h"

#include "tapegrad/c10/modes.h"

namespace tapegrad::optim {
namespace {

void check_not_negative(const char* name, std::initializer_list<std::pair<const char*, double>> values) {
  for (const auto& [what, value] : values)
    TG_CHECK(value >= 0, Value, "{}: {} must not be negative: got {}", name, what, value);
}

void check_betas(const char* name, double beta1, double beta2) {
  TG_CHECK(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1, Value,
           "{}: the betas must be at least 0 and less than 1: got {} and {}", name, beta1, beta2);
}

}  // namespace

Optimizer::Optimizer(std::vector<Tensor> parameters, const char* rule, std::vector<double> options)
    : parameters_(std::move(parameters)),
      rule_(nn::optimizer_rule(rule)),
      options_(std::move(options)),
      state_(parameters_.size()) {
  TG_CHECK(!parameters_.empty(), Value, "optimizer: got no parameters");
  for (const Tensor& p : parameters_) {
    TG_CHECK(p.defined(), Value, "optimizer: got an undefined parameter");
    TG_CHECK(p.is_leaf(), Value, "optimizer: can't optimize a tensor that is the result of a recorded operator");
  }
  check_not_negative(rule, {{"the learning rate", lr()}});
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

void Optimizer::make_state(size_t i) {
  const nn::rules::StateTensors kept = rule_.states(options_.data());
  for (int k = 0; k < kept.n; ++k) state_[i].tensors[k] = raw::full_like(parameters_[i], kept.tensors[k].first);
  state_[i].made = true;
}

void Optimizer::step() {
  std::vector<nn::StepEntry> entries;
  std::vector<size_t> numbers;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    Tensor grad = parameters_[i].grad();
    if (!grad.defined()) continue;
    nn::StepEntry& entry = entries.emplace_back();
    State& state = state_[i];
    if (!state.made) {
      make_state(i);
      state.scalars.first = true;
    }
    entry.param = parameters_[i];
    entry.grad = std::move(grad);
    entry.scalars = state.scalars;
    std::copy_n(state.tensors, nn::kMaxStates, entry.states);
    numbers.push_back(i);
  }
  nn::fused_step(rule_, options_, entries);
  for (size_t k = 0; k < entries.size(); ++k) {
    state_[numbers[k]].scalars = entries[k].scalars;
    state_[numbers[k]].scalars.first = false;
  }
}

NamedTensors Optimizer::state_dict() const {
  NamedTensors result;
  const nn::rules::StateTensors kept = rule_.states(options_.data());
  for (size_t i = 0; i < state_.size(); ++i) {
    if (!state_[i].made) continue;
    const std::string prefix = std::to_string(i) + ".";
    for (size_t k = 0; k < rule_.scalars.size(); ++k)
      result.emplace_back(prefix + rule_.scalars[k], raw::full(IntSpan{}, state_[i].scalars.values[k], DType::float32));
    for (int k = 0; k < kept.n; ++k) result.emplace_back(prefix + kept.tensors[k].name, state_[i].tensors[k]);
  }
  return result;
}

void Optimizer::load_state_dict(const NamedTensors& state) {
  const nn::rules::StateTensors kept = rule_.states(options_.data());
  std::vector<State> loaded(parameters_.size());
  for (const auto& [name, value] : state) {
    const size_t dot = name.find('.');
    const std::string number = name.substr(0, dot), what = dot == std::string::npos ? "" : name.substr(dot + 1);
    const bool digits = !number.empty() && number.size() < 10 && number.find_first_not_of("0123456789") == number.npos;
    const size_t i = digits ? std::stoul(number) : parameters_.size();
    TG_CHECK(i < parameters_.size(), Runtime, "{}: the state has an entry for a parameter that is not there: '{}'",
             rule_.name, name);
    bool known = false;
    for (size_t k = 0; k < rule_.scalars.size(); ++k)
      if (what == rule_.scalars[k]) {
        loaded[i].scalars.values[k] = value.item<double>();
        known = true;
      }
    for (int k = 0; k < kept.n; ++k)
      if (what == kept.tensors[k].name) {
        TG_CHECK(value.sizes() == parameters_[i].sizes(), Runtime,
                 "{}: '{}' has another shape than its parameter: {} and {}", rule_.name, name,
                 format_ints(value.sizes()), format_ints(parameters_[i].sizes()));
        loaded[i].tensors[k] = raw::empty_like(parameters_[i]);
        loaded[i].tensors[k].copy_(value);
        known = true;
      }
    TG_CHECK(known, Runtime, "{}: the state has an entry of a name that is not known: '{}'", rule_.name, name);
    loaded[i].made = true;
  }
  for (size_t i = 0; i < loaded.size(); ++i)
    for (int k = 0; loaded[i].made && k < kept.n; ++k)
      TG_CHECK(loaded[i].tensors[k].defined(), Runtime, "{}: the state lacks '{}.{}'", rule_.name, i,
               kept.tensors[k].name);
  state_ = std::move(loaded);
}

SGD::SGD(std::vector<Tensor> parameters, const SGDOptions& o)
    : Optimizer(std::move(parameters), "SGD",
                {o.lr, o.momentum, o.dampening, o.weight_decay, double(o.nesterov), double(o.maximize)}) {
  check_not_negative("SGD", {{"the momentum", o.momentum}, {"weight_decay", o.weight_decay}});
  TG_CHECK(!o.nesterov || (o.momentum > 0 && o.dampening == 0), Value,
           "SGD: Nesterov momentum requires a momentum and zero dampening: got {} and {}", o.momentum, o.dampening);
}

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& o, bool decoupled)
    : Optimizer(
          std::move(parameters), "Adam",
          {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, double(o.amsgrad), double(o.maximize), double(decoupled)}) {
  check_betas("Adam", o.beta1, o.beta2);
  check_not_negative("Adam", {{"eps", o.eps}, {"weight_decay", o.weight_decay}});
}
Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options) : Adam(std::move(parameters), options, false) {}
AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options)
    : Adam(std::move(parameters), options, true) {}

RMSprop::RMSprop(std::vector<Tensor> parameters, const RMSpropOptions& o)
    : Optimizer(std::move(parameters), "RMSprop",
                {o.lr, o.momentum, o.alpha, o.eps, double(o.centered), o.weight_decay, double(o.maximize)}) {
  check_not_negative(
      "RMSprop", {{"eps", o.eps}, {"alpha", o.alpha}, {"the momentum", o.momentum}, {"weight_decay", o.weight_decay}});
}

Adagrad::Adagrad(std::vector<Tensor> parameters, const AdagradOptions& o)
    : Optimizer(std::move(parameters), "Adagrad",
                {o.lr, o.lr_decay, o.eps, o.weight_decay, o.initial_accumulator_value, double(o.maximize)}) {
  check_not_negative("Adagrad", {{"eps", o.eps},
                                 {"lr_decay", o.lr_decay},
                                 {"weight_decay", o.weight_decay},
                                 {"initial_accumulator_value", o.initial_accumulator_value}});
}

Adadelta::Adadelta(std::vector<Tensor> parameters, const AdadeltaOptions& o)
    : Optimizer(std::move(parameters), "Adadelta", {o.lr, o.rho, o.eps, o.weight_decay, double(o.maximize)}) {
  TG_CHECK(o.rho >= 0 && o.rho <= 1, Value, "Adadelta: rho must be between 0 and 1: got {}", o.rho);
  check_not_negative("Adadelta", {{"eps", o.eps}, {"weight_decay", o.weight_decay}});
}

Adamax::Adamax(std::vector<Tensor> parameters, const AdamaxOptions& o)
    : Optimizer(std::move(parameters), "Adamax", {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, double(o.maximize)}) {
  check_betas("Adamax", o.beta1, o.beta2);
  check_not_negative("Adamax", {{"eps", o.eps}, {"weight_decay", o.weight_decay}});
}

NAdam::NAdam(std::vector<Tensor> parameters, const NAdamOptions& o)
    : Optimizer(std::move(parameters), "NAdam",
                {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.momentum_decay, double(o.maximize),
                 double(o.decoupled_weight_decay)}) {
  check_betas("NAdam", o.beta1, o.beta2);
  check_not_negative("NAdam", {{"eps", o.eps}, {"weight_decay", o.weight_decay}, {"momentum_decay", o.momentum_decay}});
}

RAdam::RAdam(std::vector<Tensor> parameters, const RAdamOptions& o)
    : Optimizer(std::move(parameters), "RAdam",
                {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, double(o.maximize), double(o.decoupled_weight_decay)}) {
  check_betas("RAdam", o.beta1, o.beta2);
  check_not_negative("RAdam", {{"eps", o.eps}, {"weight_decay", o.weight_decay}});
}

}  // namespace tapegrad::optim
