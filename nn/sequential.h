// Sequential: modules called one after the other, each with the result of the one before. Anything that has
// `Tensor forward(const Tensor&)` can be a part. UnaryCall holds one such module of whatever class, or none.
#pragma once

#include <concepts>
#include <functional>

#include "tapegrad/nn/module.h"

namespace tapegrad::nn {

template <class M>
concept UnaryModule = std::derived_from<M, Module> && requires(M& m, const Tensor& x) {
  { m.forward(x) } -> std::convertible_to<Tensor>;
};
template <class H>
concept UnaryHolder = requires(const H& h) {
  typename H::ImplType;
  { h.ptr() } -> std::convertible_to<std::shared_ptr<typename H::ImplType>>;
} && UnaryModule<typename H::ImplType>;

class UnaryCall {
 public:
  UnaryCall() = default;
  UnaryCall(std::nullptr_t) {}
  template <UnaryModule M>
  UnaryCall(std::shared_ptr<M> module)
      : module_(module), call_([m = module.get()](const Tensor& x) -> Tensor { return m->forward(x); }) {}
  template <UnaryHolder H>
  UnaryCall(const H& holder) : UnaryCall(holder.is_empty() ? UnaryCall() : UnaryCall(holder.ptr())) {}

  bool is_empty() const noexcept { return !module_; }
  const std::shared_ptr<Module>& module() const noexcept { return module_; }
  Tensor operator()(const Tensor& x) const { return call_(x); }

 private:
  std::shared_ptr<Module> module_;
  std::function<Tensor(const Tensor&)> call_;
};

class TG_API SequentialImpl : public Module {
 public:
  SequentialImpl() = default;

  void push_back(UnaryCall module) { push_back(std::to_string(steps_.size()), std::move(module)); }
  void push_back(const std::string& name, UnaryCall module) {
    add_module(name, module.module());
    steps_.push_back(std::move(module));
  }
  // Appends the modules of another Sequential.
  void extend(const SequentialImpl& other) {
    for (const UnaryCall& step : std::vector<UnaryCall>(other.steps_)) push_back(step);
  }

  Tensor forward(const Tensor& input) {
    Tensor x = input;
    for (const UnaryCall& step : steps_) x = step(x);
    return x;
  }
  size_t size() const noexcept { return steps_.size(); }
  const std::shared_ptr<Module>& operator[](size_t i) const {
    TG_CHECK(i < size(), Index, "Sequential: index {} is out of range: there are {} modules", i, size());
    return named_children()[i].second;
  }

 private:
  std::vector<UnaryCall> steps_;
};

class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  // With braces, Sequential{Linear(2, 3), ReLU()}, the modules are made from the first to
  // the last, as in Python; the order in which brackets make them, and so what they draw from a seed, is the
  // compiler's.
  TG_MADE_OF_PARTS(Sequential, UnaryHolder)
  // With explicit names.
  explicit Sequential(std::initializer_list<std::pair<std::string, UnaryCall>> modules) : Sequential() {
    for (const auto& [name, module] : modules) (*this)->push_back(name, module);
  }
};

}  // namespace tapegrad::nn
