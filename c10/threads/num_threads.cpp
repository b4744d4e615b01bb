// How many threads parallel_for may use.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "tapegrad/c10/environment.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/proc_file.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad {

namespace {

constexpr int kMaxThreads = 1024;

// The number in a variable that others read, too, or 0. OMP_NUM_THREADS may be a list of numbers; the first counts.
// libgomp says what is wrong.
int of_others(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) return 0;
  const long n = std::strtol(text, nullptr, 10);
  return n < 1 ? 0 : static_cast<int>(std::min<long>(n, kMaxThreads));
}

int processors() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return CPU_COUNT(&set);
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

// Processor time per time that the control groups grant, rounded up; INT_MAX without a limit.
int quota() {
  double least = INT32_MAX;
  detail::for_each_cgroup("cpu", [&](const detail::CgroupDir& dir) {
    // "max 100000" or "200000 100000"; the old hierarchy has a file for each and -1 for none.
    const uint64_t time = dir.v2 ? dir.nth("cpu.max", 0, 0) : dir.number("cpu.cfs_quota_us", 0);
    const uint64_t period = dir.v2 ? dir.nth("cpu.max", 1, 0) : dir.number("cpu.cfs_period_us", 0);
    if (time > 0 && period > 0) least = std::min(least, static_cast<double>(time) / static_cast<double>(period));
  });
  return static_cast<int>(std::ceil(least));
}

int default_threads() {
  if (const auto n = environment_number("TAPEGRAD_NUM_THREADS", 0, 1, kMaxThreads)) return static_cast<int>(n);
  if (int n = of_others("OMP_NUM_THREADS")) return n;
  const int ranks = std::max(1, of_others("LOCAL_WORLD_SIZE"));
  return std::clamp(std::min(processors(), quota()) / ranks, 1, kMaxThreads);
}

std::atomic<int> num_threads{0};  // 0: not determined yet

}  // namespace

int get_num_threads() {
  int n = num_threads.load(std::memory_order_relaxed);
  if (TG_UNLIKELY(n == 0)) {
    // Two threads may both come here and find the same number; a set_num_threads between is kept.
    int found = default_threads();
    n = num_threads.compare_exchange_strong(n, found, std::memory_order_relaxed) ? found : n;
  }
  return n;
}

void set_num_threads(int n) {
  TG_CHECK(n >= 1 && n <= kMaxThreads, Value, "set_num_threads: expected a number from 1 to {}: got {}", kMaxThreads,
           n);
  num_threads.store(n, std::memory_order_relaxed);
}

}  // namespace tapegrad
