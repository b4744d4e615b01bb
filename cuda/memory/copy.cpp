#include "tapegrad/cuda/memory/copy.h"

#include "tapegrad/cuda/memory/pinned_allocator.h"

namespace tapegrad::cuda {

namespace {

// Whether the copy may go on by itself: the memory is pinned, and will not be used for other things before it is done.
bool in_flight(const void* host, Stream stream) {
  if (pinned_allocator().owns(host)) {
    pinned_allocator().note_use(host, stream);
    return true;
  }
  return driver().is_pinned(host);  // the caller's own pages
}

}  // namespace

void copy_to_device(void* to, const void* from, std::size_t nbytes, Stream stream, bool non_blocking, const char* op) {
  if (nbytes == 0) return;
  DeviceGuard guard(stream.device);
  const bool pinned = in_flight(from, stream);
  if (!pinned || !non_blocking) note_wait(op);
  driver().copy(to, from, nbytes, CopyKind::HostToDevice, stream.handle);
  // Pinned memory is read when the stream gets there, and the caller may write to it before.
  if (pinned && !non_blocking) driver().synchronize_stream(stream.handle);
}

void copy_to_host(void* to, const void* from, std::size_t nbytes, Stream stream, bool non_blocking, const char* op) {
  if (nbytes == 0) return;
  DeviceGuard guard(stream.device);
  const bool pinned = in_flight(to, stream);
  if (!pinned || !non_blocking) note_wait(op);
  driver().copy(to, from, nbytes, CopyKind::DeviceToHost, stream.handle);
  if (pinned && non_blocking) return;
  driver().synchronize_stream(stream.handle);
  if (auto* hook = after_wait.load(std::memory_order_acquire)) hook();
}

}  // namespace tapegrad::cuda
