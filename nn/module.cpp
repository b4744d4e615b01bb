#include "tapegrad/nn/module.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdlib>
#include <ostream>
#include <typeinfo>

#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::nn {

namespace {

// Gives `target` the storage, dtype and shape of `source`, as the assignment of Python's `.data`.
void set_data(const Tensor& target, const Tensor& source) {
  const DimVector sizes(source.sizes()), strides(source.strides());
  target.impl()->set_storage(source.impl()->storage(), source.dtype());
  target.impl()->set_geometry(sizes, strides, source.storage_offset());
}

std::string join(const std::string& prefix, const std::string& name) {
  return prefix.empty() ? name : prefix + "." + name;
}

template <class T>
const T* find(const std::vector<std::pair<std::string, T>>& entries, const std::string& name) {
  for (const auto& [key, value] : entries)
    if (key == name) return &value;
  return nullptr;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "\"" : ", \"") + name + "\"";
  return text;
}

// Every line but the first, moved right.
std::string indented(const std::string& text) {
  std::string result;
  for (char c : text) {
    result += c;
    if (c == '\n') result += "  ";
  }
  return result;
}

}  // namespace

Module::~Module() = default;

std::string Module::type_name() const {
  int status = 0;
  char* text = abi::__cxa_demangle(typeid(*this).name(), nullptr, nullptr, &status);
  std::string name = status == 0 ? text : typeid(*this).name();
  std::free(text);
  if (const size_t colon = name.rfind("::"); colon != std::string::npos) name.erase(0, colon + 2);
  if (name.size() > 4 && name.ends_with("Impl")) name.resize(name.size() - 4);
  return name;
}

std::string Module::repr() const {
  const std::string extra = extra_repr();
  const bool lines = extra.find('\n') != std::string::npos;
  if (children_.empty() && !lines) return type_name() + "(" + extra + ")";
  std::string text = type_name() + "(";
  if (!extra.empty()) text += "\n  " + indented(extra);
  for (const auto& [name, child] : children_) text += "\n  (" + name + "): " + indented(child->repr());
  return text + "\n)";
}

std::ostream& operator<<(std::ostream& out, const Module& module) { return out << module.repr(); }

void Module::check_name(const char* function, const std::string& name) const {
  TG_CHECK(!name.empty(), Key, "{}: the name is empty", function);
  TG_CHECK(name.find('.') == std::string::npos, Key, "{}: a name cannot contain a dot: got \"{}\"", function, name);
  TG_CHECK(!find(parameters_, name) && !find(buffers_, name) && !find(children_, name), Key,
           "{}: the name \"{}\" is in use in this {}", function, name, type_name());
}

Tensor Module::register_parameter(const std::string& name, Tensor tensor, bool requires_grad) {
  check_name("register_parameter", name);
  if (tensor.defined()) {
    TG_CHECK(tensor.is_leaf(), Runtime,
             "register_parameter: \"{}\" is the result of a recorded operator\nhint: register a leaf and compute from "
             "it in forward",
             name);
    tensor.set_requires_grad(requires_grad);
  }
  return parameters_.emplace_back(name, std::move(tensor)).second;
}

Tensor Module::register_buffer(const std::string& name, Tensor tensor) {
  check_name("register_buffer", name);
  return buffers_.emplace_back(name, std::move(tensor)).second;
}

void Module::add_module(const std::string& name, std::shared_ptr<Module> module) {
  check_name("register_module", name);
  TG_CHECK(module, Runtime, "register_module: \"{}\" is empty", name);
  children_.emplace_back(name, std::move(module));
}

template <class F>
void Module::walk(const std::string& prefix, std::vector<const Module*>& seen, bool recurse, F&& f) const {
  if (std::find(seen.begin(), seen.end(), this) != seen.end()) return;
  seen.push_back(this);
  f(prefix, *this);
  if (!recurse) return;
  for (const auto& [name, child] : children_) child->walk(join(prefix, name), seen, true, f);
}

namespace {

void append_new(NamedTensors& to, const std::string& prefix, const NamedTensors& from) {
  for (const auto& entry : from) {
    const Tensor& tensor = entry.second;
    if (!tensor.defined()) continue;
    const bool known = std::any_of(to.begin(), to.end(), [&](const auto& e) { return e.second.is_same(tensor); });
    if (!known) to.emplace_back(join(prefix, entry.first), tensor);
  }
}

std::vector<Tensor> without_names(const NamedTensors& named) {
  std::vector<Tensor> tensors;
  tensors.reserve(named.size());
  for (const auto& entry : named) tensors.push_back(entry.second);
  return tensors;
}

}  // namespace

NamedTensors Module::named_parameters(bool recurse) const {
  NamedTensors result;
  std::vector<const Module*> seen;
  walk("", seen, recurse,
       [&](const std::string& prefix, const Module& m) { append_new(result, prefix, m.parameters_); });
  return result;
}

NamedTensors Module::named_buffers(bool recurse) const {
  NamedTensors result;
  std::vector<const Module*> seen;
  walk("", seen, recurse, [&](const std::string& prefix, const Module& m) { append_new(result, prefix, m.buffers_); });
  return result;
}

std::vector<Tensor> Module::parameters(bool recurse) const { return without_names(named_parameters(recurse)); }
std::vector<Tensor> Module::buffers(bool recurse) const { return without_names(named_buffers(recurse)); }

NamedModules Module::named_modules() const {
  NamedModules result;
  std::vector<const Module*> seen;
  walk("", seen, true, [&](const std::string& prefix, const Module& m) {
    for (const auto& entry : m.children_) {
      const bool known =
          std::any_of(result.begin(), result.end(), [&](const auto& e) { return e.second == entry.second; });
      if (!known) result.emplace_back(join(prefix, entry.first), entry.second);
    }
  });
  return result;
}

void Module::apply(const std::function<void(Module&)>& f) {
  for (auto& entry : children_) entry.second->apply(f);
  f(*this);
}

void Module::train(bool on) {
  training_ = on;
  for (auto& entry : children_) entry.second->train(on);
}

void Module::zero_grad(bool set_to_none) {
  for (const Tensor& p : parameters()) {
    const Tensor grad = p.grad();
    if (!grad.defined()) continue;
    if (set_to_none) {
      p.set_grad({});
    } else {
      const NoGradGuard no_grad;
      grad.detach().zero_();
    }
  }
}

void Module::requires_grad_(bool value) {
  for (const Tensor& p : parameters()) p.set_requires_grad(value);
}

void Module::convert(const std::function<Tensor(const Tensor&)>& change) {
  const NoGradGuard no_grad;
  auto convert_one = [&](const Tensor& t) {
    const Tensor changed = change(t.detach());
    const Tensor grad = t.grad();
    t.set_grad({});
    set_data(t, changed);
    if (grad.defined()) t.set_grad(change(grad.detach()));
  };
  for (const Tensor& p : parameters()) convert_one(p);
  for (const Tensor& b : buffers()) convert_one(b);
}

void Module::to(Device device) {
  convert([&](const Tensor& t) { return t.to({}, device); });
}

void Module::to(DType dtype) {
  TG_CHECK(is_floating_point(dtype) || is_complex(dtype), Type,
           "to: a module can only be moved to floating point or complex dtypes: got {}", dtype);
  convert([&](const Tensor& t) { return t.is_floating_point() || t.is_complex() ? t.to(dtype) : t; });
}

NamedTensors Module::state_dict() const {
  NamedTensors state;
  std::vector<const Module*> seen;
  walk("", seen, true, [&](const std::string& prefix, const Module& m) {
    for (const NamedTensors* entries : {&m.parameters_, &m.buffers_})
      for (const auto& [name, tensor] : *entries)
        if (tensor.defined()) state.emplace_back(join(prefix, name), tensor.detach());
  });
  return state;
}

void Module::prepare_load(const std::string& prefix, const NamedTensors& state) {
  before_load(prefix, state);
  for (const auto& [name, child] : children_) child->prepare_load(prefix + name + ".", state);
}

void Module::load_state_dict(const NamedTensors& state, bool strict) {
  prepare_load("", state);
  const NamedTensors own = state_dict();
  std::vector<std::string> missing, unexpected;
  for (const auto& [name, tensor] : own) {
    const Tensor* given = find(state, name);
    if (!given) {
      missing.push_back(name);
      continue;
    }
    TG_CHECK(given->sizes() == tensor.sizes(), Runtime,
             "load_state_dict: size mismatch for {}: the state has {}, this {} has {}", name,
             format_ints(given->sizes()), type_name(), format_ints(tensor.sizes()));
  }
  for (const auto& entry : state)
    if (!find(own, entry.first)) unexpected.push_back(entry.first);
  if (strict && (!missing.empty() || !unexpected.empty())) {
    TG_THROW(Runtime, "load_state_dict: the names do not match those of this {}{}{}{}{}", type_name(),
             missing.empty() ? "" : "\nmissing: ", listed(missing),
             unexpected.empty() ? "" : "\nunexpected: ", listed(unexpected));
  }
  const NoGradGuard no_grad;
  for (const auto& [name, tensor] : own)
    if (const Tensor* given = find(state, name)) tensor.copy_(*given);
}

void Module::copy_from(const Module& other) {
  const NoGradGuard no_grad;
  for (auto entries : {&Module::parameters_, &Module::buffers_}) {
    const NamedTensors &own = this->*entries, &theirs = other.*entries;
    TG_CHECK(own.size() == theirs.size(), Runtime, "copy_from: a {} and a {} have different tensors", type_name(),
             other.type_name());
    for (size_t i = 0; i < own.size(); ++i) {
      const Tensor &to = own[i].second, &from = theirs[i].second;
      TG_CHECK(own[i].first == theirs[i].first && to.defined() == from.defined(), Runtime,
               "copy_from: \"{}\" of a {} and \"{}\" of a {} do not correspond", own[i].first, type_name(),
               theirs[i].first, other.type_name());
      if (!to.defined()) continue;
      set_data(to, from.detach().clone());
      to.set_requires_grad(from.requires_grad());
    }
  }
  training_ = other.training_;
  TG_CHECK(children_.size() == other.children_.size(), Runtime, "copy_from: a {} and a {} have different submodules",
           type_name(), other.type_name());
  for (size_t i = 0; i < children_.size(); ++i) children_[i].second->copy_from(*other.children_[i].second);
}

}  // namespace tapegrad::nn
