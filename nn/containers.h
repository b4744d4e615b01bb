// Modules that hold modules or parameters and have no forward of their own: ModuleList, ModuleDict, ParameterList,
// ParameterDict. They own what they hold; one thread at a time.
//
//   nn::ModuleList blocks = register_module("blocks", nn::ModuleList());
//   for (int i = 0; i < 4; ++i) blocks->push_back(nn::Linear(8, 8));
//   for (size_t i = 0; i < blocks->size(); ++i) x = blocks->at<nn::LinearImpl>(i).forward(x);
#pragma once

#include <initializer_list>

#include "tapegrad/nn/module.h"

namespace tapegrad::nn {

template <class H>
concept AnyHolder = requires(const H& h) {
  typename H::ImplType;
  { h.ptr() } -> std::convertible_to<std::shared_ptr<Module>>;
};

// Shared by ModuleList and ModuleDict: access to parts as a known class. Raises Type if the part is of another class.
template <class M>
M& part_as(Module& part) {
  M* found = dynamic_cast<M*>(&part);
  TG_CHECK(found, Type, "module: expected another class than {}", part.type_name());
  return *found;
}

class TG_API ModuleListImpl : public Module {
 public:
  ModuleListImpl() = default;
  void push_back(std::shared_ptr<Module> module);
  template <AnyHolder H>
  void push_back(const H& holder) {
    push_back(std::shared_ptr<Module>(holder.ptr()));
  }
  void extend(const ModuleListImpl& other);

  size_t size() const noexcept { return named_children().size(); }
  const std::shared_ptr<Module>& operator[](size_t i) const;  // raises Index
  template <class M>
  M& at(size_t i) const {
    return part_as<M>(*(*this)[i]);
  }
  // Runs of equal modules are shown once: `(0-3): 4 x Linear(...)`.
  std::string repr() const override;
};

class ModuleList : public ModuleHolder<ModuleListImpl> {
 public:
  using ModuleHolder<ModuleListImpl>::ModuleHolder;
  TG_MADE_OF_PARTS(ModuleList, AnyHolder)
};

class TG_API ModuleDictImpl : public Module {
 public:
  ModuleDictImpl() = default;
  // Raises Key where the name is in use.
  void insert(const std::string& name, std::shared_ptr<Module> module) { add_module(name, std::move(module)); }
  template <AnyHolder H>
  void insert(const std::string& name, const H& holder) {
    insert(name, std::shared_ptr<Module>(holder.ptr()));
  }

  size_t size() const noexcept { return named_children().size(); }
  bool contains(const std::string& name) const noexcept;
  std::vector<std::string> keys() const;
  const std::shared_ptr<Module>& operator[](const std::string& name) const;  // raises Key
  template <class M>
  M& at(const std::string& name) const {
    return part_as<M>(*(*this)[name]);
  }
};

class ModuleDict : public ModuleHolder<ModuleDictImpl> {
 public:
  using ModuleHolder<ModuleDictImpl>::ModuleHolder;
  ModuleDict() : ModuleHolder(std::make_shared<ModuleDictImpl>()) {}
  explicit ModuleDict(std::initializer_list<std::pair<std::string, std::shared_ptr<Module>>> modules) : ModuleDict() {
    for (const auto& [name, module] : modules) (*this)->insert(name, module);
  }
};

class TG_API ParameterListImpl : public Module {
 public:
  ParameterListImpl() = default;
  void push_back(Tensor parameter, bool requires_grad = true);
  size_t size() const noexcept { return held_.size(); }
  const Tensor& operator[](size_t i) const;  // raises Index
  auto begin() const { return held_.begin(); }
  auto end() const { return held_.end(); }
  std::string extra_repr() const override;

 private:
  std::vector<Tensor> held_;
};

class ParameterList : public ModuleHolder<ParameterListImpl> {
 public:
  using ModuleHolder<ParameterListImpl>::ModuleHolder;
  ParameterList() : ModuleHolder(std::make_shared<ParameterListImpl>()) {}
  explicit ParameterList(std::initializer_list<Tensor> parameters) : ParameterList() {
    for (const Tensor& p : parameters) (*this)->push_back(p);
  }
};

class TG_API ParameterDictImpl : public Module {
 public:
  ParameterDictImpl() = default;
  // Raises Key where the name is in use.
  void insert(const std::string& name, Tensor parameter, bool requires_grad = true);
  size_t size() const noexcept { return held_.size(); }
  bool contains(const std::string& name) const noexcept;
  std::vector<std::string> keys() const;
  const Tensor& operator[](const std::string& name) const;  // raises Key
  auto begin() const { return held_.begin(); }
  auto end() const { return held_.end(); }
  std::string extra_repr() const override;

 private:
  NamedTensors held_;
};

class ParameterDict : public ModuleHolder<ParameterDictImpl> {
 public:
  using ModuleHolder<ParameterDictImpl>::ModuleHolder;
  ParameterDict() : ModuleHolder(std::make_shared<ParameterDictImpl>()) {}
  explicit ParameterDict(std::initializer_list<std::pair<std::string, Tensor>> parameters) : ParameterDict() {
    for (const auto& [name, p] : parameters) (*this)->insert(name, p);
  }
};

}  // namespace tapegrad::nn
