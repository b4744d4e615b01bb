// Stable sorts and prefix sums of arrays on a device, queued on a stream. On a real device they are CUB's.
#pragma once

#include <cstdint>

#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// Sorts by bits [0, bits) of the keys, ascending; equal keys keep their order. No two arrays may share memory.
TG_API void sort_pairs(const Stream& stream, const uint64_t* keys, uint64_t* sorted_keys, const int64_t* values,
                       int64_t* sorted_values, int64_t n, int bits);
TG_API void sort_pairs(const Stream& stream, const uint64_t* keys, uint64_t* sorted_keys, const uint32_t* values,
                       uint32_t* sorted_values, int64_t n, int bits);
TG_API void sort_pairs(const Stream& stream, const uint32_t* keys, uint32_t* sorted_keys, const uint32_t* values,
                       uint32_t* sorted_values, int64_t n, int bits);
// sums[i] = flags[0] + ... + flags[i].
TG_API void inclusive_sums(const Stream& stream, const uint8_t* flags, int64_t* sums, int64_t n);

}  // namespace tapegrad::cuda
