// Children that end when their parent does, however it ends: also when it is killed, and also while the child is deep
// in a call that lets no other code of it run.
#pragma once

#include <sys/types.h>

#include "tapegrad/c10/macros.h"

namespace tapegrad::shared {

// From a thread of its own: waits for the end of process `parent`, then sends this process the signal, or ends it at
// once when `signal` is 0. Returns at once; Error(Runtime) when no thread can be started.
TG_API void end_with(pid_t parent, int signal);

}  // namespace tapegrad::shared
