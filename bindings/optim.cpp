// The optimizers' fused steps as Python calls them: `_adam_step(param_groups, state)` walks the groups and the state
// dictionaries natively, so that a step costs no Python code per parameter. The dictionaries stay the only place where
// state lives: nothing is cached here.
#include <array>

#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/autograd/meta.h"
#include "tapegrad/autograd/node.h"
#include "tapegrad/bindings/args.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/nn/optim/fused.h"

namespace tapegrad::python {
namespace {

// Keys of the dictionaries, interned at first use.
struct Keys {
  PyObject* params = intern("params");
  PyObject* lr = intern("lr");
  PyObject* betas = intern("betas");
  PyObject* eps = intern("eps");
  PyObject* weight_decay = intern("weight_decay");
  PyObject* amsgrad = intern("amsgrad");
  PyObject* maximize = intern("maximize");
  PyObject* decoupled = intern("decoupled_weight_decay");
  PyObject* momentum = intern("momentum");
  PyObject* dampening = intern("dampening");
  PyObject* nesterov = intern("nesterov");
  PyObject* step = intern("step");
  PyObject* exp_avg = intern("exp_avg");
  PyObject* exp_avg_sq = intern("exp_avg_sq");
  PyObject* max_exp_avg_sq = intern("max_exp_avg_sq");
  PyObject* momentum_buffer = intern("momentum_buffer");

  static PyObject* intern(const char* text) { return check(PyUnicode_InternFromString(text)); }
};

const Keys& keys() {
  static const Keys instance;
  return instance;
}

// Borrowed; null when absent.
PyObject* find(PyObject* dict, PyObject* key) {
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr && PyErr_Occurred()) throw_python_error();
  return value;
}

PyObject* get(PyObject* dict, PyObject* key, const char* op) {
  PyObject* value = find(dict, key);
  if (value == nullptr) TG_THROW(Key, "{}: the parameter group has no entry '{}'", op, PyUnicode_AsUTF8(key));
  return value;
}

void require(bool condition, const char* op, const char* what, PyObject* got) {
  TG_CHECK(condition, Type, "{}: expected {}: got {}", op, what, Py_TYPE(got)->tp_name);
}

double number(PyObject* dict, PyObject* key, const char* op) {
  return to_double(get(dict, key, op), {op, PyUnicode_AsUTF8(key)});
}

bool flag(PyObject* dict, PyObject* key) {
  PyObject* value = find(dict, key);
  if (value == nullptr) return false;
  const int truth = PyObject_IsTrue(value);
  check_status(truth);
  return truth != 0;
}

const Tensor* gradient_of(const Tensor& param) {
  const autograd::AutogradMeta* meta = autograd::meta(param);
  return meta && meta->grad.defined() ? &meta->grad : nullptr;
}

// The state dictionary of a parameter; made, and entered, when there is none.
PyRef state_of(PyObject* state, PyObject* param) {
  if (PyObject* found = find(state, param)) {
    require(PyDict_Check(found), "optimizer", "a dictionary as state of a parameter", found);
    return PyRef::borrow(found);
  }
  PyRef made = own(PyDict_New());
  check_status(PyDict_SetItem(state, param, made.get()));
  return made;
}

Tensor zeros_as(const Tensor& t) {
  TensorSpec spec{DimVector(t.sizes()), t.dtype(), t.device(), {}};
  if (t.impl()->is_non_overlapping_and_dense()) spec.strides = DimVector(t.strides());
  Tensor zeros = empty_tensor(spec);
  zeros.zero_();
  return zeros;
}

const Tensor& state_tensor(PyObject* state, PyObject* key, const Tensor& like) {
  PyObject* value = find(state, key);
  if (value == nullptr) {
    PyRef made = own(wrap(zeros_as(like)));
    check_status(PyDict_SetItem(state, key, made.get()));
    value = made.get();  // the dictionary owns it
  }
  require(is_tensor(value), "optimizer", "a tensor as state", value);
  return unwrap(value);
}

// Counts up: a tensor without dimensions, as PyTorch keeps it, or a number from an older file.
double advance(PyObject* state) {
  PyObject* value = find(state, keys().step);
  if (value == nullptr) {
    Tensor step = empty_tensor({}, DType::float32);
    *step.data<float>() = 1;
    PyRef made = own(wrap(std::move(step)));
    check_status(PyDict_SetItem(state, keys().step, made.get()));
    return 1;
  }
  if (!is_tensor(value)) {
    const double next = to_double(value, {"optimizer", "step"}) + 1;
    PyRef made = own(PyFloat_FromDouble(next));
    check_status(PyDict_SetItem(state, keys().step, made.get()));
    return next;
  }
  const Tensor& step = unwrap(value);
  if (step.dtype() == DType::float32 && step.is_cpu() && step.numel() == 1) return *step.data<float>() += 1;
  step.add_(1);
  return step.item<double>();
}

struct Call {
  PyObject* groups;
  PyObject* state;
};

Call unpack(PyObject* const* args, Py_ssize_t nargs, const char* op) {
  TG_CHECK(nargs == 2, Type, "{}: expected the parameter groups and the state: got {} arguments", op, nargs);
  require(PyList_Check(args[0]), op, "a list of parameter groups", args[0]);
  require(PyDict_Check(args[1]), op, "a dictionary of states", args[1]);
  return {args[0], args[1]};
}

template <class F>  // f(group, list of parameters)
void for_groups(const Call& call, const char* op, F&& f) {
  for (Py_ssize_t g = 0; g < PyList_GET_SIZE(call.groups); ++g) {
    PyObject* group = PyList_GET_ITEM(call.groups, g);
    require(PyDict_Check(group), op, "a dictionary as parameter group", group);
    PyObject* params = get(group, keys().params, op);
    require(PyList_Check(params), op, "a list of parameters", params);
    f(group, params);
  }
}

PyObject* adam_step(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  constexpr const char* kOp = "adam_step";
  const Call call = unpack(args, nargs, kOp);
  const NoGradGuard no_grad;
  for_groups(call, kOp, [&](PyObject* group, PyObject* params) {
    nn::AdamSettings s;
    s.lr = number(group, keys().lr, kOp);
    PyObject* betas = get(group, keys().betas, kOp);
    require(PySequence_Check(betas), kOp, "two numbers as betas", betas);
    s.beta1 = to_double(own(PySequence_GetItem(betas, 0)).get(), {kOp, "betas"});
    s.beta2 = to_double(own(PySequence_GetItem(betas, 1)).get(), {kOp, "betas"});
    s.eps = number(group, keys().eps, kOp);
    s.weight_decay = number(group, keys().weight_decay, kOp);
    s.amsgrad = flag(group, keys().amsgrad);
    s.maximize = flag(group, keys().maximize);
    s.decoupled = flag(group, keys().decoupled);
    std::vector<nn::AdamEntry> entries;
    entries.reserve(static_cast<size_t>(PyList_GET_SIZE(params)));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) {
      PyObject* object = PyList_GET_ITEM(params, i);
      require(is_tensor(object), kOp, "a tensor as parameter", object);
      const Tensor& param = unwrap(object);
      const Tensor* grad = gradient_of(param);
      if (grad == nullptr) continue;
      TG_CHECK(!grad->is_sparse(), Runtime,
               "Adam does not support sparse gradients, please consider SparseAdam instead");
      const PyRef state = state_of(call.state, object);
      nn::AdamEntry& entry = entries.emplace_back();
      entry.param = param;
      entry.grad = *grad;
      entry.step = advance(state.get());
      entry.exp_avg = state_tensor(state.get(), keys().exp_avg, param);
      entry.exp_avg_sq = state_tensor(state.get(), keys().exp_avg_sq, param);
      if (s.amsgrad) entry.max_exp_avg_sq = state_tensor(state.get(), keys().max_exp_avg_sq, param);
    }
    nn::fused_adam_step(entries, s);
  });
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* sgd_step(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  constexpr const char* kOp = "sgd_step";
  const Call call = unpack(args, nargs, kOp);
  const NoGradGuard no_grad;
  for_groups(call, kOp, [&](PyObject* group, PyObject* params) {
    nn::SgdSettings s;
    s.lr = number(group, keys().lr, kOp);
    s.momentum = number(group, keys().momentum, kOp);
    s.dampening = number(group, keys().dampening, kOp);
    s.weight_decay = number(group, keys().weight_decay, kOp);
    s.nesterov = flag(group, keys().nesterov);
    s.maximize = flag(group, keys().maximize);
    std::vector<nn::SgdEntry> entries;
    entries.reserve(static_cast<size_t>(PyList_GET_SIZE(params)));
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) {
      PyObject* object = PyList_GET_ITEM(params, i);
      require(is_tensor(object), kOp, "a tensor as parameter", object);
      const Tensor& param = unwrap(object);
      const Tensor* grad = gradient_of(param);
      if (grad == nullptr) continue;
      if (grad->is_sparse()) {  // only the rows that were used
        TG_CHECK(s.momentum == 0 && s.weight_decay == 0, NotImplemented,
                 "SGD: momentum and weight_decay do not go with sparse gradients: got {} and {}", s.momentum,
                 s.weight_decay);
        sparse::add_to_(param, *grad, s.maximize ? s.lr : -s.lr);
        autograd::bump_version(param, "SGD");
        continue;
      }
      nn::SgdEntry& entry = entries.emplace_back();
      entry.param = param;
      entry.grad = *grad;
      if (s.momentum == 0) continue;
      const PyRef state = state_of(call.state, object);
      PyObject* buffer = find(state.get(), keys().momentum_buffer);
      if (buffer == Py_None) check_status(PyDict_DelItem(state.get(), keys().momentum_buffer));
      entry.first = buffer == nullptr || buffer == Py_None;
      entry.momentum_buffer = state_tensor(state.get(), keys().momentum_buffer, param);
    }
    nn::fused_sgd_step(entries, s);
  });
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// _zero_grad(param_groups, set_to_none)
PyObject* zero_grad(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  constexpr const char* kOp = "zero_grad";
  TG_CHECK(nargs == 2, Type, "{}: expected the parameter groups and set_to_none: got {} arguments", kOp, nargs);
  require(PyList_Check(args[0]), kOp, "a list of parameter groups", args[0]);
  const int set_to_none = PyObject_IsTrue(args[1]);
  check_status(set_to_none);
  const NoGradGuard no_grad;
  for_groups({args[0], nullptr}, kOp, [&](PyObject*, PyObject* params) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(params); ++i) {
      PyObject* object = PyList_GET_ITEM(params, i);
      require(is_tensor(object), kOp, "a tensor as parameter", object);
      const Tensor& param = unwrap(object);
      const Tensor* grad = gradient_of(param);
      if (grad == nullptr) continue;
      if (set_to_none) {
        param.set_grad(Tensor());
      } else if (grad->is_sparse()) {
        const Tensor none = raw::narrow(sparse::indices(*grad), 1, 0, 0);
        param.set_grad(sparse::make(none, raw::narrow(sparse::values(*grad), 0, 0, 0), grad->sizes(), true));
      } else if (grad->requires_grad()) {
        const Tensor zeroed = grad->detach();
        zeroed.zero_();
        param.set_grad(zeroed);
      } else {
        grad->zero_();
      }
    }
  });
  Py_RETURN_NONE;
  TG_PY_CATCH
}

template <class F>
PyCFunction erase(F* f) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(f));
}

}  // namespace

PyMethodDef optim_functions[] = {
    {"_adam_step", erase(&adam_step), METH_FASTCALL, "_adam_step(param_groups, state): one step of Adam or AdamW"},
    {"_sgd_step", erase(&sgd_step), METH_FASTCALL, "_sgd_step(param_groups, state): one step of SGD"},
    {"_zero_grad", erase(&zero_grad), METH_FASTCALL, "_zero_grad(param_groups, set_to_none)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace tapegrad::python
