// Counters and snapshots as JSON, with PyTorch's names.
#pragma once

#include <string>

#include "tapegrad/cuda/memory/device_allocator.h"
#include "tapegrad/cuda/memory/pinned_allocator.h"

namespace tapegrad::cuda {

std::string stats_json(const AllocatorStats& stats);
std::string host_stats_json(const PinnedStats& stats);
// {"segments": [...], "device_traces": [[...]], "sites": {...}}: segments with their blocks, what happened to them
// while history was recorded, and the lines of the program by number.
std::string snapshot_json(int device, const DeviceAllocator& allocator);
std::string properties_json(const DeviceProperties& p);
std::string versions_json();

}  // namespace tapegrad::cuda
