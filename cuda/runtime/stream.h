// Streams: queues of work of a device. Each thread has a current stream per device, initially the default stream;
// operators queue their work there asynchronously. Streams of the pool are created on demand, never destroyed, and
// returned in turn, 32 per device and priority. All functions from any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda {

// A plain value. Two are equal when they are the same queue.
struct Stream {
  StreamHandle handle = nullptr;  // null: the default stream
  int device = 0;
  bool operator==(const Stream&) const = default;
};

// The calling thread's current stream of a device (-1: of the current device). One thread-local load.
TG_API Stream current_stream(int device = -1);
TG_API void set_current_stream(Stream stream);
inline Stream default_stream(int device) { return {nullptr, device}; }
// A stream of the pool; the priority is clamped to the device's range (-1 and lower: before others).
TG_API Stream stream_from_pool(int device, int priority = 0);
TG_API int stream_priority(Stream stream);  // 0 for the default and external streams

// Makes `waiter` wait for all work queued so far on `on`. The host does not wait.
TG_API void wait_stream(Stream waiter, Stream on);

// Makes a stream (and its device) current for a scope.
class TG_API StreamGuard {
 public:
  explicit StreamGuard(Stream stream) : device_(stream.device), before_(current_stream(stream.device)) {
    set_current_stream(stream);
  }
  ~StreamGuard() { set_current_stream(before_); }
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;

 private:
  DeviceGuard device_;
  Stream before_;
};

// --- waiting for the device --- Host code that needs a value from the device must use these, so that the waiting line
// can be reported (tapegrad.strict("sync"), set_sync_debug_mode). `op` is the operator's name in the message, such as
// "item".
TG_API void wait_for_value(Stream stream, const char* op);
// To be called before waiting in any other way, for the same reports.
TG_API void note_wait(const char* op);
// Called after each wait of these functions and of synchronize, event.synchronize; may raise what kernels recorded (bad
// indices). Null until the launch layer sets it.
TG_API extern std::atomic<void (*)()> after_wait;

}  // namespace tapegrad::cuda
