// A number computed by kernels that the host needs.
#pragma once

#include "tapegrad/cuda/runtime/driver.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// The last of n sums, n > 0. Waits for the device; `op` is the operator's name for messages.
inline int64_t last_sum(const Stream& stream, const int64_t* sums, int64_t n, const char* op) {
  int64_t last = 0;
  driver().copy(&last, sums + (n - 1), sizeof last, CopyKind::DeviceToHost, stream.handle);
  wait_for_value(stream, op);
  return last;
}

}  // namespace tapegrad::cuda
