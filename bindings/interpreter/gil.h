// The GIL. All bindings release and acquire it through this header.
//
// A thread that takes the GIL while another one ends the interpreter does not get it. Python 3.14 and later let such a
// thread wait forever; earlier versions end it with pthread_exit(), which unwinds its stack: destructors would touch
// Python objects without the GIL, and a noexcept function or a `catch (...)` on the stack ends the process. Here such
// threads wait forever with every version: gil.cpp describes how.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>

namespace tapegrad::python {

// Whether this thread holds the GIL. PyGILState_Check() returns 1 on all threads once there has been a subinterpreter.
bool holds_gil() noexcept;

// Releases the GIL. Null if the thread does not hold it, or is finalising the interpreter: then no other thread may get
// it.
PyThreadState* give_gil_away() noexcept;
void take_gil_back(PyThreadState* state) noexcept;  // null: it was not released

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

// Releases the GIL for a scope, for work that touches no Python object.
class GilRelease {
 public:
  GilRelease() noexcept : state_(give_gil_away()) {}
  ~GilRelease() { take_gil_back(state_); }
  GilRelease(const GilRelease&) = delete;
  GilRelease& operator=(const GilRelease&) = delete;

 private:
  PyThreadState* state_;
};

// The same for work that computes. The end of the process waits for it, up to 5 s, before libraries take their memory
// back: daemon threads go on while the interpreter ends.
PyThreadState* give_gil_away_to_compute() noexcept;
void take_gil_back_from_computing(PyThreadState* state) noexcept;
class ComputeRelease {
 public:
  ComputeRelease() noexcept : state_(give_gil_away_to_compute()) {}
  ~ComputeRelease() { take_gil_back_from_computing(state_); }
  ComputeRelease(const ComputeRelease&) = delete;
  ComputeRelease& operator=(const ComputeRelease&) = delete;

 private:
  PyThreadState* state_;
};
// An exit handler, for Py_AtExit, and for std::atexit once all libraries are loaded.
void wait_for_computing() noexcept;

// Calls f() with the GIL, from any thread: for releasing the last reference to a Python object. Does nothing once the
// interpreter is finalising: its objects are leaked then.
bool interpreter_ends() noexcept;
template <class F>
void with_gil_while_it_lasts(F&& f) {
  if (interpreter_ends()) return;
  GilGuard gil;
  f();
}

}  // namespace tapegrad::python
