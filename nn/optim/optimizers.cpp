#include "tapegrad/nn/optim/optimizers.h"

#include <fmt/format.h>

#include <unordered_set>

#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/c10/dispatch/modes.h"

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

size_t ParamGroup::place(std::string_view name, int item) const {
  for (size_t i = 0; i < rule_->options.size(); ++i)
    if (rule_->options[i].name == name && rule_->options[i].item == item) return i;
  return rule_->options.size();
}

bool ParamGroup::has(std::string_view name, int item) const { return place(name, item) < options_.size(); }

double ParamGroup::get(std::string_view name, int item) const {
  TG_CHECK(has(name, item), Key, "{}: a group has no option '{}'{}", rule_->name, name,
           item < 0 ? "" : fmt::format(" with item {}", item));
  return options_[place(name, item)];
}

void ParamGroup::set(std::string_view name, double value, int item) {
  if (name == "lr") return set_lr(value);
  get(name, item);
  options_[place(name, item)] = value;
}

void ParamGroup::set_lr(double lr) {
  check_not_negative(rule_->name, {{"the learning rate", lr}});
  options_.front() = lr;
  initial_lr_.reset();
}

Optimizer::Optimizer(std::vector<Tensor> parameters, const char* rule, std::vector<double> options)
    : rule_(nn::optimizer_rule(rule)), defaults_(std::move(options)) {
  add(std::move(parameters), defaults_);
}

Optimizer::~Optimizer() = default;

void Optimizer::add(std::vector<Tensor> parameters, std::vector<double> options) {
  TG_CHECK(!parameters.empty(), Value, "optimizer: got no parameters");
  check_not_negative(rule_.name, {{"the learning rate", options.front()}});
  std::unordered_set<const TensorImpl*> known;
  for (const Tensor& p : parameters_) known.insert(p.impl());
  for (const Tensor& p : parameters) {
    TG_CHECK(p.defined(), Value, "optimizer: got an undefined parameter");
    TG_CHECK(p.is_leaf(), Value, "optimizer: can't optimize a tensor that is the result of a recorded operator");
    TG_CHECK(known.insert(p.impl()).second, Value, "optimizer: a parameter appears twice, or in more than one group");
  }
  parameters_.insert(parameters_.end(), parameters.begin(), parameters.end());
  state_.resize(parameters_.size());
  groups_.push_back(ParamGroup(rule_, std::move(parameters), std::move(options)));
}

void Optimizer::set_lr(double lr) {
  for (ParamGroup& group : groups_) group.set_lr(lr);
}

const ParamGroup& Optimizer::group_of(size_t parameter) const {
  size_t group = 0;
  for (; parameter >= groups_[group].params_.size(); ++group) parameter -= groups_[group].params_.size();
  return groups_[group];
}

void Optimizer::zero_grad(bool set_to_none) {
  const NoGradGuard no_grad;
  for (const Tensor& p : parameters_) {
    if (set_to_none)
      p.set_grad({});
    else if (const Tensor grad = p.grad(); grad.defined())
      grad.detach().zero_();
  }
}

void Optimizer::step() {
  size_t first = 0;
  for (const ParamGroup& group : groups_) {
    step(group, first);
    first += group.params_.size();
  }
}

void Optimizer::step(const ParamGroup& group, size_t first) {
  const nn::rules::StateTensors kept = rule_.states(group.options_.data());
  std::vector<nn::StepEntry> entries;
  std::vector<size_t> numbers;
  for (size_t i = first; i < first + group.params_.size(); ++i) {
    Tensor grad = parameters_[i].grad();
    if (!grad.defined()) continue;
    nn::StepEntry& entry = entries.emplace_back();
    State& state = state_[i];
    state.scalars.first = !state.made;
    for (int k = 0; k < kept.n; ++k)  // an option that was switched on later brings its own
      if (!state.tensors[k].defined()) {
        state.tensors[k] = nn::first_state(parameters_[i], kept.tensors[k].first);
        state.scalars.first = true;
      }
    state.made = true;
    entry.param = parameters_[i];
    entry.grad = std::move(grad);
    entry.scalars = state.scalars;
    std::copy_n(state.tensors, nn::kMaxStates, entry.states);
    numbers.push_back(i);
  }
  nn::fused_step(rule_, group.options_, {}, entries);
  for (size_t k = 0; k < entries.size(); ++k) {
    state_[numbers[k]].scalars = entries[k].scalars;
    state_[numbers[k]].scalars.first = false;
  }
}

NamedTensors Optimizer::state_dict() const {
  NamedTensors result;
  for (size_t i = 0; i < state_.size(); ++i) {
    if (!state_[i].made) continue;
    const nn::rules::StateTensors kept = rule_.states(group_of(i).options_.data());
    const std::string prefix = std::to_string(i) + ".";
    for (size_t k = 0; k < rule_.scalars.size(); ++k)
      result.emplace_back(prefix + rule_.scalars[k], raw::full(IntSpan{}, state_[i].scalars.values[k], DType::float32));
    for (int k = 0; k < kept.n; ++k)
      if (const Tensor& t = state_[i].tensors[k]; t.defined()) result.emplace_back(prefix + kept.tensors[k].name, t);
  }
  return result;
}

void Optimizer::load_state_dict(const NamedTensors& state) {
  std::vector<State> loaded(parameters_.size());
  for (const auto& [name, value] : state) {
    const size_t dot = name.find('.');
    const std::string number = name.substr(0, dot), what = dot == std::string::npos ? "" : name.substr(dot + 1);
    const bool digits = !number.empty() && number.size() < 10 && number.find_first_not_of("0123456789") == number.npos;
    const size_t i = digits ? std::stoul(number) : parameters_.size();
    TG_CHECK(i < parameters_.size(), Runtime, "{}: the state has an entry for a parameter that is not there: '{}'",
             rule_.name, name);
    const nn::rules::StateTensors kept = rule_.states(group_of(i).options_.data());
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
  for (size_t i = 0; i < loaded.size(); ++i) {
    const nn::rules::StateTensors kept = rule_.states(group_of(i).options_.data());
    for (int k = 0; loaded[i].made && k < kept.n; ++k)
      TG_CHECK(loaded[i].tensors[k].defined(), Runtime, "{}: the state lacks '{}.{}'", rule_.name, i,
               kept.tensors[k].name);
  }
  state_ = std::move(loaded);
}

namespace {

// The options in the order of their rule, checked.
std::vector<double> listed(const SGDOptions& o) {
  check_not_negative("SGD", {{"the momentum", o.momentum}, {"weight_decay", o.weight_decay}});
  TG_CHECK(!o.nesterov || (o.momentum > 0 && o.dampening == 0), Value,
           "SGD: Nesterov momentum requires a momentum and zero dampening: got {} and {}", o.momentum, o.dampening);
  return {o.lr, o.momentum, o.dampening, o.weight_decay, double(o.nesterov), double(o.maximize)};
}

std::vector<double> listed(const AdamOptions& o, bool decoupled) {
  check_betas("Adam", o.beta1, o.beta2);
  check_not_negative("Adam", {{"eps", o.eps}, {"weight_decay", o.weight_decay}});
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, double(o.amsgrad), double(o.maximize), double(decoupled)};
}

AdamOptions as_adam(const AdamWOptions& o) {
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, o.amsgrad, o.maximize};
}

std::vector<double> listed(const RMSpropOptions& o) {
  check_not_negative(
      "RMSprop", {{"eps", o.eps}, {"alpha", o.alpha}, {"the momentum", o.momentum}, {"weight_decay", o.weight_decay}});
  return {o.lr, o.momentum, o.alpha, o.eps, double(o.centered), o.weight_decay, double(o.maximize)};
}

std::vector<double> listed(const AdagradOptions& o) {
  check_not_negative("Adagrad", {{"eps", o.eps},
                                 {"lr_decay", o.lr_decay},
                                 {"weight_decay", o.weight_decay},
                                 {"initial_accumulator_value", o.initial_accumulator_value}});
  return {o.lr, o.lr_decay, o.eps, o.weight_decay, o.initial_accumulator_value, double(o.maximize)};
}

std::vector<double> listed(const AdadeltaOptions& o) {
  TG_CHECK(o.rho >= 0 && o.rho <= 1, Value, "Adadelta: rho must be between 0 and 1: got {}", o.rho);
  check_not_negative("Adadelta", {{"eps", o.eps}, {"weight_decay", o.weight_decay}});
  return {o.lr, o.rho, o.eps, o.weight_decay, double(o.maximize)};
}

std::vector<double> listed(const AdamaxOptions& o) {
  check_betas("Adamax", o.beta1, o.beta2);
  check_not_negative("Adamax", {{"eps", o.eps}, {"weight_decay", o.weight_decay}});
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, double(o.maximize)};
}

std::vector<double> listed(const NAdamOptions& o) {
  check_betas("NAdam", o.beta1, o.beta2);
  check_not_negative("NAdam", {{"eps", o.eps}, {"weight_decay", o.weight_decay}, {"momentum_decay", o.momentum_decay}});
  return {o.lr,
          o.beta1,
          o.beta2,
          o.eps,
          o.weight_decay,
          o.momentum_decay,
          double(o.maximize),
          double(o.decoupled_weight_decay)};
}

std::vector<double> listed(const RAdamOptions& o) {
  check_betas("RAdam", o.beta1, o.beta2);
  check_not_negative("RAdam", {{"eps", o.eps}, {"weight_decay", o.weight_decay}});
  return {o.lr, o.beta1, o.beta2, o.eps, o.weight_decay, double(o.maximize), double(o.decoupled_weight_decay)};
}

std::vector<double> listed(const RpropOptions& o) {
  TG_CHECK(0 < o.eta_minus && o.eta_minus < 1 && 1 < o.eta_plus, Value,
           "Rprop: the etas must be between 0 and 1 and above 1: got {} and {}", o.eta_minus, o.eta_plus);
  return {o.lr, o.eta_minus, o.eta_plus, o.least_step, o.most_step, double(o.maximize)};
}

std::vector<double> listed(const ASGDOptions& o) {
  check_not_negative("ASGD", {{"weight_decay", o.weight_decay}});
  return {o.lr, o.lambd, o.alpha, o.t0, o.weight_decay, double(o.maximize)};
}

}  // namespace

#define TG_OPTIMIZER(Name)                                                                   \
  Name::Name(std::vector<Tensor> parameters, const Name##Options& options)                   \
      : Optimizer(std::move(parameters), #Name, listed(options)) {}                          \
  void Name::add_param_group(std::vector<Tensor> parameters, const Name##Options& options) { \
    add(std::move(parameters), listed(options));                                             \
  }
TG_OPTIMIZER(SGD)
TG_OPTIMIZER(RMSprop)
TG_OPTIMIZER(Adagrad)
TG_OPTIMIZER(Adadelta)
TG_OPTIMIZER(Adamax)
TG_OPTIMIZER(NAdam)
TG_OPTIMIZER(RAdam)
TG_OPTIMIZER(Rprop)
TG_OPTIMIZER(ASGD)
#undef TG_OPTIMIZER

Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options, bool decoupled)
    : Optimizer(std::move(parameters), "Adam", listed(options, decoupled)) {}
Adam::Adam(std::vector<Tensor> parameters, const AdamOptions& options) : Adam(std::move(parameters), options, false) {}
void Adam::add_param_group(std::vector<Tensor> parameters, const AdamOptions& options) {
  const bool decoupled = defaults().back() != 0;
  add(std::move(parameters), listed(options, decoupled));
}
AdamW::AdamW(std::vector<Tensor> parameters, const AdamWOptions& options)
    : Adam(std::move(parameters), as_adam(options), true) {}
void AdamW::add_param_group(std::vector<Tensor> parameters, const AdamWOptions& options) {
  Adam::add_param_group(std::move(parameters), as_adam(options));
}

}  // namespace tapegrad::optim
