// Module: a part of a network, with named parameters (trained), buffers (kept but not trained) and submodules.
//
// A class derives from Module, registers its parameters, buffers and submodules in its constructor and has a member
// `forward` with any arguments. Modules live in shared_ptr; ModuleHolder is a shared_ptr that is called like a
// function, so that code reads as in Python:
//
//   struct NetImpl : nn::Module {
//     nn::Linear first = register_module("first", nn::Linear(2, 8));
//     Tensor forward(const Tensor& x) { return relu(first(x)); }
//   };
//   TG_MODULE(Net);
//   Net net;
//   Tensor y = net(x);
//
// The tensors that `register_parameter` and `register_buffer` return are handles of the registered ones: moving the
// module to another dtype or device or loading a state changes them in place. A module is for one thread at a time.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::nn {

class Module;
using NamedTensors = std::vector<std::pair<std::string, Tensor>>;
using NamedModules = std::vector<std::pair<std::string, std::shared_ptr<Module>>>;

class TG_API Module : public std::enable_shared_from_this<Module> {
 public:
  Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;
  virtual ~Module();

  // The class's name as it is printed: without namespaces and the ending Impl.
  virtual std::string type_name() const;
  // The text between the brackets when the module is printed.
  virtual std::string extra_repr() const { return ""; }
  virtual std::string repr() const;

  // A registered name must not be empty, contain a dot or be in use. Undefined tensors stand for absent ones.
  Tensor register_parameter(const std::string& name, Tensor tensor, bool requires_grad = true);
  Tensor register_buffer(const std::string& name, Tensor tensor);
  template <class M>
  std::shared_ptr<M> register_module(const std::string& name, std::shared_ptr<M> module) {
    add_module(name, module);
    return module;
  }
  template <class Holder>
    requires requires { typename Holder::ImplType; }
  Holder register_module(const std::string& name, Holder holder) {
    add_module(name, holder.ptr());
    return holder;
  }

  // In the order of registration, submodules after the module's own. A shared tensor or module is listed once, under
  // its first name.
  std::vector<Tensor> parameters(bool recurse = true) const;
  NamedTensors named_parameters(bool recurse = true) const;
  std::vector<Tensor> buffers(bool recurse = true) const;
  NamedTensors named_buffers(bool recurse = true) const;
  const NamedModules& named_children() const { return children_; }
  NamedModules named_modules() const;  // without this module itself
  void apply(const std::function<void(Module&)>& f);

  virtual void train(bool on = true);
  void eval() { train(false); }
  bool is_training() const noexcept { return training_; }

  // Drops the gradients, or fills them with zeros.
  void zero_grad(bool set_to_none = true);
  void requires_grad_(bool value = true);
  void to(Device device);
  void to(DType dtype);  // of floating point and complex tensors

  // Parameters and buffers under their names. Loading copies the values; where `strict`, raises Runtime with the list
  // of names that are missing or unexpected; shapes must agree always. Nothing is written when it raises.
  NamedTensors state_dict() const;
  void load_state_dict(const NamedTensors& state, bool strict = true);

  // Copies of all tensors of a module of the same structure, with dtype, device, requires_grad and the mode of every
  // part. Raises Runtime where the structures differ.
  void copy_from(const Module& other);

 protected:
  void add_module(const std::string& name, std::shared_ptr<Module> module);
  // Called for every module before the names and shapes of a state are compared with its own.
  virtual void before_load(const std::string& /*prefix*/, const NamedTensors& /*state*/) {}

 private:
  void prepare_load(const std::string& prefix, const NamedTensors& state);
  void check_name(const char* function, const std::string& name) const;
  void convert(const std::function<Tensor(const Tensor&)>& change);
  template <class F>
  void walk(const std::string& prefix, std::vector<const Module*>& seen, bool recurse, F&& f) const;

  NamedTensors parameters_, buffers_;
  NamedModules children_;
  bool training_ = true;
};

TG_API std::ostream& operator<<(std::ostream& out, const Module& module);

// A module by reference that is called like a function. Empty when made from nullptr.
template <class Impl>
class ModuleHolder {
 public:
  using ImplType = Impl;
  ModuleHolder(std::nullptr_t) {}
  ModuleHolder(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

  bool is_empty() const noexcept { return !impl_; }
  const std::shared_ptr<Impl>& ptr() const {
    TG_CHECK(impl_, Runtime, "module: an empty module was used\nhint: it was made from nullptr and never assigned");
    return impl_;
  }
  Impl* operator->() const { return ptr().get(); }
  Impl& operator*() const { return *ptr(); }
  template <class... Args>
  decltype(auto) operator()(Args&&... args) const {
    return ptr()->forward(std::forward<Args>(args)...);
  }

 private:
  std::shared_ptr<Impl> impl_;
};

template <class Impl>
std::ostream& operator<<(std::ostream& out, const ModuleHolder<Impl>& holder) {
  return out << static_cast<const Module&>(*holder);
}

}  // namespace tapegrad::nn

// Defines the class Name that holds a NameImpl and is made with the arguments of its constructor; or, the second one,
// of the constructor of its NameOptions, which may be one of these.
#define TG_MODULE(Name) TG_MODULE_MADE_OF(Name, Name##Impl, std::forward<Args>(args)...)
#define TG_MODULE_OF_OPTIONS(Name) TG_MODULE_MADE_OF(Name, Name##Options, Name##Options(std::forward<Args>(args)...))
#define TG_MODULE_MADE_OF(Name, Made, ...)                                                       \
  class Name : public ::tapegrad::nn::ModuleHolder<Name##Impl> {                                 \
   public:                                                                                       \
    using ::tapegrad::nn::ModuleHolder<Name##Impl>::ModuleHolder;                                \
    template <class... Args>                                                                     \
      requires std::constructible_from<Made, Args...>                                            \
    explicit Name(Args&&... args)                                                                \
        : ::tapegrad::nn::ModuleHolder<Name##Impl>(std::make_shared<Name##Impl>(__VA_ARGS__)) {} \
  }

// In a class Name that holds modules: made of none, or of some, under the names "0", "1", ...
#define TG_MADE_OF_PARTS(Name, Part)                                \
  Name() : ModuleHolder(std::make_shared<Name##Impl>()) {}          \
  template <Part First, Part... Rest>                               \
    requires(sizeof...(Rest) > 0 || !std::same_as<First, Name>)     \
  explicit Name(const First& first, const Rest&... rest) : Name() { \
    (*this)->push_back(first);                                      \
    ((*this)->push_back(rest), ...);                                \
  }
