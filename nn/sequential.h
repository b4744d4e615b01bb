// Sequential: modules called one after the other, each with the result of the one before. Anything that has
// `Tensor forward(const Tensor&)` can be a part.
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
}
&&UnaryModule<typename H::ImplType>;

class TG_API SequentialImpl : public Module {
 public:
  SequentialImpl() = default;

  template <UnaryModule M>
  void push_back(std::shared_ptr<M> module) {
    register_module(std::to_string(steps_.size()), module);
    steps_.push_back([m = module.get()](const Tensor& x) -> Tensor { return m->forward(x); });  // owned as a child
  }
  template <UnaryHolder H>
  void push_back(const H& holder) {
    push_back(holder.ptr());
  }

  Tensor forward(const Tensor& input) {
    Tensor x = input;
    for (const auto& step : steps_) x = step(x);
    return x;
  }
  size_t size() const noexcept { return steps_.size(); }
  const std::shared_ptr<Module>& operator[](size_t i) const {
    TG_CHECK(i < size(), Index, "Sequential: index {} is out of range: there are {} modules", i, size());
    return named_children()[i].second;
  }

 private:
  std::vector<std::function<Tensor(const Tensor&)>> steps_;
};

class Sequential : public ModuleHolder<SequentialImpl> {
 public:
  using ModuleHolder<SequentialImpl>::ModuleHolder;
  Sequential() : ModuleHolder(std::make_shared<SequentialImpl>()) {}
  template <UnaryHolder First, UnaryHolder... Rest>
  requires(sizeof...(Rest) > 0 || !std::same_as<First, Sequential>) explicit Sequential(const First& first,
                                                                                        const Rest&... rest)
      : Sequential() {
    (*this)->push_back(first);
    ((*this)->push_back(rest), ...);
  }
};

}  // namespace tapegrad::nn
