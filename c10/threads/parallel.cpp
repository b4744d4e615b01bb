#include "tapegrad/c10/threads/parallel.h"

#include <time.h>

#include <algorithm>
#include <utility>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/threads/thread_pool.h"
#include "tapegrad/c10/threads/uninterrupted.h"

namespace tapegrad {

constinit std::atomic<InterruptHook> interrupt_hook{nullptr};

namespace {

constexpr int64_t kInterruptEvery = 20'000'000;  // ns
// From this many chunks on a parallel_for that stays on its thread counts as long.
constexpr int64_t kLongCount = 16;

BlockingHooks blocking_hooks;
thread_local bool in_blocking_region = false;
thread_local int64_t last_check_ns = 0;
thread_local int uninterrupted = 0;  // scopes

// Resolution of some milliseconds, 3 ns per call.
int64_t coarse_now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

// A signal handler acquires the lock of its language, and its own long operators release it again.
struct OutsideOfBlockingRegion {
  bool before = std::exchange(in_blocking_region, false);
  ~OutsideOfBlockingRegion() { in_blocking_region = before; }
};

bool interrupted() {
  InterruptHook hook = interrupt_hook.load(std::memory_order_relaxed);
  if (hook == nullptr || uninterrupted > 0 || detail::is_pool_thread()) return false;
  const int64_t now = coarse_now_ns();
  if (now - last_check_ns < kInterruptEvery) return false;
  last_check_ns = now;
  const detail::OutsideOfChunk chunk;
  const OutsideOfBlockingRegion blocking;
  return hook();
}

[[noreturn]] void throw_interrupt() { TG_THROW(Interrupt, "interrupted"); }

}  // namespace

Uninterrupted::Uninterrupted() noexcept { ++uninterrupted; }
Uninterrupted::~Uninterrupted() { --uninterrupted; }

void check_interrupt() {
  detail::leave_if_dropped();
  if (interrupted()) throw_interrupt();
}

void set_blocking_hooks(BlockingHooks hooks) noexcept { blocking_hooks = hooks; }

BlockingRegion::BlockingRegion() noexcept : outermost_(!in_blocking_region) {
  if (!outermost_) return;
  in_blocking_region = true;
  if (blocking_hooks.release != nullptr && !detail::is_pool_thread()) token_ = blocking_hooks.release();
}

BlockingRegion::~BlockingRegion() {
  if (!outermost_) return;
  if (token_ != nullptr) blocking_hooks.acquire(token_);
  in_blocking_region = false;
}

namespace detail {

namespace {

void run_alone(int64_t begin, int64_t end, Split split, ChunkFunction f, void* context) {
  for (int64_t i = 0; i < split.count; ++i) {
    if (i != 0) check_interrupt();
    const int64_t first = begin + i * split.chunk;
    f(context, first, std::min(end, first + split.chunk), i);
  }
}

void run_shared(ThreadPool& pool, Job& job, int num_helpers, CostHint& hint) {
  pool.post(job, num_helpers);
  const double size = static_cast<double>(job.end - job.begin);
  const int64_t worthwhile = pool.worthwhile_ns();
  const uint32_t ps_per_item = hint.load(std::memory_order_relaxed);
  // Known to be long, or not known: wake at once. Otherwise the first chunk shows what the rest will take;
  // helpers that are still awake from the last call join in any case.
  bool woken = ps_per_item == 0 || size * ps_per_item * 1e-3 > 4.0 * static_cast<double>(worthwhile);
  if (woken) pool.wake(num_helpers);

  bool stop = false;
  int64_t done = 0;
  const int64_t start = now_ns();
  {
    RegionGuard region;
    while (job.run_one(0)) {
      ++done;
      if (!woken && done == 1) {
        woken = true;
        if ((now_ns() - start) * job.left() > worthwhile) pool.wake(num_helpers);
      }
      // An exception from the hook must not leave the job in the list.
      try {
        stop = interrupted();
      } catch (...) {
        job.drop_from(0);
        pool.finish(job, 0, nullptr);
        throw;
      }
      if (stop) {
        job.drop_from(0);
        break;
      }
    }
  }
  int64_t chunk_ns = 0;
  if (done > 0) {
    chunk_ns = (now_ns() - start) / done;
    const double ps = static_cast<double>(chunk_ns) * 1e3 / static_cast<double>(job.split.chunk);
    hint.store(static_cast<uint32_t>(std::clamp(ps, 1.0, 4e9)), std::memory_order_relaxed);
  }
  // Helpers may be long in their last chunks.
  bool (*const must_stop)() = [] {
    try {
      return interrupted();
    } catch (...) {
      return true;
    }
  };
  const bool interruptible = !stop && interrupt_hook.load(std::memory_order_relaxed) != nullptr;
  stop |= pool.finish(job, chunk_ns, interruptible ? must_stop : nullptr);
  if (stop) throw_interrupt();
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace

void parallel_run(int64_t begin, int64_t end, int64_t grain, ChunkFunction f, void* context, CostHint& hint) {
  const Split split = split_range(end - begin, grain);
  const int64_t most = std::min<int64_t>(get_num_threads(), (end - begin) / std::max<int64_t>(grain, 1));
  const int num_helpers = in_parallel_region() ? 0 : static_cast<int>(std::min(most, split.count) - 1);
  if (num_helpers > 0) {
    ThreadPool& pool = ThreadPool::instance();
    if (!pool.crowded(now_ns())) {
      BlockingRegion region;
      Job job(f, context, begin, end, split, num_helpers + 1);
      return run_shared(pool, job, num_helpers, hint);
    }
  }
  if (split.count < kLongCount || in_parallel_region()) return run_alone(begin, end, split, f, context);
  BlockingRegion region;
  run_alone(begin, end, split, f, context);
}

}  // namespace detail

}  // namespace tapegrad
