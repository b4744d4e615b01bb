// The Python frame that runs now, and those that called it, for reading which code is at which instruction.
//
// PyEval_GetFrame makes a frame object for a frame that has none, which costs more than all else that is done to note a
// line (call_site.cpp): on CPython 3.11 the interpreter's own record is read in place; its layout is that of the
// headers we compile against and does not change within 3.11. Other versions go through the public functions. Needs the
// GIL; a PythonFrame is valid until the interpreter continues.
#pragma once

#include "tapegrad/bindings/interpreter/object.h"

#include <frameobject.h>

#if PY_VERSION_HEX >= 0x030B0000 && PY_VERSION_HEX < 0x030C0000 && !defined(PYPY_VERSION)
#define TG_INTERPRETER_FRAMES 1
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#else
#define TG_INTERPRETER_FRAMES 0
#endif

namespace tapegrad::python {

class PythonFrame {
 public:
#if TG_INTERPRETER_FRAMES
  static PythonFrame current() noexcept { return complete(PyThreadState_Get()->cframe->current_frame); }
  explicit operator bool() const noexcept { return frame_ != nullptr; }
  PythonFrame outer() const noexcept { return complete(frame_->previous); }
  PyCodeObject* code() const noexcept { return frame_->f_code; }  // borrowed
  int instruction() const noexcept {
    return _PyInterpreterFrame_LASTI(frame_) * static_cast<int>(sizeof(_Py_CODEUNIT));
  }

 private:
  explicit PythonFrame(_PyInterpreterFrame* frame) noexcept : frame_(frame) {}
  // The next frame outwards whose function has begun.
  static PythonFrame complete(_PyInterpreterFrame* frame) noexcept {
    while (frame && _PyFrame_IsIncomplete(frame)) frame = frame->previous;
    return PythonFrame(frame);
  }

  _PyInterpreterFrame* frame_;
#else
  static PythonFrame current() noexcept {
    return PythonFrame(PyRef::borrow(reinterpret_cast<PyObject*>(PyEval_GetFrame())));
  }
  explicit operator bool() const noexcept { return static_cast<bool>(frame_); }
  PythonFrame outer() const noexcept { return PythonFrame(PyRef(reinterpret_cast<PyObject*>(PyFrame_GetBack(get())))); }
  PyCodeObject* code() const noexcept {  // borrowed: the frame holds it
    PyCodeObject* code = PyFrame_GetCode(get());
    Py_DECREF(reinterpret_cast<PyObject*>(code));
    return code;
  }
#if PY_VERSION_HEX >= 0x030B0000
  int instruction() const noexcept { return PyFrame_GetLasti(get()); }
#else
  int instruction() const noexcept { return get()->f_lasti * static_cast<int>(sizeof(_Py_CODEUNIT)); }
#endif

 private:
  explicit PythonFrame(PyRef frame) noexcept : frame_(std::move(frame)) {}
  PyFrameObject* get() const noexcept { return reinterpret_cast<PyFrameObject*>(frame_.get()); }

  PyRef frame_;
#endif
};

}  // namespace tapegrad::python
