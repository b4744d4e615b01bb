// Where the sizes go that functions of a recorded step read: which of a function's calls, subscripts and operators are
// given them (found in its bytecode by tapegrad/record/_flow.py), and which of these have been seen to take them. Calls
// that are given them must be of native functions of the package, which say what they take: each is seen by the profile
// function (walk.cpp), or by what is told where tensors take numbers. What is not seen may not have run: while that
// is open a trace function looks for its line. Needs the GIL.
#pragma once

#include <utility>
#include <vector>

#include "tapegrad/bindings/interpreter/type_object.h"

#include <frameobject.h>

namespace tapegrad::python {

class Places {
 public:
  // Whether a function that runs, and has read `count` sizes from symbol `first` on, can be followed: not where
  // somebody else traces. `given`: (first byte, byte behind it, line) of what is given them. `self`: the object of
  // this.
  bool add(PyObject* self, PyFrameObject* frame, PyObject* given, int64_t first, int count);
  // The function calls a function, or gives a tensor a number: one of the package that is native, or another one.
  void called(PyFrameObject* frame, bool known);
  void returned(PyFrameObject* frame);
  // Whether a function that runs is followed, or this one.
  bool active() const noexcept { return !places_.empty(); }
  bool has(PyFrameObject* frame) noexcept { return active() && find(frame) != nullptr; }
  // The symbols of which it is not known where they went.
  std::vector<int64_t> end(PyObject* self);

 private:
  struct Given {
    int begin, end, line;
    std::vector<std::pair<int64_t, int>> symbols;
    bool seen = false, ran = false;  // its line has
    bool open() const noexcept { return !seen && !ran; }
  };
  struct Place {
    PyFrameObject* frame;  // borrowed: it ends before the frame does
    std::vector<Given> given;
  };
  static int trace(PyObject* self, PyFrameObject* frame, int what, PyObject* arg);
  Place* find(PyFrameObject* frame) noexcept;
  void lose(const Given& given);
  void ran(Place& place, int line) noexcept;
  void trace_where_open(PyObject* self);
  std::vector<Place> places_;
  std::vector<int64_t> lost_;
};
using PySizes = Boxed<Places>;
extern PyTypeObject* sizes_type;

// While it lives, this thread's functions are neither profiled nor traced.
class Unobserved {
 public:
#if PY_VERSION_HEX >= 0x030B0000
  Unobserved() noexcept { PyThreadState_EnterTracing(state_); }
  ~Unobserved() { PyThreadState_LeaveTracing(state_); }
#else
  Unobserved() noexcept {
    ++state_->tracing;
    state_->cframe->use_tracing = 0;
  }
  ~Unobserved() {
    --state_->tracing;
    state_->cframe->use_tracing = state_->c_tracefunc != nullptr || state_->c_profilefunc != nullptr;
  }
#endif
  Unobserved(const Unobserved&) = delete;
  Unobserved& operator=(const Unobserved&) = delete;

 private:
  PyThreadState* const state_ = PyThreadState_Get();
};

}  // namespace tapegrad::python
