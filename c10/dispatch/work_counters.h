// Counts what operators do on the CPU besides their own loops: calls of the maths libraries (BLAS, LAPACK, oneDNN) and
// copies of tensors, those inside of operators included. A test compares the counts of whole training steps. Off at the
// start, and then a count costs one load. Thread rules: any thread counts; one at a time starts and stops.
#pragma once

#include <atomic>
#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

enum class Work : uint8_t { LibraryCall, Copy };

namespace detail {
TG_API extern constinit std::atomic<bool> counting_work;
TG_API void add_work(Work kind) noexcept;
}  // namespace detail

inline void count_work(Work kind) noexcept {
  if (TG_UNLIKELY(detail::counting_work.load(std::memory_order_relaxed))) detail::add_work(kind);
}

struct WorkCounts {
  int64_t library_calls = 0, copies = 0;
};

// From zero on.
TG_API void start_counting_work() noexcept;
// What was counted since the start; nothing where it was not started.
TG_API WorkCounts stop_counting_work() noexcept;

}  // namespace tapegrad
