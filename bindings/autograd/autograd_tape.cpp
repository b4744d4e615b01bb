// Functions of `tapegrad._C._autograd`: backward and grad over several roots, saved-tensor hooks, anomaly mode,
// gradcheck. tapegrad/autograd/*.py gives them their public names and defaults.
#include "tapegrad/autograd/engine.h"
#include "tapegrad/autograd/gradcheck.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/interpreter/program_scope.h"
#include "tapegrad/bindings/tensor/tensor_type.h"

namespace tapegrad::python {

namespace {

// Tensors of a tuple, None as undefined.
std::vector<Tensor> tensors_of(PyObject* tuple, const Ctx& ctx) {
  std::vector<Tensor> list;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    list.push_back(item == Py_None ? Tensor() : to_tensor(item, ctx));
  }
  return list;
}

// _run_backward(tensors, grads, inputs, retain_graph, create_graph)
PyObject* run_backward(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject *tensors, *grads, *inputs;
  int retain, create;
  if (!PyArg_ParseTuple(args, "O!O!O!pp:backward", &PyTuple_Type, &tensors, &PyTuple_Type, &grads, &PyTuple_Type,
                        &inputs, &retain, &create))
    return nullptr;
  const auto roots = tensors_of(tensors, {"backward", "tensors", 1});
  const auto weights = tensors_of(grads, {"backward", "grad_tensors", 2});
  const auto leaves = tensors_of(inputs, {"backward", "inputs", 5});
  autograd::BackwardOptions options;
  options.retain_graph = retain != 0;
  options.create_graph = create != 0;
  {
    GilRelease released;
    autograd::run_backward(roots, weights, leaves, options);
  }
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// _grad(outputs, inputs, grad_outputs, retain_graph, create_graph, allow_unused): a tuple, None where unused
PyObject* gradients(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject *outputs, *inputs, *grads;
  int retain, create, allow_unused;
  if (!PyArg_ParseTuple(args, "O!O!O!ppp:grad", &PyTuple_Type, &outputs, &PyTuple_Type, &inputs, &PyTuple_Type, &grads,
                        &retain, &create, &allow_unused))
    return nullptr;
  const auto roots = tensors_of(outputs, {"grad", "outputs", 1});
  const auto wanted = tensors_of(inputs, {"grad", "inputs", 2});
  const auto weights = tensors_of(grads, {"grad", "grad_outputs", 3});
  std::vector<Tensor> result;
  {
    GilRelease released;
    result = autograd::grad(roots, wanted, weights, retain != 0, create != 0, allow_unused != 0);
  }
  PyRef tuple = own(PyTuple_New(static_cast<Py_ssize_t>(result.size())));
  for (size_t i = 0; i < result.size(); ++i)
    PyTuple_SET_ITEM(tuple.get(), static_cast<Py_ssize_t>(i), check(wrap(std::move(result[i]))));
  return tuple.release();
  TG_PY_CATCH
}

PyObject* push_hooks(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject *pack, *unpack;
  if (!PyArg_ParseTuple(args, "OO:saved_tensors_hooks", &pack, &unpack)) return nullptr;
  TG_CHECK(PyCallable_Check(pack) && PyCallable_Check(unpack), Type,
           "saved_tensors_hooks: both hooks must be callable: got {} and {}", Py_TYPE(pack)->tp_name,
           Py_TYPE(unpack)->tp_name);
  autograd::push_saved_tensor_hooks(make_saved_tensor_hooks(pack, unpack));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* pop_hooks(PyObject*, PyObject*) {
  TG_PY_TRY
  autograd::pop_saved_tensor_hooks();
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* set_anomaly(PyObject*, PyObject* args) {
  int enabled, check_nan;
  if (!PyArg_ParseTuple(args, "pp:set_detect_anomaly", &enabled, &check_nan)) return nullptr;
  autograd::set_anomaly(enabled != 0, check_nan != 0);
  Py_RETURN_NONE;
}
PyObject* is_anomaly_enabled(PyObject*, PyObject*) { return PyBool_FromLong(autograd::anomaly_enabled()); }
PyObject* is_anomaly_check_nan_enabled(PyObject*, PyObject*) { return PyBool_FromLong(autograd::anomaly_check_nan()); }

PyObject* queue_callback(PyObject*, PyObject* callback) {
  TG_PY_TRY
  TG_CHECK(PyCallable_Check(callback), Type, "queue_callback: the callback must be callable: got {}",
           Py_TYPE(callback)->tp_name);
  autograd::queue_callback([shared = share(callback)] {
    const ProgramScope scope;
    own(PyObject_CallNoArgs(shared->get()));
  });
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* in_backward(PyObject*, PyObject*) { return PyBool_FromLong(autograd::in_backward()); }

PyObject* current_node(PyObject*, PyObject*) {
  TG_PY_TRY
  autograd::Node* node = autograd::current_node();
  if (!node) Py_RETURN_NONE;
  return wrap_tape_node(intrusive_ptr<autograd::Node>(node));
  TG_PY_CATCH
}

// _gradcheck(function, inputs, eps, atol, rtol, second): the function takes the tensors of `inputs` and returns a tuple
PyObject* gradcheck(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject *function, *inputs;
  autograd::GradcheckOptions options;
  int second;
  if (!PyArg_ParseTuple(args, "OO!dddp:gradcheck", &function, &PyTuple_Type, &inputs, &options.eps, &options.atol,
                        &options.rtol, &second))
    return nullptr;
  const auto tensors = tensors_of(inputs, {"gradcheck", "inputs", 2});
  auto call = [function](TensorSpan given) {
    const ProgramScope scope;
    PyRef all = own(PyTuple_New(static_cast<Py_ssize_t>(given.size())));
    for (size_t i = 0; i < given.size(); ++i)
      PyTuple_SET_ITEM(all.get(), static_cast<Py_ssize_t>(i), check(wrap(given[i])));
    PyRef result = own(PyObject_CallObject(function, all.get()));
    TG_CHECK(PyTuple_Check(result.get()), Type, "gradcheck: the function must return tensors: got {}",
             Py_TYPE(result.get())->tp_name);
    return tensors_of(result.get(), {"gradcheck", "func"});
  };
  {
    GilRelease released;
    if (second)
      autograd::gradgradcheck(call, tensors, options);
    else
      autograd::gradcheck(call, tensors, options);
  }
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyMethodDef functions[] = {
    {"run_backward", run_backward, METH_VARARGS, nullptr},
    {"grad", gradients, METH_VARARGS, nullptr},
    {"push_saved_tensors_hooks", push_hooks, METH_VARARGS, nullptr},
    {"pop_saved_tensors_hooks", pop_hooks, METH_NOARGS, nullptr},
    {"set_anomaly", set_anomaly, METH_VARARGS, nullptr},
    {"is_anomaly_enabled", is_anomaly_enabled, METH_NOARGS, nullptr},
    {"is_anomaly_check_nan_enabled", is_anomaly_check_nan_enabled, METH_NOARGS, nullptr},
    {"queue_callback", queue_callback, METH_O, nullptr},
    {"in_backward", in_backward, METH_NOARGS, nullptr},
    {"current_node", current_node, METH_NOARGS, nullptr},
    {"gradcheck", gradcheck, METH_VARARGS, nullptr},
    {},
};

}  // namespace

std::shared_ptr<void> PythonSavedTensorHooks::pack(const Tensor& t) {
  const ProgramScope scope;
  PyRef argument = own(wrap(t));
  PyRef packed = own(PyObject_CallOneArg(pack_callable->get(), argument.get()));
  return share(packed.get());
}

Tensor PythonSavedTensorHooks::unpack(const std::shared_ptr<void>& packed) {
  const ProgramScope scope;
  PyRef result = own(PyObject_CallOneArg(unpack_callable->get(), static_cast<SharedObject*>(packed.get())->get()));
  TG_CHECK(is_tensor(result.get()), Type, "saved_tensors_hooks: the unpack hook must return a Tensor: got {}",
           Py_TYPE(result.get())->tp_name);
  return unwrap(result.get());
}

std::shared_ptr<autograd::SavedTensorHooks> make_saved_tensor_hooks(PyObject* pack, PyObject* unpack) {
  return std::make_shared<PythonSavedTensorHooks>(pack, unpack);
}

bool init_tape_functions(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

bool init_autograd(PyObject* module) {
  PyRef tape(PyModule_New("tapegrad._C._autograd"));
  if (!tape || !init_nodes(tape.get()) || !init_handles(tape.get()) || !init_contexts(tape.get()) ||
      !init_grad_modes(tape.get()) || !init_tape_functions(tape.get()))
    return false;
  init_collector();
  return PyModule_AddObjectRef(module, "_autograd", tape.get()) == 0 &&
         PyDict_SetItemString(PyImport_GetModuleDict(), "tapegrad._C._autograd", tape.get()) == 0;
}

}  // namespace tapegrad::python
