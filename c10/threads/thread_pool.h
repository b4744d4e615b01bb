// The threads behind parallel_for. A job lives on its caller's stack; helpers enter it under the pool's lock, take
// chunks and leave. The caller takes chunks as well, then removes the job from the list (no helper can enter after
// that) and waits for the helpers inside, so a thread that the system does not schedule delays the job only if it holds
// a chunk.
//
// Each thread has a share of adjacent chunks, the same one in job after job: what one operator wrote is in the cache of
// the processor that reads it in the next one, and threads do not work on neighbouring cache lines. A thread that has
// finished its own share takes chunks from the end of the fullest share.
//
// Idle helpers spin for a few times the cost of waking a thread, which is measured continuously (2 us on bare metal, 8
// us on some virtual machines), then sleep on a futex. Threads are created on demand and never end; they block all
// signals.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>

#include "tapegrad/c10/threads/fork.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::detail {

struct Job {
  static constexpr int kMaxShares = 16;  // with more threads, some share one

  Job(ChunkFunction f, void* c, int64_t first, int64_t last, Split s, int num_threads);

  const ChunkFunction function;
  void* const context;
  const int64_t begin, end;
  const Split split;
  const int num_shares;
  int free_places = 0;  // helpers that may still enter; guarded by the pool's lock
  Job* previous = nullptr;
  Job* following = nullptr;

  ForkSafeLock error_lock;
  std::exception_ptr error;
  int64_t error_rank = INT64_MAX;

  // The chunks not yet taken: the first in the lower half, one past the last in the upper half.
  struct alignas(64) Share {
    std::atomic<uint64_t> chunks;
  };
  Share shares[kMaxShares];
  alignas(64) std::atomic<int64_t> stop_at{INT64_MAX};  // chunks from here on are dropped
  alignas(64) std::atomic<uint32_t> helpers{0};         // inside now; the top bit is set while the caller sleeps

  // Takes a chunk, from this share if it has any, and runs it. False if none is left. An error is stored and drops the
  // later chunks; an interrupt drops all.
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

  // Makes the job visible to helpers. Does not wake any.
  void post(Job& job, int num_helpers);
  // Wakes sleeping helpers if no helper that is awake is idle. A woken helper wakes more where needed.
  void wake(int wanted) noexcept;
  // Closes the job and waits until no helper is inside. `chunk_ns` is the time of a chunk on the caller. `interrupted`,
  // which does not throw, is polled during a long wait; if it returns true, all chunks are dropped and the result is
  // true.
  bool finish(Job& job, int64_t chunk_ns, bool (*interrupted)());

  // Below this much remaining work, waking a helper costs more than it gains.
  int64_t worthwhile_ns() const noexcept { return 8 * wake_cost_ns_.load(std::memory_order_relaxed); }
  // Set after helpers took far longer for a chunk than the caller, twice within a short time: the processors are busy
  // with other work, so for a while waiting for helpers would cost more than they contribute.
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
  ForkSafeLock lock_;     // guards the list, `free_places` of its jobs, and num_workers_
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
// The chunk that a thread is running; without a job: none.
struct Chunk {
  const Job* job;
  int64_t index;
};
// Leaves this thread's chunk, by an exception, if it was dropped meanwhile.
void leave_if_dropped();
// For its lifetime, this thread counts as outside of any chunk and region: what a signal handler computes is not part
// of the interrupted chunk, and may be shared with helpers.
class OutsideOfChunk {
 public:
  OutsideOfChunk() noexcept;
  ~OutsideOfChunk();
  OutsideOfChunk(const OutsideOfChunk&) = delete;
  OutsideOfChunk& operator=(const OutsideOfChunk&) = delete;

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
