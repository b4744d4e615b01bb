// Names of types of devices. Programs also name those that PyTorch knows and this library does not compute on ("mps",
// "xpu"): they are types behind DeviceType's own, as values alone; nothing can be allocated there, so no tensor has one
// and no table of kernels a place for it. Any thread.
#pragma once

#include <string_view>

#include "tapegrad/c10/device/device.h"

namespace tapegrad {

constexpr bool is_foreign(DeviceType type) { return static_cast<int>(type) >= kNumDeviceTypes; }

TG_API std::string_view device_type_name(DeviceType type);

}  // namespace tapegrad
