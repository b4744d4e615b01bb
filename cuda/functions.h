// The functions of CUDA's runtime that programs call through a language binding, by name (DeviceInterface::call). A
// device is given as an index, -1 being the current one. Any thread.
#pragma once

#include "tapegrad/c10/device/device_interface.h"

namespace tapegrad::cuda {

DeviceValue call_function(std::string_view name, std::span<const DeviceValue> arguments);
// The device meant, -1 being the current one; from here on CUDA is in use.
int device_or_current(int device);

}  // namespace tapegrad::cuda
