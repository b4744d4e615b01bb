// How the elements of a dense tensor are laid out. Plain value.
#pragma once
#include <cstdint>
namespace tapegrad {
enum class MemoryFormat : uint8_t { Contiguous, Preserve, ChannelsLast };
}  // namespace tapegrad
