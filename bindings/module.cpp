// The extension module tapegrad._C.

#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/override.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/distributed/objects.h"
#include "tapegrad/bindings/distributed/reducer_object.h"
#include "tapegrad/bindings/exchange/numpy_scalar.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/nn/module_type.h"
#include "tapegrad/bindings/registry.h"
#include "tapegrad/bindings/tensor/tensor_type.h"
#include "tapegrad/bindings/values/value_objects.h"

namespace tapegrad::python {

namespace {

// `_C._functions`: {"nn.functional": {"relu": <function>, ...}, ...}, from which the package fills its modules.
bool add_functions(PyObject* tables, const char* module, PyMethodDef* defs) {
  PyRef key(PyUnicode_FromString(module));
  PyRef full_name(PyUnicode_FromFormat(*module ? "tapegrad.%s" : "tapegrad%s", module));
  if (!key || !full_name) return false;
  PyObject* table = PyDict_GetItemWithError(tables, key.get());
  PyRef fresh;
  if (!table) {
    fresh = PyRef(table = PyDict_New());
    if (!table || PyDict_SetItem(tables, key.get(), table) < 0) return false;
  }
  for (; defs->ml_name; ++defs) {
    if (PyDict_GetItemString(table, defs->ml_name)) continue;  // hand-written ones come first
    PyRef function(PyCFunction_NewEx(defs, nullptr, full_name.get()));
    if (!function || PyDict_SetItemString(table, defs->ml_name, function.get()) < 0) return false;
  }
  return true;
}

bool init_functions(PyObject* module) {
  if (PyModule_AddFunctions(module, optim_functions) < 0) return false;
  for (PyMethodDef* defs : {sparse_functions, shared_memory_functions, keyed_generator_functions, profiler_functions,
                            cuda_functions, transform_functions})
    if (PyModule_AddFunctions(module, defs) < 0) return false;
  PyRef tables(PyDict_New());
  if (!tables) return false;
  for (PyMethodDef* defs : {new_functions, exchange_functions, global_functions, random_functions})
    if (!add_functions(tables.get(), "", defs)) return false;
  for (const ModuleFunctions& f : module_functions())
    if (!add_functions(tables.get(), f.module, f.defs)) return false;
  return PyModule_AddObjectRef(module, "_functions", tables.get()) == 0;
}

bool init_return_type_module(PyObject* module) {
  PyRef types(PyModule_New("tapegrad.return_types"));
  return types && init_return_types(types.get()) && PyModule_AddObjectRef(module, "return_types", types.get()) == 0;
}

bool init_all(PyObject* module) {
  return init_numpy() && init_errors(module) && init_value_objects(module) && init_device(module) &&
         init_size(module) && init_generator(module) && init_tensor_type(module) && init_overrides(module) &&
         init_module_type(module) && init_autograd(module) && init_functions(module) &&
         init_return_type_module(module) && init_interpreter_hooks() && init_call_sites() && init_record(module) &&
         init_program(module) && init_nested(module) && init_places(module) && init_reads(module) &&
         init_walk(module) && init_stores(module) && init_groups(module) && init_reducer(module) &&
         PyModule_AddStringConstant(module, "__version__", TG_VERSION) == 0;
}

// The library's types, hooks and tables exist once: a second module over them would take the first one's place in them.
constexpr const char* kSecondImport =
    "tapegrad: cannot be imported a second time: its first import is still in use; start a new interpreter instead";

int fill_module(PyObject* module) {
  TG_PY_TRY
  static bool filled = false;
  const char* refusal = nullptr;
  if (PyInterpreterState_Get() != PyInterpreterState_Main())
    refusal = "tapegrad: cannot be imported in a subinterpreter: use the main interpreter, or a process of its own";
  else if (filled)
    refusal = kSecondImport;
  if (refusal) {
    PyErr_SetString(PyExc_ImportError, refusal);
    return -1;
  }
  if (!init_all(module) || PyModule_AddStringConstant(module, "_second_import", kSecondImport) < 0) return -1;
  init_device_hooks();
  filled = true;
  return 0;
  TG_PY_CATCH_RETURN(-1)
}

PyModuleDef_Slot slots[] = {
    {Py_mod_exec, reinterpret_cast<void*>(fill_module)},
#ifdef Py_mod_multiple_interpreters
    {Py_mod_multiple_interpreters, Py_MOD_MULTIPLE_INTERPRETERS_NOT_SUPPORTED},
#endif
    {0, nullptr},
};
// Multi-phase initialisation, so that each import calls fill_module().
PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "tapegrad._C",
                          "The native part of tapegrad.",
                          0,
                          internal_functions,
                          slots,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

}  // namespace tapegrad::python

PyMODINIT_FUNC PyInit__C() { return PyModuleDef_Init(&tapegrad::python::definition); }
