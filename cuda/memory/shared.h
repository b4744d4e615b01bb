// Device memory that is shared between processes. The sender's memory lies in fixed segments of its caching allocator,
// whose handles other processes open; an event orders the receiver's work after the sender's.
// multiprocessing/exchange.h tracks ownership. This file keeps the segments that this process has opened, each once,
// and the streams on which work on them was queued: the memory is released after that work. All functions from any
// thread.
#pragma once

#include "tapegrad/c10/storage.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// --- the sender ---
void* allocate_shared(int device, std::size_t nbytes);
void free_shared(int device, void* p, EventHandle event) noexcept;
// Copies all bytes after all work queued on any stream of the device, and waits. Raises Runtime for memory of a graph,
// which would go on using the old address.
void copy_to_shared(void* to, const StorageImpl& from);
uint64_t export_shared(int device, const void* p, unsigned char* handle);
// The number of interprocess events is limited: beyond kMostEvents, waits for the stream instead.
inline constexpr int kMostEvents = 1000;
EventHandle mark_sent(int device, EventHandle event);

// --- the receiver ---
void* open_shared(int device, const unsigned char* handle, uint64_t offset);
void await_sent(int device, const unsigned char* event);
bool settle_shared(const void* p) noexcept;
void close_shared(const void* p) noexcept;
// Records that work on opened memory is queued on `stream`; false if p is not opened memory.
bool note_use_of_opened(const void* p, Stream stream);

}  // namespace tapegrad::cuda
