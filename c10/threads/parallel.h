// parallel_for over a pool of threads; thread_pool.h describes how they run.
// - The range is cut into chunks whose borders depend on (begin, end, grain) only, and a single thread processes the
//   same chunks as many threads would: results are the same bits for any number of threads.
// - `grain` is the least amount of work worth a thread of its own (about 10 us). At most size / grain threads take
//   part; a range of at most one grain is one plain call.
// - The caller works, too, and waits only for chunks that another thread has begun. Sleeping threads are woken only
//   where the remaining work justifies the cost.
// - Calls from within a chunk run on the thread that makes them. The first exception (by chunk, not by time) is
//   rethrown on the caller; the chunks after it are dropped.
// Thread rules: everything here may be called from any thread, several parallel_for at once included. A child made by
// fork starts a new pool when it needs one.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

struct Split {
  int64_t chunk;  // length of every chunk but the last
  int64_t count;
};

// How parallel_for cuts `n` items. A reduction that keeps one partial result per chunk sizes its array with
// this.
constexpr Split split_range(int64_t n, int64_t grain) noexcept {
  if (n <= 0) return {1, 0};
  if (grain < 1) grain = 1;
  if (n <= grain) return {n, 1};
  // Finer than the grain, so that threads finish together and a late one delays little; coarse enough that the
  // bookkeeping costs nothing measurable. Long chunks are multiples of 64, so that threads do not share cache lines.
  int64_t chunk = n / 512 + (n % 512 != 0);
  if (chunk < grain / 4) chunk = grain / 4;
  if (chunk >= 1024) chunk = (chunk + 63) / 64 * 64;
  return {chunk, (n + chunk - 1) / chunk};
}

// Default: TAPEGRAD_NUM_THREADS, else OMP_NUM_THREADS, else the processors this process may use (affinity and
// control group quota) divided by the ranks on this host (LOCAL_WORLD_SIZE). The calling thread counts.
TG_API int get_num_threads();
TG_API void set_num_threads(int n);  // 1 to 1024, else Error(Value)
TG_API bool in_parallel_region() noexcept;

// Called by the calling thread between chunks, at most every 20 ms; true drops the remaining chunks and throws
// Error(Interrupt). Runs within a BlockingRegion and possibly often, so it should test a flag first.
using InterruptHook = bool (*)();
extern TG_API std::atomic<InterruptHook> interrupt_hook;
// For long loops that are not a parallel_for: calls the hook with the same rate limit; throws Error(Interrupt).
TG_API void check_interrupt();

// Called by a language binding around work during which other threads should run (Python: release the GIL). `release`
// returns the argument of `acquire`, or null if the thread holds nothing; acquire is then not called.
struct BlockingHooks {
  void* (*release)() = nullptr;
  void (*acquire)(void*) = nullptr;
};
TG_API void set_blocking_hooks(BlockingHooks hooks) noexcept;  // once, while no other thread is at work

// Opened by parallel_for for work that is shared or long; operators that call a library or wait open their own. Nested
// regions do nothing.
class TG_API BlockingRegion {
 public:
  BlockingRegion() noexcept;
  ~BlockingRegion();
  BlockingRegion(const BlockingRegion&) = delete;
  BlockingRegion& operator=(const BlockingRegion&) = delete;

 private:
  void* token_ = nullptr;
  bool outermost_;
};

namespace detail {

// The measured cost of a call site's work in picoseconds per item, 0 if unknown. It only decides whether helpers are
// woken at once; results do not depend on it.
using CostHint = std::atomic<uint32_t>;
using ChunkFunction = void (*)(void* context, int64_t begin, int64_t end, int64_t index);
TG_API void parallel_run(int64_t begin, int64_t end, int64_t grain, ChunkFunction f, void* context, CostHint& hint);

}  // namespace detail

// Calls f(first, last) or, where f takes three arguments, f(first, last, chunk_index) for every chunk.
template <class F>
void parallel_for(int64_t begin, int64_t end, int64_t grain, F&& f) {
  using Function = std::remove_reference_t<F>;
  constexpr bool kWithIndex = std::is_invocable_v<Function&, int64_t, int64_t, int64_t>;
  if (end <= begin) return;
  if (end - begin <= grain || end - begin == 1) {
    if constexpr (kWithIndex) {
      f(begin, end, int64_t{0});
    } else {
      f(begin, end);
    }
    return;
  }
  static constinit detail::CostHint hint{0};
  detail::parallel_run(
      begin, end, grain,
      [](void* context, int64_t first, int64_t last, [[maybe_unused]] int64_t index) {
        Function& function = *static_cast<Function*>(context);
        if constexpr (kWithIndex) {
          function(first, last, index);
        } else {
          function(first, last);
        }
      },
      const_cast<void*>(static_cast<const void*>(&f)), hint);
}

// Calls f(p, begin, end) for each of `parts` equal parts of `n` items, in parallel: for work with per-part state.
// Results must not depend on the number of parts.
template <class F>
void for_parts(int64_t parts, int64_t n, F&& f) {
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) f(p, n * p / parts, n * (p + 1) / parts);
  });
}

}  // namespace tapegrad
