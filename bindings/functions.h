// Tables of hand-written functions of the module `tapegrad`, each ending with an empty entry.
#pragma once

#include "tapegrad/bindings/object.h"

namespace tapegrad::python {

extern PyMethodDef exchange_functions[];  // from_numpy, from_dlpack, frombuffer (exchange.cpp)
extern PyMethodDef new_functions[];       // tensor, as_tensor, asarray (new_tensor.cpp)
extern PyMethodDef global_functions[];    // defaults, threads, dtype questions (globals.cpp)
extern PyMethodDef random_functions[];    // seeds of the default generator (generator_object.cpp)
// Steps of the optimizers, in tapegrad._C itself (optim.cpp).
extern PyMethodDef optim_functions[];

// Sparse tensors, in tapegrad._C itself (sparse.cpp).
extern PyMethodDef sparse_functions[];

extern PyMethodDef internal_functions[];         // of tapegrad._C itself (internals.cpp)
extern PyMethodDef shared_memory_functions[];    // of tapegrad._C itself (shared_memory.cpp)
extern PyMethodDef keyed_generator_functions[];  // of tapegrad._C itself (keyed_generators.cpp)

// Modes and hooks that the interpreter gives to the core: the GIL around long work, Ctrl-C, lines of calls.
bool init_interpreter_hooks();
// Lines of the program for messages of the tape (call_site.cpp).
bool init_call_sites();

}  // namespace tapegrad::python
