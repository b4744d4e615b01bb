// no_grad, enable_grad, inference_mode and set_grad_enabled: context managers that are also decorators. Entering and
// leaving runs no Python code. Decorating is done by `_decorate` of tapegrad/autograd/grad_mode.py.
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/interpreter/program_scope.h"
#include "tapegrad/bindings/interpreter/type_object.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::python {

namespace {

// Which bits of the mode word a scope sets and clears.
struct Change {
  uint32_t set;
  uint32_t clear;
};
constexpr Change kNoGrad{kModeNoGrad, 0};
constexpr Change kEnable{0, kModeNoGrad};
constexpr Change kInference{kModeInference, 0};
constexpr Change kNotInference{0, kModeInference};

struct PyMode {
  PyObject_HEAD Change change;
  uint8_t entered;  // bits of `outer` in use, two per level
  uint64_t outer;   // the modes to go back to, a stack of levels
  bool at_once;     // set_grad_enabled: the change is made when the object is made
};
constexpr int kMostLevels = 32;

uint32_t grad_bits() noexcept { return detail::modes & kModeGradMask; }
void set_grad_bits(uint32_t bits) noexcept {
  detail::modes = (detail::modes & ~uint32_t{kModeGradMask}) | bits;
  keep_modes(kModeGradMask);
}
static_assert(kModeGradMask == 3);

void push(PyMode& mode) noexcept {
  mode.outer = mode.outer << 2 | grad_bits();
  ++mode.entered;
}
void pop(PyMode& mode) noexcept {
  set_grad_bits(static_cast<uint32_t>(mode.outer & kModeGradMask));
  mode.outer >>= 2;
  --mode.entered;
}
void apply(const Change& change) noexcept { set_grad_bits((grad_bits() & ~change.clear) | change.set); }

PyMode& mode_of(PyObject* o) noexcept { return *reinterpret_cast<PyMode*>(o); }

PyObject* enter(PyObject* o, PyObject*) {
  PyMode& mode = mode_of(o);
  if (mode.at_once) return Py_NewRef(o);
  if (mode.entered == kMostLevels) {
    PyErr_SetString(PyExc_RuntimeError, "grad mode: one object is entered too many times");
    return nullptr;
  }
  push(mode);
  apply(mode.change);
  return Py_NewRef(o);
}

PyObject* leave(PyObject* o, PyObject* const*, Py_ssize_t) {
  PyMode& mode = mode_of(o);
  if (mode.entered > 0) pop(mode);
  Py_RETURN_NONE;
}

PyObject* decorate(PyObject* maker, PyObject* function) {
  PyRef module = own(PyImport_ImportModule("tapegrad.autograd.grad_mode"));
  PyRef helper = own(PyObject_GetAttrString(module.get(), "_decorate"));
  PyObject* args[] = {maker, function};
  return check(PyObject_Vectorcall(helper.get(), args, 2, nullptr));
}

// mode(function): the function, run in the mode.
PyObject* call(PyObject* o, PyObject* args, PyObject* kwargs) {
  PyObject* function;
  if ((kwargs && PyDict_GET_SIZE(kwargs) != 0) || !PyArg_ParseTuple(args, "O", &function)) {
    if (!PyErr_Occurred()) PyErr_SetString(PyExc_TypeError, "a grad mode decorates one function");
    return nullptr;
  }
  PyMode& mode = mode_of(o);
  if (mode.at_once && mode.entered > 0) pop(mode);  // meant for the function, not for here
  return decorate(o, function);
}

// clone(): a fresh object for one call of a decorated function.
PyObject* clone(PyObject* o, PyObject*) {
  PyTypeObject* type = Py_TYPE(o);
  PyObject* copy = type->tp_alloc(type, 0);
  if (!copy) return nullptr;
  mode_of(copy).change = mode_of(o).change;
  return copy;
}

PyObject* make(PyTypeObject* type, Change change, bool at_once) {
  PyObject* o = check(type->tp_alloc(type, 0));
  PyMode& mode = mode_of(o);
  mode.change = change;
  mode.at_once = at_once;
  if (at_once) {
    push(mode);
    apply(change);
  }
  return o;
}

// no_grad() or, as a decorator without parentheses, no_grad(function).
template <const Change& kChange>
PyObject* new_plain(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  TG_CHECK(!kwargs || PyDict_GET_SIZE(kwargs) == 0, Type, "{}() takes no keyword arguments", type->tp_name);
  PyRef mode(make(type, kChange, false));
  if (PyTuple_GET_SIZE(args) == 0) return mode.release();
  TG_CHECK(PyTuple_GET_SIZE(args) == 1 && PyCallable_Check(PyTuple_GET_ITEM(args, 0)), Type,
           "{}: expected no argument, or a function to decorate", type->tp_name);
  return decorate(mode.get(), PyTuple_GET_ITEM(args, 0));
}

PyObject* new_inference(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"mode", nullptr};
  PyObject* mode = Py_True;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|O:inference_mode", const_cast<char**>(keywords), &mode))
    return nullptr;
  if (!PyBool_Check(mode) && PyCallable_Check(mode)) {
    PyRef scope(make(type, kInference, false));
    return decorate(scope.get(), mode);
  }
  return make(type, to_bool(mode, {"inference_mode", "mode", 1}) ? kInference : kNotInference, false);
}

PyObject* new_set_grad_enabled(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* keywords[] = {"mode", nullptr};
  PyObject* mode;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "O:set_grad_enabled", const_cast<char**>(keywords), &mode))
    return nullptr;
  return make(type, to_bool(mode, {"set_grad_enabled", "mode", 1}) ? kEnable : kNoGrad, true);
}

PyMethodDef mode_methods[] = {
    {"__enter__", enter, METH_NOARGS, nullptr},
    {"__exit__", as_c_function(leave), METH_FASTCALL, nullptr},
    {"clone", clone, METH_NOARGS, nullptr},
    {},
};

bool add_mode(PyObject* module, const char* name, newfunc make_new, const char* doc) {
  return add_type(module, name, sizeof(PyMode), Py_TPFLAGS_BASETYPE,
                  {{Py_tp_new, make_new},
                   {Py_tp_dealloc, free_object},
                   {Py_tp_call, guarded<call>},
                   {Py_tp_methods, mode_methods},
                   {Py_tp_doc, doc}}) != nullptr;
}

PyObject* is_grad_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong((detail::modes & kModeNoGrad) == 0 && grad_enabled());
}
PyObject* is_inference_mode_enabled(PyObject*, PyObject*) {
  return PyBool_FromLong((detail::modes & kModeInference) != 0);
}

PyMethodDef mode_functions[] = {
    {"is_grad_enabled", is_grad_enabled, METH_NOARGS, "is_grad_enabled()\n--\n\nWhether operators are recorded."},
    {"is_inference_mode_enabled", is_inference_mode_enabled, METH_NOARGS,
     "is_inference_mode_enabled()\n--\n\nWhether inference_mode is on."},
    {},
};

}  // namespace

bool init_grad_modes(PyObject* module) {
  return add_mode(module, "tapegrad.no_grad", guarded<new_plain<kNoGrad>>,
                  "no_grad(orig_func=None, /)\n--\n\nNothing is recorded inside. A context manager and a decorator.") &&
         add_mode(module, "tapegrad.enable_grad", guarded<new_plain<kEnable>>,
                  "enable_grad(orig_func=None, /)\n--\n\nOperators are recorded inside, also within no_grad. A context "
                  "manager and a decorator.") &&
         add_mode(
             module, "tapegrad.inference_mode", guarded<new_inference>,
             "inference_mode(mode=True)\n--\n\nAs no_grad, and what is made inside can never be recorded. A context "
             "manager and a decorator.") &&
         add_mode(module, "tapegrad.set_grad_enabled", guarded<new_set_grad_enabled>,
                  "set_grad_enabled(mode)\n--\n\nTurns recording on or off, at once; as a context manager, until its "
                  "end.") &&
         PyModule_AddFunctions(module, mode_functions) == 0;
}

}  // namespace tapegrad::python
