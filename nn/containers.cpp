#include "tapegrad/nn/containers.h"

#include <fmt/format.h>

#include <algorithm>

namespace tapegrad::nn {
namespace {

template <class T>
const T* find(const std::vector<std::pair<std::string, T>>& entries, const std::string& name) {
  const auto at = std::find_if(entries.begin(), entries.end(), [&](const auto& e) { return e.first == name; });
  return at == entries.end() ? nullptr : &at->second;
}

template <class T>
std::vector<std::string> names_of(const std::vector<std::pair<std::string, T>>& entries) {
  std::vector<std::string> names;
  for (const auto& entry : entries) names.push_back(entry.first);
  return names;
}

// As Python prints it: one line per parameter.
std::string described(const NamedTensors& entries) {
  std::string text;
  for (const auto& [name, tensor] : entries) {
    std::string size;
    for (int64_t n : tensor.sizes()) size += (size.empty() ? "" : "x") + std::to_string(n);
    text += fmt::format("{}  ({}): Parameter containing: [tapegrad.{} of size {}]", text.empty() ? "" : "\n", name,
                        tensor.dtype(), size);
  }
  return text;
}

NamedTensors numbered(const std::vector<Tensor>& tensors) {
  NamedTensors entries;
  for (const Tensor& t : tensors) entries.emplace_back(std::to_string(entries.size()), t);
  return entries;
}

}  // namespace

void ModuleListImpl::push_back(std::shared_ptr<Module> module) {
  add_module(std::to_string(size()), std::move(module));
}

void ModuleListImpl::extend(const ModuleListImpl& other) {
  const NamedModules modules = other.named_children();
  for (const auto& entry : modules) push_back(entry.second);
}

const std::shared_ptr<Module>& ModuleListImpl::operator[](size_t i) const {
  TG_CHECK(i < size(), Index, "ModuleList: index {} is out of range: there are {} modules", i, size());
  return named_children()[i].second;
}

std::string ModuleListImpl::repr() const {
  if (size() == 0) return type_name() + "()";
  std::string text = type_name() + "(";
  for (size_t first = 0; first < size();) {
    const std::string part = (*this)[first]->repr();
    size_t last = first;
    while (last + 1 < size() && (*this)[last + 1]->repr() == part) ++last;
    std::string line = first == last ? fmt::format("({}): {}", first, part)
                                     : fmt::format("({}-{}): {} x {}", first, last, last - first + 1, part);
    for (size_t at = line.find('\n'); at != std::string::npos; at = line.find('\n', at + 1)) line.insert(at + 1, "  ");
    text += "\n  " + line;
    first = last + 1;
  }
  return text + "\n)";
}

bool ModuleDictImpl::contains(const std::string& name) const noexcept { return find(named_children(), name); }
std::vector<std::string> ModuleDictImpl::keys() const { return names_of(named_children()); }

const std::shared_ptr<Module>& ModuleDictImpl::operator[](const std::string& name) const {
  const std::shared_ptr<Module>* found = find(named_children(), name);
  TG_CHECK(found, Key, "ModuleDict: there is no module \"{}\"", name);
  return *found;
}

void ParameterListImpl::push_back(Tensor parameter, bool requires_grad) {
  TG_CHECK(parameter.defined(), Value, "ParameterList: the tensor is undefined");
  held_.push_back(register_parameter(std::to_string(size()), std::move(parameter), requires_grad));
}

const Tensor& ParameterListImpl::operator[](size_t i) const {
  TG_CHECK(i < size(), Index, "ParameterList: index {} is out of range: there are {} parameters", i, size());
  return held_[i];
}

std::string ParameterListImpl::extra_repr() const { return described(numbered(held_)); }

void ParameterDictImpl::insert(const std::string& name, Tensor parameter, bool requires_grad) {
  TG_CHECK(parameter.defined(), Value, "ParameterDict: the tensor is undefined");
  held_.emplace_back(name, register_parameter(name, std::move(parameter), requires_grad));
}

bool ParameterDictImpl::contains(const std::string& name) const noexcept { return find(held_, name); }
std::vector<std::string> ParameterDictImpl::keys() const { return names_of(held_); }

const Tensor& ParameterDictImpl::operator[](const std::string& name) const {
  const Tensor* found = find(held_, name);
  TG_CHECK(found, Key, "ParameterDict: there is no parameter \"{}\"", name);
  return *found;
}

std::string ParameterDictImpl::extra_repr() const { return described(held_); }

}  // namespace tapegrad::nn
