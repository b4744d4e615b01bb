// parallel_for over a pool of threads, see thread_pool.h for how they are run.
// - The range is cut into chunks whose borders depend on (begin, end, grain) only, and one thread walks
// through
//   the same chunks as many do: results are the same bits for any number of threads.
// - `grain` is the least amount of work worth a thread of its own (about 10 us). At most size / grain threads
//   take part; a range of at most one grain is one plain call.
// - The caller works, too, and waits only for chunks that another thread has begun. Sleeping threads are
// woken
//   only where the remaining work pays for it.
// - Calls from within a chunk run on the thread they are made on. The first exception (by chunk, not by time)
//   is rethrown on the caller, the chunks behind it are dropped.
// Thread rules: everything here from any thread, several parallel_for at once included. A child made by fork
// starts a new pool when it needs one.
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
  // Finer than the grain, so that threads end together and a late one holds up little; few enough that
  // the counting does not show. Long chunks are multiples of 64 to keep threads off each other's cache lines.
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

// Asked by the calling thread between chunks, at most every 20 ms; true drops the remaining chunks and throws
// Error(Interrupt). Called within a BlockingRegion and possibly often, so it should look at a flag first.
using InterruptHook = bool (*)();
extern TG_API std::atomic<InterruptHook> interrupt_hook;
// For long loops that are not a parallel_for: the same question under the same clock; throws
// Error(Interrupt).
TG_API void check_interrupt();

// What a language binding does around work during which other threads should run (Python: drop the lock).
// `release` returns what `acquire` needs, or null where the thread holds nothing; acquire is then not called.
struct BlockingHooks {
  void* (*release)() = nullptr;
  void (*acquire)(void*) = nullptr;
};
TG_API void set_blocking_hooks(BlockingHooks hooks) noexcept;  // once, while no other thread is at work

// Opened by parallel_for for work that is shared or long; operators that call a library or wait open their
// own. A region within a region does nothing.
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

// What one call site has learnt about its work: picoseconds per item, 0 when unknown. Only decides whether to
// wake helpers at once; the results do not depend on it.
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

// Calls f(p, begin, end) for each of `parts` equal parts of `n` items, side by side: for work that keeps something per
// part. Results must not depend on how many there are.
template <class F>
void for_parts(int64_t parts, int64_t n, F&& f) {
  parallel_for(0, parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t p = first; p < last; ++p) f(p, n * p / parts, n * (p + 1) / parts);
  });
}

}  // namespace tapegrad
