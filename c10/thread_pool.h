// The threads behind parallel_for. A job lives on its caller's stack; helpers enter it under the pool's lock,
// take chunks and leave. The caller takes chunks as well, then removes the job from the list (nobody can enter
// after that) and waits for the helpers inside, so a thread that the system does not run delays nobody unless
// it holds a chunk.
// Each thread has a share of the chunks that lie side by side, the same one in job after job: what one operator
// wrote lies in the cache of the processor where the next one reads it, and threads are not on neighbouring
// lines. Who is through with his own takes from the end of the fullest one.
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
  static constexpr int kMaxShares = 16;  // beyond, threads have one in common

  Job(ChunkFunction f, void* c, int64_t first, int64_t last, Split s, int num_threads);

  const ChunkFunction function;
  void* const context;
  const int64_t begin, end;
  const Split split;
  const int num_shares;
  int room = 0;  // helpers that may still enter; guarded by the pool's lock
  Job* previous = nullptr;
  Job* following = nullptr;

  ForkSafeLock error_lock;
  std::exception_ptr error;
  int64_t error_rank = INT64_MAX;

  // The chunks that nobody has taken: the first in the lower half, the one behind the last in the upper half.
  struct alignas(64) Share {
    std::atomic<uint64_t> chunks;
  };
  Share shares[kMaxShares];
  alignas(64) std::atomic<int64_t> stop_at{INT64_MAX};  // chunks from here on are dropped
  alignas(64) std::atomic<uint32_t> helpers{0};         // inside now; the top bit is set while the caller sleeps

  // Takes a chunk, of this share where it has any, and runs it. False when none is left. Errors are kept, the
  // chunks behind are dropped then; of an interrupt, all.
  bool run_one(int share) noexcept;
  void drop_from(int64_t chunk) noexcept;
  int64_t left() const noexcept;

 private:
  int64_t take(int share) noexcept;  // -1: none is left
  void keep_error(int64_t chunk, int64_t rank) noexcept;
};

class ThreadPool {
 public:
  // The pool of this process; a forked child gets a new one.
  static ThreadPool& instance();

  // Lets helpers see the job. Does not wake any.
  void post(Job& job, int num_helpers);
  // Wakes sleeping helpers if nobody who is awake is free to help. A woken helper wakes more where needed.
  void wake(int wanted) noexcept;
  // Closes the job and waits until no helper is inside. `chunk_ns` is what a chunk takes on the caller. `interrupted`,
  // which does not throw, is asked during a long wait; then all chunks are dropped, and the result is true.
  bool finish(Job& job, int64_t chunk_ns, bool (*interrupted)());

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
  std::atomic<int> started_{0};
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
// The chunk that a thread is at work on; of no job: none.
struct Chunk {
  const Job* job;
  int64_t index;
};
// Leaves this thread's chunk, by an exception, if it was dropped meanwhile.
void leave_if_dropped();
// For a scope this thread is at work on no chunk and in no region: what a signal's handler computes is not part of it,
// and may be shared with helpers.
class ChunkAside {
 public:
  ChunkAside() noexcept;
  ~ChunkAside();
  ChunkAside(const ChunkAside&) = delete;
  ChunkAside& operator=(const ChunkAside&) = delete;

 private:
  Chunk before_;
  bool region_;
};
// Sets in_parallel_region() for a scope.
class RegionGuard {
 public:
  RegionGuard() noexcept;
  ~RegionGuard();

 private:
  bool before_;
};

}  // namespace tapegrad::detail
