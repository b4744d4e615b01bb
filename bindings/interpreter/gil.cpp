#include "tapegrad/bindings/interpreter/gil.h"

#include <unistd.h>
#include <unwind.h>

#include <atomic>
#include <utility>

#include "tapegrad/bindings/interpreter/held.h"
#include "tapegrad/c10/macros.h"
#include "tapegrad/c10/threads/fork.h"

namespace tapegrad::python {

namespace {

// Threads that compute without the GIL: their number in the process of this generation, and how often this thread does.
constinit std::atomic<int> computing{0};
constinit std::atomic<uint32_t> computing_in{0};
constinit thread_local int computes = 0;

// Nothing is held that the rest of the process could wait for: Python has released its own locks, and no lock of
// tapegrad is held during a call of Python or while waiting for the GIL.
[[noreturn]] void wait_for_the_end() noexcept {
  computing -= std::exchange(computes, 0);
  for (;;) pause();
}

PyThreadState* state_of_holder() noexcept {
#if PY_VERSION_HEX >= 0x030d0000
  return PyThreadState_GetUnchecked();
#else
  return _PyThreadState_UncheckedGet();
#endif
}

}  // namespace

bool interpreter_ends() noexcept {
#if PY_VERSION_HEX >= 0x030d0000
  return Py_IsFinalizing() || !Py_IsInitialized();
#else
  return _Py_IsFinalizing() || !Py_IsInitialized();
#endif
}

bool holds_gil() noexcept {
  // Up to 3.11 the first one is the holder's, on any thread.
  const PyThreadState* state = state_of_holder();
  return state && state == PyGILState_GetThisThreadState();
}

PyThreadState* give_gil_away() noexcept { return holds_gil() && !interpreter_ends() ? PyEval_SaveThread() : nullptr; }

// After finalisation has begun, only a thread that released the GIL before gets here: not the one that finalises the
// interpreter.
void take_gil_back(PyThreadState* state) noexcept {
  if (!state) return;
  if (interpreter_ends()) wait_for_the_end();
  PyEval_RestoreThread(state);  // noexcept: a frame that __wrap___gxx_personality_v0 sees
}

PyThreadState* give_gil_away_to_compute() noexcept {
  PyThreadState* state = give_gil_away();
  if (state == nullptr) return nullptr;
  // The threads of the parent are not in a child.
  if (const uint32_t now = fork_generation(); TG_UNLIKELY(computing_in.load() != now)) {
    computing = 0;
    computing_in = now;
  }
  ++computing;
  ++computes;
  return state;
}

void take_gil_back_from_computing(PyThreadState* state) noexcept {
  if (state != nullptr && computes > 0) {
    --computes;
    --computing;
  }
  take_gil_back(state);
}

void wait_for_computing() noexcept {
  for (int ms = 0; ms < 5000 && computing_in.load() == fork_generation() && computing.load() > computes; ++ms)
    usleep(1000);
}

GilGuard::GilGuard() noexcept {
  if (interpreter_ends() && !holds_gil()) wait_for_the_end();
  state_ = PyGILState_Ensure();
}
GilGuard::~GilGuard() { PyGILState_Release(state_); }

namespace {
constinit thread_local Held* waiting = nullptr;
constinit thread_local bool releasing = false;
}  // namespace

void release_held(void* held, void*, size_t) noexcept {
  with_gil_while_it_lasts([first = static_cast<Held*>(held)] {
    first->next = std::exchange(waiting, first);
    if (releasing) return;
    releasing = true;
    while (waiting != nullptr) delete std::exchange(waiting, waiting->next);
    releasing = false;
  });
}

}  // namespace tapegrad::python

// The C++ runtime calls this for each frame of this library that an exception or pthread_exit() unwinds; the linker
// substitutes it for the runtime's own (cmake/TapegradPython.cmake). Where a thread is being ended because the
// interpreter is - in the GIL's own functions above, or in Python code that a binding has called and that wanted the
// GIL again - it stops at the first frame, before any destructor or handler has run.
extern "C" {
_Unwind_Reason_Code __real___gxx_personality_v0(int, _Unwind_Action, _Unwind_Exception_Class, _Unwind_Exception*,
                                                _Unwind_Context*);
_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception, _Unwind_Context* context);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions, _Unwind_Exception_Class kind,
                                                _Unwind_Exception* exception, _Unwind_Context* context) {
  if (TG_UNLIKELY((actions & _UA_FORCE_UNWIND) != 0) && tapegrad::python::interpreter_ends())
    tapegrad::python::wait_for_the_end();
  return __real___gxx_personality_v0(version, actions, kind, exception, context);
}
}
