// An object for each device, for the handles and plans of libraries.
#pragma once

#include <map>
#include <mutex>

namespace tapegrad::cuda {

// The device's T, made by the first call, for which the device is current, and never destroyed: the driver may be gone
// before that. Any thread; T guards itself.
template <class T>
T& per_device(int device) {
  static std::mutex mutex;
  static auto& all = *new std::map<int, T>;
  const std::lock_guard lock(mutex);
  return all[device];
}

}  // namespace tapegrad::cuda
