// Policy of the host's waits: the mode of strict("sync"), and the hook that raises faults recorded by kernels.
#pragma once

#include <string>

#include "tapegrad/c10/macros.h"

namespace tapegrad::cuda {

TG_API void set_wait_mode(int mode);  // 0: waits are fine, 1: each warns with its line, 2: each raises
TG_API int wait_mode() noexcept;
TG_API void call_after_wait();
// To be called when queued work was aborted: the next wait of the host raises `why`, once.
TG_API void note_lost_work(std::string why);

}  // namespace tapegrad::cuda
