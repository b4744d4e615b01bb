// The interpreter's hooks in the core: other threads run during long work, and Ctrl-C stops long loops.
#include <pthread.h>

#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/program_scope.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::python {

namespace {

pthread_t main_thread;

void* release_gil() { return give_gil_away(); }
void acquire_gil(void* state) { take_gil_back(static_cast<PyThreadState*>(state)); }

// Python's signal handlers run on the main thread only. What they raise stays set for translate_exception().
bool interrupted() {
  if (!pthread_equal(pthread_self(), main_thread) || interpreter_ends()) return false;
  const HandlerScope scope;
  return PyErr_CheckSignals() != 0;
}

}  // namespace

constinit thread_local uint32_t program_modes = 0;

bool init_interpreter_hooks() {
  main_thread = pthread_self();
  set_blocking_hooks({release_gil, acquire_gil});
  interrupt_hook.store(interrupted);
  return true;
}

}  // namespace tapegrad::python
