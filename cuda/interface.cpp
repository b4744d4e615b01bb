// The CUDA implementation of c10/device/device_interface.h: each function forwards to the part of the backend that
// implements it.
#include "tapegrad/c10/device/device_interface.h"

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/functions.h"
#include "tapegrad/cuda/memory/pinned_allocator.h"
#include "tapegrad/cuda/memory/shared.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/runtime/event.h"

namespace tapegrad::cuda {

int device_or_current(int device) {
  if (device < 0) device = device_count() > 0 ? driver().current_device() : 0;
  check_device(device);
  return device;
}

namespace {

template <class Handle>
Handle as(int64_t number) {
  return reinterpret_cast<Handle>(number);
}
template <class Handle>
int64_t number(Handle handle) {
  return reinterpret_cast<int64_t>(handle);
}

class Interface final : public DeviceInterface {
 public:
  int count() noexcept override { return device_count(); }
  std::string unavailable_reason() override { return device_count() > 0 ? "" : driver().why_no_device(); }
  bool simulated() const noexcept override { return driver().simulated(); }
  bool initialized() const noexcept override { return devices_used(); }
  int current() override { return driver().current_device(); }

  int64_t current_stream(int device) override { return number(cuda::current_stream(device_or_current(device)).handle); }
  bool is_capturing(int device, int64_t stream) override {
    DeviceGuard guard(device);
    return driver().capture_state(as<StreamHandle>(stream)) != CaptureState::None;
  }
  void order_streams(int device, int64_t first, int64_t later) override {
    if (first == later) return;
    DeviceGuard guard(device);
    const EventHandle event = driver().create_event(device_or_current(device), kEventPlain);
    driver().record_event(event, as<StreamHandle>(first));
    driver().stream_wait_event(as<StreamHandle>(later), event);
    driver().destroy_event(event);
  }

  void note_use(const StorageImpl& storage, int64_t stream) override {
    if (!storage.device().is_cuda()) return;
    detail::note_use_slow(storage, {as<StreamHandle>(stream), storage.device().index});
  }
  Storage allocate_pinned(size_t nbytes) override {
    device_or_current(-1);
    return allocate_pinned_storage(nbytes);
  }
  bool is_pinned(const void* p) override { return p != nullptr && device_count() > 0 && driver().is_pinned(p); }
  DeviceSharing& sharing() override { return cuda::sharing(); }

  DeviceValue call(std::string_view function, std::span<const DeviceValue> arguments) override {
    return call_function(function, arguments);
  }
};

}  // namespace

void register_interface() {
  static auto& instance = *new Interface;
  set_device_interface(DeviceType::CUDA, &instance);
}

}  // namespace tapegrad::cuda
