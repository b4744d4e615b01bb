#include "tapegrad/bindings/interpreter/errors.h"

#include "tapegrad/bindings/nn/module_path.h"
#include "tapegrad/c10/threads/stack.h"
#include "tapegrad/distributed/errors.h"

#include <new>
#include <string>

namespace tapegrad::python {

PyObject* out_of_memory_error = nullptr;
PyObject* linalg_error = nullptr;

namespace {
// Of process groups, by DistError::Part: the general one is the base of the others.
PyObject* dist_errors[4] = {};
constexpr const char* kDistErrors[4][3] = {
    {"_DistError", "tapegrad.distributed.DistError", "An error of collectives."},
    {"_DistStoreError", "tapegrad.distributed.DistStoreError", "An error of a store."},
    {"_DistNetworkError", "tapegrad.distributed.DistNetworkError", "An error of the network."},
    {"_DistBackendError", "tapegrad.distributed.DistBackendError", "An error of what carries collectives."},
};
}  // namespace

// Owns the three parts of a raised exception. Dropped from any thread.
struct PythonError::State {
  PyObject* type = nullptr;
  PyObject* value = nullptr;
  PyObject* traceback = nullptr;
  std::string text;

  State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  ~State() {
    with_gil_while_it_lasts([this] {
      Py_XDECREF(type);
      Py_XDECREF(value);
      Py_XDECREF(traceback);
    });
  }
};

PythonError::PythonError() : state_(std::make_shared<State>()) {
  PyErr_Fetch(&state_->type, &state_->value, &state_->traceback);
  PyErr_NormalizeException(&state_->type, &state_->value, &state_->traceback);
  if (state_->value && state_->traceback) PyException_SetTraceback(state_->value, state_->traceback);
  if (state_->type) state_->text = reinterpret_cast<PyTypeObject*>(state_->type)->tp_name;
  if (state_->value) {
    PyRef text(PyObject_Str(state_->value));
    const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
    if (utf8) state_->text += std::string(": ") + utf8;
    PyErr_Clear();
  }
}

const char* PythonError::what() const noexcept { return state_->text.c_str(); }

void PythonError::restore() const noexcept {
  Py_XINCREF(state_->type);
  Py_XINCREF(state_->value);
  Py_XINCREF(state_->traceback);
  PyErr_Restore(state_->type, state_->value, state_->traceback);
}

void throw_python_error() {
  if (!PyErr_Occurred()) TG_THROW(Internal, "a Python call failed without an exception");
  throw PythonError();
}

namespace {

struct ErrorClass {
  ErrorKind kind;
  PyObject** type;
};
const ErrorClass kErrorClasses[] = {
    {ErrorKind::Value, &PyExc_ValueError},
    {ErrorKind::Type, &PyExc_TypeError},
    {ErrorKind::Index, &PyExc_IndexError},
    {ErrorKind::NotImplemented, &PyExc_NotImplementedError},
    {ErrorKind::OutOfMemory, &out_of_memory_error},
    {ErrorKind::Key, &PyExc_KeyError},
    {ErrorKind::Attribute, &PyExc_AttributeError},
    {ErrorKind::Overflow, &PyExc_OverflowError},
    {ErrorKind::Interrupt, &PyExc_KeyboardInterrupt},
    {ErrorKind::LinAlg, &linalg_error},
};

// RuntimeError where no class is named, or the module's own is not made yet.
PyObject* python_class(ErrorKind kind) noexcept {
  for (const ErrorClass& c : kErrorClasses)
    if (c.kind == kind && *c.type) return *c.type;
  return kind == ErrorKind::OutOfMemory ? PyExc_MemoryError : PyExc_RuntimeError;
}

}  // namespace

PyObject* translate_exception() noexcept {
  try {
    throw;
  } catch (const PythonError& e) {
    e.restore();
  } catch (const StackExhausted& e) {
    PyErr_SetString(PyExc_RecursionError, e.what());
  } catch (const distributed::DistError& e) {
    PyErr_SetString(dist_errors[static_cast<int>(e.part())], e.what());
    remember_error(e.what());
  } catch (const Error& e) {
    // An interrupted loop leaves what the signal handler raised.
    if (!(e.kind() == ErrorKind::Interrupt && PyErr_Occurred())) PyErr_SetString(python_class(e.kind()), e.what());
    remember_error(e.what());
  } catch (const std::bad_alloc&) {
    PyErr_SetString(python_class(ErrorKind::OutOfMemory),
                    "allocate: out of memory: a piece of working memory was refused");
  } catch (const std::exception& e) {
    PyErr_SetString(PyExc_RuntimeError, e.what());
  } catch (...) {
    PyErr_SetString(PyExc_RuntimeError, "unknown C++ exception");
  }
  return nullptr;
}

bool init_errors(PyObject* module) {
  out_of_memory_error =
      PyErr_NewExceptionWithDoc("tapegrad.OutOfMemoryError", "Raised when a device has no memory left for a tensor.",
                                PyExc_RuntimeError, nullptr);
  linalg_error = PyErr_NewExceptionWithDoc(
      "tapegrad.linalg.LinAlgError",
      "Raised when a matrix does not allow what is asked: it is singular, not positive definite, ...",
      PyExc_RuntimeError, nullptr);
  if (!out_of_memory_error || !linalg_error || PyModule_AddObjectRef(module, "LinAlgError", linalg_error) != 0)
    return false;
  for (int i = 0; i < 4; ++i) {
    dist_errors[i] = PyErr_NewExceptionWithDoc(kDistErrors[i][1], kDistErrors[i][2],
                                               i == 0 ? PyExc_RuntimeError : dist_errors[0], nullptr);
    if (!dist_errors[i] || PyModule_AddObjectRef(module, kDistErrors[i][0], dist_errors[i]) != 0) return false;
  }
  return PyModule_AddObjectRef(module, "OutOfMemoryError", out_of_memory_error) == 0;
}

}  // namespace tapegrad::python
