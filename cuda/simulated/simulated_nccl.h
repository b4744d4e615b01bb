// NCCL's C functions over simulated devices: ranks are threads of this process, or devices of one thread. As the real
// one it is non-blocking and strict: an operation is under way until its partners have asked for theirs, then it is
// queued behind what their streams were given, reduces in the order of the ranks, and their streams go on behind it.
#pragma once

#include <cstdint>
#include <string>

#include "tapegrad/cuda/nccl/api.h"

namespace tapegrad::cuda::simulated {

TG_API const nccl_api::Functions* simulated_nccl(std::string& why_not);

// --- for tests ---
struct NcclCounts {
  uint64_t made = 0, aborted = 0, live = 0;  // communicators
  uint64_t queued = 0;                       // operations, counted once for all ranks
  uint64_t misused = 0;                      // calls with a communicator that is gone
};
TG_API NcclCounts nccl_counts();
// Call number n (1: the next one) of that name ("ncclAllReduce") gives `result`.
TG_API void nccl_fail_at(const std::string& name, uint64_t n, nccl_api::Result result);
// The next operation is queued, and then its communicators tell of this error when they are asked.
TG_API void nccl_fail_later(nccl_api::Result result);
// The next operation is done when each of its streams has been asked so often whether it is.
TG_API void nccl_slow(uint64_t questions);
// While it is so, no operation and no communicator gets any further.
TG_API void nccl_hang(bool hangs);

}  // namespace tapegrad::cuda::simulated
