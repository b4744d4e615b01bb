// Device memory that is shared between processes. The sender's memory lies in fixed segments of its caching allocator,
// whose handles other processes open; an event orders the receiver's work after the sender's.
// multiprocessing/exchange.h tracks ownership. This file keeps the segments that this process has opened, each once,
// and the streams on which work on them was queued: the memory is released after that work. All functions from any
// thread.
#pragma once

#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

DeviceSharing& sharing();
// Records that work on opened memory is queued on `stream`; false if p is not opened memory.
bool note_use_of_opened(const void* p, Stream stream);

}  // namespace tapegrad::cuda
