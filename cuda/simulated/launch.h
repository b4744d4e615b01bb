// Launches kernels on a simulated device, as closures in the queues of its streams. Only in libtapegrad_cuda_sim.
#pragma once

#include <functional>

#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda::simulated {

// Queues work on a stream of the calling thread's current device. `work` reads and writes device memory by its
// addresses, runs on whichever host thread advances the device, and must not call the driver. `name` is its name in
// errors. While the stream is being captured, the closure is kept in the graph and runs once per replay, so it must
// hold its arguments by value.
TG_API void enqueue(StreamHandle stream, const char* name, std::function<void()> work);

}  // namespace tapegrad::cuda::simulated
