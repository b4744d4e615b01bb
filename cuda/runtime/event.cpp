#include "tapegrad/cuda/runtime/event.h"

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/runtime/wait.h"

namespace tapegrad::cuda {

Event::~Event() {
  if (handle_ != nullptr) driver().destroy_event(handle_);
}

void Event::record(Stream stream) {
  TG_CHECK(device_ < 0 || device_ == stream.device, Runtime,
           "event: it was recorded on cuda:{} before: got a stream of cuda:{}", device_, stream.device);
  DeviceGuard guard(stream.device);
  if (handle_ == nullptr) {
    handle_ = driver().create_event(stream.device, flags_);
    device_ = stream.device;
  }
  driver().record_event(handle_, stream.handle);
}

void Event::wait(Stream waiter) const {
  if (handle_ == nullptr) return;
  DeviceGuard guard(waiter.device);
  driver().stream_wait_event(waiter.handle, handle_);
}

bool Event::query() const { return handle_ == nullptr || driver().query_event(handle_); }

void Event::synchronize() const {
  if (handle_ == nullptr) return;
  driver().synchronize_event(handle_);
  call_after_wait();
}

float Event::elapsed_ms(const Event& end) const {
  TG_CHECK(handle_ != nullptr && end.handle_ != nullptr, Runtime,
           "event: both events must have been recorded before their distance is asked for");
  return driver().elapsed_ms(handle_, end.handle_);
}

}  // namespace tapegrad::cuda
