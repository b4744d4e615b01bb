// A default generator for one thread: threads that load data draw from their own, so that the program's generator does
// not depend on when they run. Operators that are given no generator use it through default_cpu_generator().
#pragma once

#include "tapegrad/c10/random/generator.h"

namespace tapegrad {

// Null: the process's default generator again. For the calling thread.
TG_API void set_thread_generator(intrusive_ptr<Generator> generator);
TG_API bool has_thread_generator() noexcept;

}  // namespace tapegrad
