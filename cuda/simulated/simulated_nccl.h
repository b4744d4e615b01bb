// NCCL's C functions over simulated devices: ranks are threads of this process, or devices of one thread. Like the real
// library it is non-blocking and strict: an operation is in progress until its partners have called theirs; then it is
// queued after the work of their streams, reduces in the order of the ranks, and their streams continue after it.
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
// The next operation is queued, and its communicators then report this error when polled.
TG_API void nccl_fail_later(nccl_api::Result result);
// The next operation completes after each of its streams has been queried that many times.
TG_API void nccl_slow(uint64_t questions);
// While set, no operation and no communicator makes progress.
TG_API void nccl_hang(bool hangs);

}  // namespace tapegrad::cuda::simulated
