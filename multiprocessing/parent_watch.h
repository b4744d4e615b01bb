// Ends a child when its parent ends, even if the parent is killed, and even while the child is inside a call during
// which no other code of it can run.
#pragma once

#include <sys/types.h>

#include "tapegrad/c10/macros.h"

namespace tapegrad::shared {

// Starts a thread that waits for the end of process `parent`, then sends this process the signal, or ends it at once if
// `signal` is 0. Returns at once; Error(Runtime) if no thread can be started.
TG_API void end_with(pid_t parent, int signal);

}  // namespace tapegrad::shared
