// Shared by cuDNN 9's graphs and recurrent networks: statuses and how they are raised, dtypes, timing. The constants
// are those of NVIDIA's header and stable within version 9; where that header is available, libraries/cudnn.cpp checks
// them. Tests supply functions of their own.
#pragma once

#include <cstddef>
#include <string>

#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/c10/tensor/dtype.h"
#include "tapegrad/cuda/libraries/function.h"
#include "tapegrad/cuda/runtime/event.h"

namespace tapegrad::cuda::cudnn_calls {

inline constexpr int kSuccess = 0, kBadParameters = 2000, kNotSupported = 3000, kInternal = 4000,
                     kDeviceAllocationFailed = 4004, kExecutionFailed = 5000;
// Statuses come in thousands: 1000 the library is not usable, and the four above.
inline int category(int status) { return status / 1000 * 1000; }

enum DataType : int { kFloat = 0, kDouble = 1, kHalf = 2, kInt32 = 4, kBfloat16 = 9, kBoolean = 11 };
inline DataType data_type(DType dtype) {
  if (is_half(dtype)) return dtype == DType::float16 ? kHalf : kBfloat16;
  return dtype == DType::float64 ? kDouble : kFloat;
}

// The int results are statuses.
struct Calls {
  LibraryFunction<int(void** handle)> create;
  LibraryFunction<int(void* handle, void* stream)> set_stream;
  LibraryFunction<const char*(int status)> error_string;
  LibraryFunction<void(char* message, size_t size)> last_error;
};
// Finds the functions of libcudnn; false if it or one of its dependencies is missing. In libtapegrad_cuda only.
bool find_calls(Calls& to);

// A failed call of cuDNN. The caller that requested the plan decides what it means.
struct Refusal {
  int status;
  const char* call;
  std::string message;
  // Whether another engine, or our own kernel, may succeed: the status is not about the library (1000) or the device
  // (5000).
  bool is_recoverable() const { return category(status) >= kBadParameters && category(status) < kExecutionFailed; }
};

inline void check(const Calls& api, int status, const char* call) {
  if (TG_LIKELY(status == kSuccess)) return;
  char message[512] = "";
  api.last_error(message, sizeof(message));
  throw Refusal{status, call, message};
}

[[noreturn]] inline void raise(const Calls& api, const Refusal& refusal) {
  TG_CHECK(refusal.status != kDeviceAllocationFailed, OutOfMemory, "cuda: {}: out of memory", refusal.call);
  TG_THROW(Runtime, "cuda: {}: {}{}{} (backends.cudnn.enabled = False goes without it)", refusal.call,
           api.error_string(refusal.status), refusal.message.empty() ? "" : ": ", refusal.message);
}

inline bool switched_on(CudnnSwitch which) { return cudnn_switch(which) != 0; }

inline constexpr int kTimedRuns = 3;
// The time of kTimedRuns of `run`, for which the host waits.
template <class F>
float milliseconds(const Stream& stream, F&& run) {
  Event start(kEventTiming), end(kEventTiming);
  start.record(stream);
  for (int i = 0; i < kTimedRuns; ++i) run();
  end.record(stream);
  driver().synchronize_event(end.handle());
  return start.elapsed_ms(end);
}

}  // namespace tapegrad::cuda::cudnn_calls
