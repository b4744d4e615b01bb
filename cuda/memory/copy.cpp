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

void copy_to_device(void* to, const void* from, std::size_t nbytes, Stream stream, bool non_blocking) {
  if (nbytes == 0) return;
  DeviceGuard guard(stream.device);
  const bool pinned = in_flight(from, stream);
  driver().copy(to, from, nbytes, CopyKind::HostToDevice, stream.handle);
  if (pinned && !non_blocking) wait_for_value(stream, "copy to the device");
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

void copy_between(void* to, int to_device, const void* from, int from_device, std::size_t nbytes) {
  if (nbytes == 0) return;
  const Stream source = current_stream(from_device), target = current_stream(to_device);
  DeviceGuard guard(from_device);
  if (to_device == from_device) return driver().copy(to, from, nbytes, CopyKind::DeviceToDevice, source.handle);
  wait_stream(source, target);
  driver().copy_peer(to, to_device, from, from_device, nbytes, source.handle);
  wait_stream(target, source);
}

}  // namespace tapegrad::cuda
