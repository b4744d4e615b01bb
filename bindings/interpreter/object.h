// PyRef: an owned reference to a Python object. Moves, never copies by accident; every use needs the GIL.
#pragma once

#include <utility>

#include "tapegrad/bindings/interpreter/gil.h"

namespace tapegrad::python {

class PyRef {
 public:
  PyRef() noexcept = default;
  // Takes over the reference that the caller owns (the result of most C API calls).
  explicit PyRef(PyObject* owned) noexcept : p_(owned) {}
  static PyRef borrow(PyObject* p) noexcept {
    Py_XINCREF(p);
    return PyRef(p);
  }
  PyRef(PyRef&& o) noexcept : p_(std::exchange(o.p_, nullptr)) {}
  PyRef& operator=(PyRef&& o) noexcept {
    PyRef old(std::exchange(p_, std::exchange(o.p_, nullptr)));
    return *this;
  }
  PyRef(const PyRef&) = delete;
  PyRef& operator=(const PyRef&) = delete;
  ~PyRef() { Py_XDECREF(p_); }

  PyObject* get() const noexcept { return p_; }
  PyObject* release() noexcept { return std::exchange(p_, nullptr); }
  explicit operator bool() const noexcept { return p_ != nullptr; }

 private:
  PyObject* p_ = nullptr;
};

}  // namespace tapegrad::python
