#include "tapegrad/c10/dispatch/work_counters.h"

namespace tapegrad {

namespace detail {
constinit std::atomic<bool> counting_work{false};
}

namespace {
constinit std::atomic<int64_t> counts[2] = {};

int64_t take(Work kind) { return counts[static_cast<int>(kind)].exchange(0); }
}  // namespace

void detail::add_work(Work kind) noexcept { ++counts[static_cast<int>(kind)]; }

void start_counting_work() noexcept {
  stop_counting_work();
  detail::counting_work = true;
}

WorkCounts stop_counting_work() noexcept {
  detail::counting_work = false;
  return {take(Work::LibraryCall), take(Work::Copy)};
}

}  // namespace tapegrad
