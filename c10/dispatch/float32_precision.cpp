#include "tapegrad/c10/dispatch/float32_precision.h"

#include <atomic>

namespace tapegrad {
namespace {
std::atomic<bool> allowed{false};
}

bool allow_tf32() noexcept { return allowed.load(std::memory_order_relaxed); }
void set_allow_tf32(bool allow) noexcept { allowed.store(allow, std::memory_order_relaxed); }

}  // namespace tapegrad
