#include "tapegrad/c10/threads/fork.h"

#include <pthread.h>
#include <sched.h>

namespace tapegrad {

namespace {

std::atomic<uint32_t> generation{1};

// Registered while the library is loaded, so before any thread of ours exists.
const int registered = pthread_atfork(nullptr, nullptr, [] { generation.fetch_add(1, std::memory_order_relaxed); });

}  // namespace

uint32_t fork_generation() noexcept { return generation.load(std::memory_order_relaxed); }

void ForkSafeLock::wait() noexcept { sched_yield(); }

}  // namespace tapegrad
