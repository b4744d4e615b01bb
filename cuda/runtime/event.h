// Events: marks in streams on which other streams and the host can wait, and between which time is measured. Created
// when first recorded, on the device of that stream. Move-only; not thread-safe.
#pragma once

#include <utility>

#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

class TG_API Event {
 public:
  explicit Event(unsigned flags = kEventPlain) noexcept : flags_(flags) {}
  Event(Event&& other) noexcept
      : flags_(other.flags_), device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(flags_, other.flags_);
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Event();

  void record(Stream stream);      // Runtime when it was recorded on another device before
  void wait(Stream waiter) const;  // nothing for one that was never recorded
  bool query() const;              // true for one that was never recorded
  void synchronize() const;
  float elapsed_ms(const Event& end) const;
  EventHandle handle() const noexcept { return handle_; }

 private:
  unsigned flags_;
  int device_ = -1;
  EventHandle handle_ = nullptr;
};

}  // namespace tapegrad::cuda
