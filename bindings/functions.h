// Tables of hand-written functions of the module `tapegrad`, each ending with an empty entry.
#pragma once

#include <string>
#include <vector>

#include "tapegrad/autograd/profiler.h"
#include "tapegrad/bindings/interpreter/object.h"

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
extern PyMethodDef cuda_functions[];             // of tapegrad._C itself (cuda.cpp)
extern PyMethodDef transform_functions[];        // autocast and vmap, of tapegrad._C itself (transforms.cpp)

// Installs the interpreter's hooks in the core: the GIL around long work, Ctrl-C, lines of calls.
bool init_interpreter_hooks();
// Python's callbacks for device libraries: lines of the program, warnings, garbage collection (cuda.cpp).
void init_device_hooks();
// Lines of the program for messages of the tape (call_site.cpp).
bool init_call_sites();
// Of the profiler's stacks: the call sites from the innermost, and a site's function.
std::vector<uint32_t> sites_of_stack(uint32_t stack);
std::string function_of_site(uint32_t site);

extern PyMethodDef profiler_functions[];  // of tapegrad._C itself (profiler.cpp)
// Opens the scope when the running profiler wants modules; keeps the module until the profiler stops.
void profile_module(autograd::profiler::Scope& scope, PyObject* module) noexcept;

}  // namespace tapegrad::python
