// What the parameter groups of an optimizer say: rules with the keys under which Python holds their options and state,
// options as numbers, lists of parameters. Included by optim.cpp alone. Needs the GIL.
#pragma once

#include <algorithm>
#include <array>

#include "tapegrad/autograd/meta.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/nn/optim/fused.h"

namespace tapegrad::python::optimizer_groups {

inline PyObject* intern(const char* text) { return check(PyUnicode_InternFromString(text)); }

// A rule with the keys under which Python holds its options and state, interned at first use.
struct BoundRule {
  const nn::Rule* rule;
  std::vector<PyObject*> options, scalars;
  mutable std::vector<std::pair<const char*, PyObject*>> tensors;  // by the address of the name

  PyObject* tensor_key(const char* name) const {
    for (const auto& [known, key] : tensors)
      if (known == name) return key;
    return tensors.emplace_back(name, intern(name)).second;
  }
};

inline const BoundRule& bound_rule(PyObject* name) {
  static const std::vector<BoundRule> all = [] {
    std::vector<BoundRule> made;
    for (const nn::Rule& rule : nn::optimizer_rules()) {
      BoundRule& bound = made.emplace_back();
      bound.rule = &rule;
      for (const nn::rules::Option& option : rule.options) bound.options.push_back(intern(option.name));
      for (const char* scalar : rule.scalars) bound.scalars.push_back(intern(scalar));
    }
    return made;
  }();
  TG_CHECK(PyUnicode_Check(name), Type, "optimizer: expected the name of a rule: got {}", Py_TYPE(name)->tp_name);
  return all[static_cast<size_t>(nn::optimizer_rule(PyUnicode_AsUTF8(name)).index)];
}

template <Text kText>
PyObject* key() {
  static PyObject* const interned = intern(kText.text);
  return interned;
}

// Borrowed; null when absent.
inline PyObject* find(PyObject* dict, PyObject* key) {
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr && PyErr_Occurred()) throw_python_error();
  return value;
}

inline PyObject* get(PyObject* dict, PyObject* key, const char* op) {
  PyObject* value = find(dict, key);
  if (value == nullptr) TG_THROW(Key, "{}: the parameter group has no entry '{}'", op, PyUnicode_AsUTF8(key));
  return value;
}

inline void require(bool condition, const char* op, const char* what, PyObject* got) {
  TG_CHECK(condition, Type, "{}: expected {}: got {}", op, what, Py_TYPE(got)->tp_name);
}

inline std::vector<Tensor> tensors_in(PyObject* list, const char* op) {
  require(PyList_Check(list), op, "a list of tensors", list);
  std::vector<Tensor> tensors;
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) {
    PyObject* t = PyList_GET_ITEM(list, i);
    require(is_tensor(t), op, "a tensor", t);
    tensors.push_back(unwrap(t));
  }
  return tensors;
}

inline bool flag(PyObject* dict, PyObject* key) {
  PyObject* value = find(dict, key);
  if (value == nullptr) return false;
  const int truth = PyObject_IsTrue(value);
  check_status(truth);
  return truth != 0;
}

inline const Tensor* gradient_of(const Tensor& param) {
  const autograd::AutogradMeta* meta = autograd::meta(param);
  return meta && meta->grad.defined() ? &meta->grad : nullptr;
}

inline float* plain_number(const Tensor& t) {
  return t.dtype() == DType::float32 && t.is_cpu() && t.numel() == 1 ? t.data<float>() : nullptr;
}

// The options of a group in the order of a rule; where one is a tensor, the tensor as well.
struct Options {
  std::array<double, nn::kMaxOptions> numbers{};
  std::array<Tensor, nn::kMaxOptions> tensors;

  // kNumbers: tensors are read. kBoth: they are kept as well. kOfDevices: those of devices are kept, and not read.
  enum Tensors { kNumbers, kBoth, kOfDevices };

  Options(PyObject* group, const BoundRule& bound, Tensors which) {
    const nn::Rule& rule = *bound.rule;
    for (size_t i = 0; i < bound.options.size(); ++i) {
      const nn::rules::Option& option = rule.options[i];
      PyObject* value = find(group, bound.options[i]);
      if (value == nullptr) {
        if (option.absent == nn::rules::Option::kNeeded)
          TG_THROW(Key, "{}: the parameter group has no entry '{}'", rule.name, option.name);
        numbers[i] = option.absent;
        continue;
      }
      PyRef item;
      if (option.item >= 0) {
        require(PySequence_Check(value), rule.name, "a pair of numbers", value);
        item = own(PySequence_GetItem(value, option.item));
        value = item.get();
      }
      if (is_tensor(value) && (which == kBoth || (which == kOfDevices && unwrap(value).is_cuda())))
        tensors[i] = unwrap(value);
      if (which == kOfDevices && tensors[i].defined()) continue;
      if (option.absent != nn::rules::Option::kNeeded) {
        const int truth = PyObject_IsTrue(value);
        check_status(truth);
        numbers[i] = truth;
      } else {
        // What is kept as a tensor has its gradient there, so its value may be read.
        const PyRef number = tensors[i].defined() ? own(wrap(tensors[i].detach())) : PyRef::borrow(value);
        numbers[i] = to_double(number.get(), {rule.name, option.name});
      }
    }
  }
  bool has_tensors() const {
    return std::any_of(tensors.begin(), tensors.end(), [](const Tensor& t) { return t.defined(); });
  }
  // The numbers of tensors that were not read.
  void read(const nn::Rule& rule) {
    for (size_t i = 0; i < rule.options.size(); ++i)
      if (tensors[i].defined()) numbers[i] = tensors[i].item<double>();
  }
};

struct Call {
  PyObject* groups;
  PyObject* state;
};

template <class F>  // f(group, list of parameters)
void for_groups(const Call& call, const char* op, F&& f) {
  for (Py_ssize_t g = 0; g < PyList_GET_SIZE(call.groups); ++g) {
    PyObject* group = PyList_GET_ITEM(call.groups, g);
    require(PyDict_Check(group), op, "a dictionary as parameter group", group);
    PyObject* params = get(group, key<"params">(), op);
    require(PyList_Check(params), op, "a list of parameters", params);
    f(group, params);
  }
}

}  // namespace tapegrad::python::optimizer_groups
