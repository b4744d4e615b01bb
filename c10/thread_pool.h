// The threads behind parallel_for. A job lives on its caller's stack; helpers enter it under the pool's lock,
// take chunks from its counter and leave. The caller takes chunks as well, then removes the job from the list
// (nobody can enter after that) and waits for the helpers inside, so a thread that the system does not run
// delays nobody unless it holds a chunk.
// Idle helpers spin for a few times the cost of waking a thread, which is measured as it happens (2 us on
// bare metal, 8 us on some virtual machines), then sleep on a futex. Threads are made when first needed and
// never end; they take no signals.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

#include "tapegrad/c10/fork.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad::detail {

struct Job {
  Job(ChunkFunction f, void* c, int64_t first, int64_t last, Split s)
      : function(f), context(c), begin(first), end(last), split(s) {}

  const ChunkFunction function;
  void* const context;
  const int64_t begin, end;
  const Split split;
  int room = 0;  // helpers that may still enter; guarded by the pool's lock
  Job* previous = nullptr;
  Job* following = nullptr;

  ForkSafeLock error_lock;
  std::exception_ptr error;
  int64_t error_index = INT64_MAX;

  alignas(64) std::atomic<int64_t> next{0};
  alignas(64) std::atomic<uint32_t> helpers{0};  // inside now; the top bit is set while the caller sleeps

  // Takes the next chunk and runs it. False when none is left. Errors are kept, the rest is dropped then.
  bool run_one() noexcept;
  void drop_rest() noexcept { next.store(split.count, std::memory_order_relaxed); }
};

class ThreadPool {
 public:
  // The pool of this process; a forked child gets a new one.
  static ThreadPool& instance();

  // Lets helpers see the job. Does not wake any.
  void post(Job& job, int num_helpers);
  // Wakes sleeping helpers if nobody who is awake is free to help. A woken helper wakes more where needed.
  void wake(int wanted) noexcept;
  // Closes the job and waits until no helper is inside. `chunk_ns` is what a chunk takes on the caller.
  void finish(Job& job, int64_t chunk_ns) noexcept;

  // Below this much remaining work waking a helper costs more than it brings.
  int64_t worthwhile_ns() const noexcept { return 8 * wake_cost_ns_.load(std::memory_order_relaxed); }
  // Set after helpers took far longer for a chunk than the caller does, twice within a short time: the
  // processors are busy with something else, so for a while waiting for helpers would cost more than they
  // give.
  bool crowded(int64_t now_ns) const noexcept { return now_ns < crowded_until_ns_.load(std::memory_order_relaxed); }

 private:
  ThreadPool();
  void add_workers(int wanted) noexcept;
  [[noreturn]] void work() noexcept;
  void note_stall(int64_t now) noexcept;
  Job* enter() noexcept;
  void leave(Job& job) noexcept;
  bool spin(uint32_t seen) noexcept;

  const uint32_t generation_;
  const int spin_limit_;  // helpers that may spin at the same time
  ForkSafeLock lock_;     // guards the list, `room` of its jobs, and num_workers_
  Job* first_ = nullptr;
  Job* last_ = nullptr;
  int num_workers_ = 0;
  std::atomic<int64_t> wake_cost_ns_{5000};
  std::atomic<int64_t> crowded_until_ns_{0};
  std::atomic<int64_t> crowded_for_ns_{0};  // doubles while stalls go on
  std::atomic<int64_t> last_stall_ns_{INT64_MIN / 2};
  alignas(64) std::atomic<uint32_t> posted_{0};  // counts jobs; idle helpers wait for it to change
  alignas(64) std::atomic<int> sleeping_{0};
  std::atomic<int> spinning_{0};
};

int64_t now_ns() noexcept;
// True on the pool's own threads.
bool is_pool_thread() noexcept;
// Sets in_parallel_region() for a scope.
class RegionGuard {
 public:
  RegionGuard() noexcept;
  ~RegionGuard();

 private:
  bool before_;
};

}  // namespace tapegrad::detail
