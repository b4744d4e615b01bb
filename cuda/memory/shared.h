// Device memory that passes between processes. The sender's lies in fixed segments of its caching allocator, whose
// handles other processes open; an event orders the receiver's work behind the sender's. Who holds what is the business
// of multiprocessing/exchange.h. Here is kept what this process has opened: each segment once, and the streams that
// work on it was queued on, which the memory is given back after. All functions from any thread.
#pragma once

#include "tapegrad/c10/storage.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// --- the sender ---
void* allocate_shared(int device, std::size_t nbytes);
void free_shared(int device, void* p, EventHandle event) noexcept;
// Copies all bytes, after whatever any stream of the device has been given, and waits. Runtime for memory of a graph,
// which would go on with the old address.
void copy_to_shared(void* to, const StorageImpl& from);
uint64_t export_shared(int device, const void* p, unsigned char* handle);
// CUDA makes few events for other processes: beyond kMostEvents the stream is waited for.
inline constexpr int kMostEvents = 1000;
EventHandle mark_sent(int device, EventHandle event);

// --- the receiver ---
void* open_shared(int device, const unsigned char* handle, uint64_t offset);
void await_sent(int device, const unsigned char* event);
bool settle_shared(const void* p) noexcept;
void close_shared(const void* p) noexcept;
// Work on opened memory goes to `stream`; false when p is none.
bool note_use_of_opened(const void* p, Stream stream);

}  // namespace tapegrad::cuda
