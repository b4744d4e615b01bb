#include "tapegrad/bindings/nn/module_type.h"

#include <structmember.h>

#include <cstring>
#include <string>

#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/type_object.h"
#include "tapegrad/bindings/nn/module_path.h"
#include "tapegrad/bindings/tensor/tensor_object.h"
#include "tapegrad/c10/threads/stack.h"

namespace tapegrad::python {

namespace {

struct PyModuleBase {
  PyObject_HEAD vectorcallfunc vectorcall;
};

PyTypeObject* module_base = nullptr;

// Interned names of what is looked up in instances.
PyObject *k_parameters, *k_buffers, *k_modules, *k_non_persistent, *k_forward, *k_call_impl, *k_getattr, *k_persistent,
    *k_register_parameter, *k_register_buffer;
PyObject* k_hooks[4];  // each a dictionary in the instance
// The dictionaries of hooks for all modules, from nn.module; fetched at the first call.
PyObject* global_hooks[4];
PyObject* module_registration_hooks = nullptr;
PyObject* buffer_type = nullptr;  // nn.Buffer
bool fetched = false;

constexpr const char* kHookNames[4] = {"_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks",
                                       "_backward_hooks"};

bool fetch_globals() {
  if (fetched) return true;
  PyRef module(PyImport_ImportModule("tapegrad.nn.module"));
  if (!module) return false;
  for (int i = 0; i < 4; ++i) {
    const std::string name = std::string("_global") + kHookNames[i];
    global_hooks[i] = PyObject_GetAttrString(module.get(), name.c_str());
    if (!global_hooks[i]) return false;
  }
  module_registration_hooks = PyObject_GetAttrString(module.get(), "_global_module_registration_hooks");
  PyRef parameters(PyImport_ImportModule("tapegrad.nn.parameter"));
  if (!module_registration_hooks || !parameters) return false;
  buffer_type = PyObject_GetAttrString(parameters.get(), "Buffer");
  fetched = buffer_type != nullptr;
  return fetched;
}

// The instance's dictionary, borrowed; null with an exception set.
PyObject* dict_of(PyObject* self) {
  PyRef dict(PyObject_GenericGetDict(self, nullptr));
  return dict.get();  // the instance keeps it
}

// A value of the instance's dictionary, borrowed, or null without an exception.
PyObject* state(PyObject* dict, PyObject* name) { return PyDict_GetItemWithError(dict, name); }

bool filled(PyObject* table) { return table && PyDict_Check(table) && PyDict_GET_SIZE(table) > 0; }

bool has_hooks(PyObject* dict) {
  for (int i = 0; i < 4; ++i)
    if (filled(global_hooks[i]) || filled(state(dict, k_hooks[i]))) return true;
  return false;
}

// Calls self.NAME(...); all[0] is self. A plain function of the class, the usual `forward`, is called without a bound
// method.
PyObject* call_named(PyObject* dict, PyObject* name, PyObject* const* all, size_t n, PyObject* kwnames) {
  PyObject* function = _PyType_Lookup(Py_TYPE(all[0]), name);
  if (TG_LIKELY(function && PyFunction_Check(function) && !PyDict_GetItemWithError(dict, name))) {
    PyRef keep = PyRef::borrow(function);
    return PyObject_Vectorcall(function, all, n, kwnames);
  }
  return PyObject_VectorcallMethod(name, all, n, kwnames);
}

// False, with RecursionError set, when little stack is left.
bool has_stack() {
  TG_PY_TRY
  check_stack("Module");
  return true;
  TG_PY_CATCH_RETURN(false)
}

// The result of a call; on an exception, adds the module to its path.
PyObject* named(PyObject* self, PyObject* result) {
  if (TG_UNLIKELY(!result)) name_failed_module(self, k_modules);
  return result;
}

PyObject* call_forward(PyObject* self, PyObject* const* args, size_t nargsf, PyObject* kwnames) {
  if (!has_stack() || (TG_UNLIKELY(!fetched) && !fetch_globals())) return nullptr;
  PyObject* dict = dict_of(self);
  if (!dict) return nullptr;
  autograd::profiler::Scope scope;
  if (TG_UNLIKELY(modes() & kModeProfile)) profile_module(scope, self);
  PyObject* name = has_hooks(dict) ? k_call_impl : k_forward;
  const auto n = static_cast<size_t>(PyVectorcall_NARGS(nargsf));
  // The caller often leaves the slot before the arguments free for self.
  if (nargsf & PY_VECTORCALL_ARGUMENTS_OFFSET) {
    auto** writable = const_cast<PyObject**>(args) - 1;
    PyObject* saved = *writable;
    *writable = self;
    PyObject* result = call_named(dict, name, writable, n + 1, kwnames);
    *writable = saved;
    return named(self, result);
  }
  const size_t total = n + (kwnames ? static_cast<size_t>(PyTuple_GET_SIZE(kwnames)) : 0);
  PyObject* small[10];
  PyObject** all = total + 1 <= 10 ? small : static_cast<PyObject**>(PyMem_Malloc((total + 1) * sizeof(PyObject*)));
  if (!all) return PyErr_NoMemory();
  all[0] = self;
  std::memcpy(all + 1, args, total * sizeof(PyObject*));
  PyObject* result = call_named(dict, name, all, n + 1, kwnames);
  if (all != small) PyMem_Free(all);
  return named(self, result);
}

PyObject* module_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  PyObject* const* items = reinterpret_cast<PyTupleObject*>(args)->ob_item;
  const auto n = static_cast<size_t>(PyTuple_GET_SIZE(args));
  if (!kwargs || PyDict_GET_SIZE(kwargs) == 0) return call_forward(self, items, n, nullptr);
  if (!has_stack() || (!fetched && !fetch_globals())) return nullptr;
  PyObject* dict = dict_of(self);
  if (!dict) return nullptr;
  autograd::profiler::Scope scope;
  if (TG_UNLIKELY(modes() & kModeProfile)) profile_module(scope, self);
  PyRef method(PyObject_GetAttr(self, has_hooks(dict) ? k_call_impl : k_forward));
  PyObject* result = method ? PyObject_Call(method.get(), args, kwargs) : nullptr;
  return named(self, result);
}

PyObject* missing_attribute(PyObject* self, PyObject* name) {
  PyErr_Format(PyExc_AttributeError, "'%s' object has no attribute '%U'", Py_TYPE(self)->tp_name, name);
  return nullptr;
}

// What the instance has under this name besides its own attributes; null without an exception.
PyObject* find_member(PyObject* self, PyObject* name) {
  if (!has_stack()) return nullptr;
  PyObject* dict = dict_of(self);
  if (!dict) {
    PyErr_Clear();
    return nullptr;
  }
  for (PyObject* table_name : {k_parameters, k_modules, k_buffers}) {
    PyObject* table = state(dict, table_name);
    if (!table || !PyDict_Check(table)) continue;
    if (PyObject* value = PyDict_GetItemWithError(table, name)) return value;
    if (PyErr_Occurred()) return nullptr;
  }
  return nullptr;
}

PyObject* module_getattro(PyObject* self, PyObject* name) {
  if (PyObject* value = _PyObject_GenericGetAttrWithDict(self, name, nullptr, 1)) return value;
  if (PyErr_Occurred()) return nullptr;
  if (PyObject* value = find_member(self, name)) return Py_NewRef(value);
  if (PyErr_Occurred()) return nullptr;
  return missing_attribute(self, name);
}

// __getattr__, for classes that override it and call super().
PyObject* module_getattr(PyObject* self, PyObject* name) {
  if (PyObject* value = find_member(self, name)) return Py_NewRef(value);
  if (PyErr_Occurred()) return nullptr;
  return missing_attribute(self, name);
}

// Takes a name out of dictionaries and of the set of non-persistent buffers.
bool remove_from(PyObject* name, std::initializer_list<PyObject*> places) {
  for (PyObject* place : places) {
    if (!place) continue;
    if (PyDict_Check(place)) {
      const int found = PyDict_Contains(place, name);
      if (found < 0 || (found && PyDict_DelItem(place, name) < 0)) return false;
    } else if (PySet_Check(place) && PySet_Discard(place, name) < 0) {
      return false;
    }
  }
  return true;
}

bool contains(PyObject* table, PyObject* name) {
  return table && PyDict_Check(table) && PyDict_GetItemWithError(table, name) != nullptr;
}

int refuse(PyObject* name, PyObject* value, const char* kind, const char* expected) {
  PyErr_Format(PyExc_TypeError, "cannot assign '%s' as %s '%U' (%s expected)", Py_TYPE(value)->tp_name, kind, name,
               expected);
  return -1;
}

int before_init(const char* kind) {
  PyErr_Format(PyExc_AttributeError, "cannot assign %s before Module.__init__() call", kind);
  return -1;
}

int call_and_drop(PyObject* self, PyObject* method, std::initializer_list<PyObject*> args) {
  PyObject* all[4] = {self};
  size_t n = 1;
  for (PyObject* a : args) all[n++] = a;
  PyRef result(PyObject_VectorcallMethod(method, all, n, nullptr));
  return result ? 0 : -1;
}

int set_child(PyObject* self, PyObject* modules, PyObject* name, PyObject* value) {
  PyRef current = PyRef::borrow(value);
  if (filled(module_registration_hooks)) {
    PyRef hooks(PyMapping_Values(module_registration_hooks));
    if (!hooks) return -1;
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(hooks.get()); ++i) {
      PyObject* args[] = {self, name, current.get()};
      PyRef changed(PyObject_Vectorcall(PyList_GET_ITEM(hooks.get(), i), args, 3, nullptr));
      if (!changed) return -1;
      if (changed.get() != Py_None) current = std::move(changed);
    }
  }
  return PyDict_SetItem(modules, name, current.get());
}

int set_buffer(PyObject* self, PyObject* dict, PyObject* name, PyObject* value) {
  if (value != Py_None && !is_tensor(value))
    return refuse(name, value, "buffer", "tapegrad.nn.Buffer, tapegrad.Tensor or None");
  PyRef persistent;
  const int is_buffer = PyObject_IsInstance(value, buffer_type);
  if (is_buffer < 0) return -1;
  if (is_buffer) {
    persistent = PyRef(PyObject_GetAttr(value, k_persistent));
    if (!persistent) return -1;
    if (!remove_from(name, {dict, state(dict, k_parameters), state(dict, k_modules)})) return -1;
  } else {
    PyObject* set = state(dict, k_non_persistent);
    const int transient = set && PySet_Check(set) ? PySet_Contains(set, name) : 0;
    if (transient < 0) return -1;
    persistent = PyRef::borrow(transient ? Py_False : Py_True);
  }
  return call_and_drop(self, k_register_buffer, {name, value, persistent.get()});
}

int delete_attribute(PyObject* self, PyObject* dict, PyObject* name) {
  for (PyObject* table_name : {k_parameters, k_modules, k_buffers}) {
    PyObject* table = state(dict, table_name);
    if (!contains(table, name)) {
      if (PyErr_Occurred()) return -1;
      continue;
    }
    if (table_name == k_buffers && !remove_from(name, {state(dict, k_non_persistent)})) return -1;
    return PyDict_DelItem(table, name);
  }
  return PyObject_GenericSetAttr(self, name, nullptr);
}

int module_setattro(PyObject* self, PyObject* name, PyObject* value) {
  PyObject* dict = dict_of(self);
  if (!dict) return -1;
  if (!value) return delete_attribute(self, dict, name);
  PyObject* parameters = state(dict, k_parameters);
  PyObject* modules = state(dict, k_modules);
  PyObject* buffers = state(dict, k_buffers);
  if (PyErr_Occurred()) return -1;
  const int is_parameter = is_tensor(value) ? PyObject_IsInstance(value, as_object(parameter_type)) : 0;
  if (is_parameter < 0) return -1;
  if (is_parameter) {
    if (!parameters) return before_init("parameters");
    if (!remove_from(name, {dict, buffers, modules, state(dict, k_non_persistent)})) return -1;
    return call_and_drop(self, k_register_parameter, {name, value});
  }
  if (contains(parameters, name)) {
    if (value != Py_None) return refuse(name, value, "parameter", "tapegrad.nn.Parameter or None");
    return call_and_drop(self, k_register_parameter, {name, value});
  }
  if (PyObject_TypeCheck(value, module_base)) {
    if (!modules) return before_init("module");
    if (!fetched && !fetch_globals()) return -1;
    if (!remove_from(name, {dict, parameters, buffers, state(dict, k_non_persistent)})) return -1;
    return set_child(self, modules, name, value);
  }
  if (contains(modules, name)) {
    if (value != Py_None) return refuse(name, value, "child module", "tapegrad.nn.Module or None");
    return set_child(self, modules, name, value);
  }
  if (is_tensor(value) || contains(buffers, name)) {
    if (!fetched && !fetch_globals()) return -1;
    const int is_buffer = PyObject_IsInstance(value, buffer_type);
    if (is_buffer < 0) return -1;
    if (is_buffer && !buffers) return before_init("buffer");
    if (is_buffer || contains(buffers, name)) return set_buffer(self, dict, name, value);
  }
  if (PyErr_Occurred()) return -1;
  return PyObject_GenericSetAttr(self, name, value);
}

PyObject* module_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* self = type->tp_alloc(type, 0);
  if (self) reinterpret_cast<PyModuleBase*>(self)->vectorcall = call_forward;
  return self;
}

int module_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  return 0;
}

void module_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  free_object(self);
}

// Runs when a subclass has been made. Python gives classes that know a `__getattr__` a slow look-up; where it is the
// native one, the native look-up does the same.
PyObject* init_subclass(PyObject* cls, PyObject* args, PyObject* kwargs) {
  auto* type = reinterpret_cast<PyTypeObject*>(cls);
  PyRef own_getattr(PyObject_GetAttr(cls, k_getattr));
  PyRef native_getattr(PyObject_GetAttr(reinterpret_cast<PyObject*>(module_base), k_getattr));
  PyRef own_get(PyObject_GetAttrString(cls, "__getattribute__"));
  PyRef native_get(PyObject_GetAttrString(reinterpret_cast<PyObject*>(module_base), "__getattribute__"));
  if (!own_getattr || !native_getattr || !own_get || !native_get) return nullptr;
  if (own_getattr.get() == native_getattr.get() && own_get.get() == native_get.get())
    type->tp_getattro = module_getattro;
  // The next class in the order of bases has its turn (typing.Generic, a program's own); object refuses arguments.
  PyRef next(PyObject_CallFunctionObjArgs(reinterpret_cast<PyObject*>(&PySuper_Type), module_base, cls, nullptr));
  PyRef method(next ? PyObject_GetAttrString(next.get(), "__init_subclass__") : nullptr);
  return method ? PyObject_Call(method.get(), args, kwargs) : nullptr;
}

// Methods, and not the type's slot: Python refuses object.__setattr__(module, name, value), by which programs keep a
// module out of another one's children, where a native type has a slot of its own.
PyObject* setattr_method(PyObject* self, PyObject* const* args, Py_ssize_t n) {
  if (n != 2 || !PyUnicode_Check(args[0])) {
    PyErr_SetString(PyExc_TypeError, "__setattr__: expected a name and a value");
    return nullptr;
  }
  if (module_setattro(self, args[0], args[1]) < 0) return nullptr;
  Py_RETURN_NONE;
}

PyObject* delattr_method(PyObject* self, PyObject* name) {
  if (!PyUnicode_Check(name)) {
    PyErr_SetString(PyExc_TypeError, "__delattr__: expected a name");
    return nullptr;
  }
  if (module_setattro(self, name, nullptr) < 0) return nullptr;
  Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"__getattr__", module_getattr, METH_O, nullptr},
    {"__setattr__", as_c_function(setattr_method), METH_FASTCALL, nullptr},
    {"__delattr__", delattr_method, METH_O, nullptr},
    {"__init_subclass__", as_c_function(init_subclass), METH_VARARGS | METH_KEYWORDS | METH_CLASS, nullptr},
    {},
};
PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(PyModuleBase, vectorcall), READONLY, nullptr},
    {},
};

}  // namespace

bool init_module_type(PyObject* module) {
  const std::pair<PyObject**, const char*> names[] = {
      {&k_parameters, "_parameters"},
      {&k_buffers, "_buffers"},
      {&k_modules, "_modules"},
      {&k_non_persistent, "_non_persistent_buffers_set"},
      {&k_forward, "forward"},
      {&k_call_impl, "_call_impl"},
      {&k_getattr, "__getattr__"},
      {&k_persistent, "persistent"},
      {&k_register_parameter, "register_parameter"},
      {&k_register_buffer, "register_buffer"},
      {&k_hooks[0], kHookNames[0]},
      {&k_hooks[1], kHookNames[1]},
      {&k_hooks[2], kHookNames[2]},
      {&k_hooks[3], kHookNames[3]},
  };
  for (const auto& [place, text] : names)
    if (!(*place = PyUnicode_InternFromString(text))) return false;
  // clang-format off
  module_base = add_type(module, "tapegrad._C._ModuleBase", sizeof(PyModuleBase),
                         Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL, {
      {Py_tp_new, module_new}, {Py_tp_dealloc, module_dealloc}, {Py_tp_traverse, module_traverse},
      {Py_tp_call, module_call}, {Py_tp_getattro, module_getattro}, {Py_tp_methods, methods}, {Py_tp_members, members}});
  // clang-format on
  return module_base != nullptr;
}

}  // namespace tapegrad::python
