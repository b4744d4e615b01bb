// C++ exceptions to Python's and back. A function that Python calls stands in its table by way of method(),
// keyword_method() or guarded (type_object.h), or opens with TG_PY_TRY and ends with TG_PY_CATCH, so that no C++
// exception crosses into the interpreter. A C API call that failed is turned into `PythonError`, which
// carries the Python exception through C++ frames (also across threads) and is restored unchanged.
#pragma once

#include <exception>
#include <memory>

#include "tapegrad/bindings/interpreter/object.h"
#include "tapegrad/c10/error.h"

namespace tapegrad::python {

// The Python exception that is set right now, taken out of the interpreter.
class PythonError : public std::exception {
 public:
  PythonError();  // needs the GIL and an exception set
  const char* what() const noexcept override;
  void restore() const noexcept;  // sets it again; needs the GIL

 private:
  struct State;
  std::shared_ptr<State> state_;
};

[[noreturn]] TG_COLD void throw_python_error();

// Checks the result of a C API call: null means that a Python exception is set.
inline PyObject* check(PyObject* result) {
  if (TG_UNLIKELY(result == nullptr)) throw_python_error();
  return result;
}
inline PyRef own(PyObject* result) { return PyRef(check(result)); }
inline void check_status(int status) {
  if (TG_UNLIKELY(status < 0)) throw_python_error();
}

// Gives a warning that names the innermost line outside of this package. Throws where warnings are errors.
TG_COLD void warn_user(PyObject* category, const char* message);

// Inside a catch block: sets the Python exception for the C++ one in flight. Returns null for convenience.
TG_COLD PyObject* translate_exception() noexcept;

// tapegrad.OutOfMemoryError, a RuntimeError.
extern PyObject* out_of_memory_error;
bool init_errors(PyObject* module);

}  // namespace tapegrad::python

#define TG_PY_TRY try {
#define TG_PY_CATCH_RETURN(value)              \
  }                                            \
  catch (...) {                                \
    ::tapegrad::python::translate_exception(); \
    return value;                              \
  }
#define TG_PY_CATCH TG_PY_CATCH_RETURN(nullptr)
