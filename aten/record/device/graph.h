// A graph of a device: calls that were queued once while nothing ran, replayed by one launch. Needs no header of CUDA:
// it is made of the functions of c10/device/device_interface.h.
#pragma once

#include <functional>
#include <span>

#include "tapegrad/c10/tensor/storage.h"

namespace tapegrad::record {

class DeviceGraph {
 public:
  // What f() queues on the current stream of the device. Raises what f raises, and Runtime where it did what a graph
  // cannot hold. Generators may stand elsewhere afterwards. One graph of the process is made at a time. `used`: memory
  // that the kernels read and write, which the allocator need not wait for when it is freed.
  DeviceGraph(Device device, const std::function<void()>& f, std::span<const Storage> used);
  ~DeviceGraph();
  DeviceGraph(const DeviceGraph&) = delete;
  DeviceGraph& operator=(const DeviceGraph&) = delete;

  // Queues all of it; generators that it draws from go on, as if the calls had been made.
  void launch(int64_t stream) const;

 private:
  Device device_;
  int64_t pool_ = 0;  // of what the kernels themselves allocate
  int64_t launched_ = 0;
};

// Whether this thread is making such a graph, whose replays shall give what its calls gave: a kernel that would compute
// in another way during a capture raises instead, and the calls are replayed one by one.
TG_API bool makes_graph() noexcept;

}  // namespace tapegrad::record
