// The interpreter's hooks in the core: other threads run during long work, Ctrl-C stops long loops, and warnings
// of operators are Python's.
#include <pthread.h>
#include <cstdlib>

#include "tapegrad/aten/record/device/compile_queue.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/errors.h"
#include "tapegrad/bindings/interpreter/gil.h"
#include "tapegrad/bindings/interpreter/program_scope.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::python {

namespace {

pthread_t main_thread;

void* release_gil() { return give_gil_away_to_compute(); }
void acquire_gil(void* state) { take_gil_back_from_computing(static_cast<PyThreadState*>(state)); }

// Python's signal handlers run on the main thread only. What they raise stays set for translate_exception().
bool interrupted() {
  if (!pthread_equal(pthread_self(), main_thread) || interpreter_ends()) return false;
  const HandlerScope scope;
  return PyErr_CheckSignals() != 0;
}

void give_warning(const std::string& message) {
  const GilGuard gil;
  warn_user(PyExc_UserWarning, message.c_str());
}

}  // namespace

void warn_user(PyObject* category, const char* message) {
  check_status(PyErr_WarnEx(category, message, 1 + frames_of_package()));
}

constinit thread_local uint32_t program_modes = 0;

bool init_interpreter_hooks() {
  main_thread = pthread_self();
  set_blocking_hooks({release_gil, acquire_gil});
  interrupt_hook.store(interrupted);
  // When the interpreter ends, and, where a program ends without that, among the exit handlers: those of oneDNN, which
  // free the code that threads may be in, come first there, because it registers them when it is first used.
  Py_AtExit(record::end_compiling);
  Py_AtExit(wait_for_computing);
  std::atexit(wait_for_computing);
  set_warning_handler(give_warning);
  return true;
}

}  // namespace tapegrad::python
