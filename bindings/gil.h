// The GIL. Every binding gives it away and takes it through here.
//
// A thread that takes the GIL while another one ends the interpreter does not get it. Python 3.14 and later let such a
// thread wait for ever; before, it is ended with pthread_exit(), which unwinds its stack: destructors would touch
// Python objects without the GIL, and a noexcept function or a `catch (...)` on the way ends the process. So these
// threads wait for ever with every version: gil.cpp says how.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace tapegrad::python {

// Whether this thread holds the GIL. PyGILState_Check() says yes to all threads once there has been a subinterpreter.
bool holds_gil() noexcept;

// Null where the thread does not hold the GIL, or ends the interpreter: then nobody else may have it.
PyThreadState* give_gil_away() noexcept;
void take_gil_back(PyThreadState* state) noexcept;  // null: nothing was given away

// Holds the GIL for a scope, from any thread.
class GilGuard {
 public:
  GilGuard() noexcept;
  ~GilGuard();
  GilGuard(const GilGuard&) = delete;
  GilGuard& operator=(const GilGuard&) = delete;

 private:
  PyGILState_STATE state_;
};

// Gives the GIL away for a scope, for work that touches no Python object.
class GilRelease {
 public:
  GilRelease() noexcept : state_(give_gil_away()) {}
  ~GilRelease() { take_gil_back(state_); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// Calls f() with the GIL, from any thread: for the last owner of a Python object, who lets it go. Not once the
// interpreter ends: its objects stay as they are.
bool interpreter_ends() noexcept;
template <class F>
void with_gil_while_it_lasts(F&& f) {
  if (interpreter_ends()) return;
  GilGuard gil;
  f();
}

}  // namespace tapegrad::python
