// Support for fork(). Only the calling thread survives it: a lock held by another thread would stay locked forever in
// the child, and pool threads are gone. `fork_generation` distinguishes a child from its parent with one load (getpid
// is a system call). `ForkSafeLock` is a spin lock for sections of a few instructions; in a child it is free even if a
// thread that no longer exists held it.
#pragma once

#include <atomic>
#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

// 1 in the first process, one more in each forked child. Any thread.
TG_API uint32_t fork_generation() noexcept;

class ForkSafeLock {
 public:
  void lock() noexcept {
    const uint32_t mine = fork_generation();
    uint32_t seen = 0;
    for (int tries = 0; !word_.compare_exchange_weak(seen, mine, std::memory_order_acquire); ++tries) {
      // A holder of an older generation does not exist in this process: take the lock over from it.
      if (seen == mine) seen = 0;
      if (tries > 16) wait();
    }
  }
  void unlock() noexcept { word_.store(0, std::memory_order_release); }

 private:
  TG_API static void wait() noexcept;
  std::atomic<uint32_t> word_{0};
};

}  // namespace tapegrad
