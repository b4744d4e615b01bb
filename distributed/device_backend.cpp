#include "tapegrad/distributed/device_backend.h"

#include <atomic>

#include "tapegrad/c10/device/device_interface.h"

namespace tapegrad::distributed {

namespace {

std::atomic<const DeviceEngine*> registered{nullptr};

}  // namespace

DeviceMark::~DeviceMark() = default;
DeviceBackend::~DeviceBackend() = default;

void set_device_engine(const DeviceEngine* engine) { registered.store(engine, std::memory_order_release); }

std::string device_engine_why_not() {
  const DeviceInterface* device = device_interface(DeviceType::CUDA);
  const DeviceEngine* engine = registered.load(std::memory_order_acquire);
  if (engine != nullptr) return engine->why_not();
  return device == nullptr ? device_why_not(DeviceType::CUDA) : "the library of the device has no engine";
}

const DeviceEngine& device_engine() {
  const std::string why = device_engine_why_not();
  if (!why.empty()) fail(DistError::Part::Backend, "nccl: NCCL cannot be used: {}", why);
  return *registered.load(std::memory_order_acquire);
}

std::unique_ptr<DeviceBackend> make_device_backend(DevicePlace place) { return device_engine().make(std::move(place)); }

}  // namespace tapegrad::distributed
