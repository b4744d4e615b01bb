// Tables of hand-written functions of the module `tapegrad`, each ending with an empty entry.
#pragma once

#include <string>
#include <vector>

#include "tapegrad/autograd/profiler/profiler.h"
#include "tapegrad/bindings/interpreter/object.h"

namespace tapegrad::python {

// Of the public module: exchange.cpp, new_tensor.cpp, globals.cpp, generator_object.cpp.
extern PyMethodDef exchange_functions[], new_functions[], global_functions[], random_functions[];
// Of tapegrad._C itself: optim.cpp, sparse.cpp, internals.cpp, shared_memory.cpp, keyed_generators.cpp, cuda.cpp,
// transforms.cpp (autocast and vmap), profiler.cpp.
extern PyMethodDef optim_functions[], sparse_functions[], internal_functions[], shared_memory_functions[],
    keyed_generator_functions[], cuda_functions[], transform_functions[], profiler_functions[];

// Installs the interpreter's hooks in the core: the GIL around long work, Ctrl-C, lines of calls.
bool init_interpreter_hooks();
// Python's callbacks for device libraries: lines of the program, warnings, garbage collection (cuda.cpp).
void init_device_hooks();
// Recorded steps (record/objects.cpp).
bool init_record(PyObject* module);
bool init_program(PyObject* module);
bool init_nested(PyObject* module);
bool init_places(PyObject* module);
bool init_reads(PyObject* module);
bool init_walk(PyObject* module);
// Lines of the program for messages of the tape (call_site.cpp).
bool init_call_sites();
// How many of the innermost frames run this package's own files.
int frames_of_package() noexcept;
// Of the profiler's stacks: the call sites from the innermost, and a site's function.
std::vector<uint32_t> sites_of_stack(uint32_t stack);
std::string function_of_site(uint32_t site);

// Opens the scope when the running profiler wants modules; keeps the module until the profiler stops.
void profile_module(autograd::profiler::Scope& scope, PyObject* module) noexcept;

}  // namespace tapegrad::python
