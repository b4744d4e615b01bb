#include "tapegrad/aten/cudnn_switches.h"

#include <atomic>

namespace tapegrad {
namespace {
std::atomic<int> values[static_cast<int>(CudnnSwitch::Count)] = {1, 0, 10, 0, 0, 0, 1};
}

int cudnn_switch(CudnnSwitch which) noexcept { return values[static_cast<int>(which)].load(std::memory_order_relaxed); }
void set_cudnn_switch(CudnnSwitch which, int value) noexcept {
  values[static_cast<int>(which)].store(value, std::memory_order_relaxed);
}

}  // namespace tapegrad
