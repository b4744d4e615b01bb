#include "tapegrad/aten/record/device/graph.h"

#include <mutex>
#include <unordered_map>

#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/threads/uninterrupted.h"

namespace tapegrad::record {

namespace {

thread_local bool making = false;

int64_t number(const DeviceValue& v) { return std::get<int64_t>(v); }

std::mutex& captures() {
  static auto& mutex = *new std::mutex;
  return mutex;
}

// The stream that graphs are captured on: one for each device, which nobody else is given. With the lock held.
int64_t capture_stream(DeviceInterface& on, int64_t device) {
  static auto& streams = *new std::unordered_map<int64_t, int64_t>;
  const auto known = streams.find(device);
  if (known != streams.end()) return known->second;
  return streams[device] = number(on.call("new_stream", {device, int64_t{0}}));
}

}  // namespace

DeviceGraph::DeviceGraph(Device device, const std::function<void()>& f, std::span<const Storage> used)
    : device_(device) {
  DeviceInterface& on = need_device(device.type, "recorded step");
  const std::lock_guard held(captures());
  const int64_t index = device.index, stream = capture_stream(on, index);
  pool_ = number(on.call("new_pool", {}));
  struct Current {
    DeviceInterface& on;
    int64_t index, before = on.current_stream(static_cast<int>(index));
    ~Current() {
      try {
        on.call("set_current_stream", {index, before});
      } catch (...) {  // the device is lost
      }
    }
  } current{on, index};
  on.call("set_current_stream", {index, stream});
  // Only what this thread does can spoil it.
  on.call("begin_capture", {index, stream, pool_, std::string("thread_local")});
  try {
    struct Making {
      Making() { making = true; }
      ~Making() { making = false; }
    } flag;
    f();
  } catch (...) {
    try {
      on.call("destroy_graph", {on.call("end_capture", {index, stream, pool_}), int64_t{0}});
    } catch (...) {  // it was spoilt before
    }
    throw;
  }
  const int64_t graph = number(on.call("end_capture", {index, stream, pool_}));
  // Nothing of it has run.
  for (const Storage& memory : used) on.call("forget_use", {index, reinterpret_cast<int64_t>(memory->data()), stream});
  on.call("pool_retain", {index, pool_});
  try {
    launched_ = number(on.call("instantiate", {graph}));
  } catch (...) {
    on.call("destroy_graph", {graph, int64_t{0}});
    on.call("pool_release", {index, pool_});
    throw;
  }
  on.call("destroy_graph", {graph, int64_t{0}});
}

DeviceGraph::~DeviceGraph() {
  try {
    const Uninterrupted uninterrupted;
    DeviceInterface& on = need_device(device_.type, "recorded step");
    on.call("destroy_graph", {int64_t{0}, launched_});
    on.call("pool_release", {int64_t{device_.index}, pool_});
  } catch (...) {  // the driver is gone at the end of the process
  }
}

bool makes_graph() noexcept { return making; }

void DeviceGraph::launch(int64_t stream) const {
  need_device(device_.type, "recorded step").call("launch_graph", {int64_t{device_.index}, launched_, stream});
}

}  // namespace tapegrad::record
