// The number of devices, determined once, and the message for each reason why there may be none.
#include <atomic>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/threads/fork.h"
#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda {

Driver::~Driver() = default;
void Driver::mark(int, const char*, uint64_t* id) {
  if (id != nullptr) *id = 0;
}
void Driver::profiler(bool) {}
std::string Driver::libraries() { return "{}"; }

namespace {
thread_local int relaxed_depth = 0;
}
RelaxedCapture::RelaxedCapture(Driver& driver) noexcept : driver_(driver) {
  if (relaxed_depth++ == 0) before_ = driver_.exchange_capture_mode(CaptureMode::Relaxed);
}
RelaxedCapture::~RelaxedCapture() {
  if (--relaxed_depth == 0) (void)driver_.exchange_capture_mode(before_);
}

namespace {
// The process that used a device first: CUDA does not work in its forked children.
std::atomic<uint32_t> used_in{0};
}  // namespace

int device_count() noexcept {
  static const int count = driver().device_count();
  return count;
}

bool devices_used() noexcept { return used_in.load(std::memory_order_relaxed) != 0; }

void check_device(int index) {
  const int count = device_count();
  TG_CHECK(count > 0, Runtime, "cuda: this device is not available: {}", driver().why_no_device());
  TG_CHECK(index >= 0 && index < count, Runtime, "cuda: device index out of range: cuda:{}, there {} {}", index,
           count == 1 ? "is" : "are", count);
  const uint32_t here = fork_generation();
  uint32_t first = used_in.load(std::memory_order_relaxed);
  if (TG_UNLIKELY(first != here)) {
    if (first == 0) used_in.compare_exchange_strong(first, here);
    TG_CHECK(first == 0 || driver().simulated(), Runtime,
             "cuda: a GPU was used before this process was forked, and CUDA does not work in its children\nstart "
             "processes with the method 'spawn'");
  }
}

}  // namespace tapegrad::cuda
