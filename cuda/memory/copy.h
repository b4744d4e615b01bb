// Copies bytes between the host and a device in stream order. Only this file decides when the host has to wait.
#pragma once

#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// To the device: the host memory may be changed when this returns, unless it is pinned and `non_blocking`, when the
// copy is queued and the memory is kept until it is done, even if its tensor is freed.
TG_API void copy_to_device(void* to, const void* from, std::size_t nbytes, Stream stream, bool non_blocking,
                           const char* op);
// From the device: the bytes have arrived when this returns, unless the host memory is pinned and `non_blocking`.
TG_API void copy_to_host(void* to, const void* from, std::size_t nbytes, Stream stream, bool non_blocking,
                         const char* op);

}  // namespace tapegrad::cuda
