// Collectives among devices of this process (see local.cpp). Any thread.
#pragma once

#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/distributed/backend.h"
#include "tapegrad/distributed/device_backend.h"

namespace tapegrad::cuda::nccl_api {

// in[i] and out[i] are device i's; Reduce has the root's output alone, Broadcast none. Queued on the devices' current
// streams; the host waits for nothing but NCCL's own start. Error(Value), Error(Type) before anything is written.
void among_devices(distributed::Kind kind, const std::vector<Tensor>& in, const std::vector<Tensor>& out,
                   distributed::Reduce reduce, int root);

}  // namespace tapegrad::cuda::nccl_api
