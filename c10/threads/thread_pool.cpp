#include "tapegrad/c10/threads/thread_pool.h"

#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/available_memory.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tapegrad::detail {

namespace {

constexpr uint32_t kCallerSleeps = 1u << 31;
constexpr int64_t kLongestSpin = 50'000;                                   // ns
constexpr int64_t kStall = 1'000'000;                                      // ns, see crowded()
constexpr int64_t kShortTime = 50'000'000;                                 // ns between two stalls that are no accident
constexpr int64_t kCrowdedLeast = 20'000'000, kCrowdedMost = 160'000'000;  // ns

thread_local bool in_region = false;
thread_local bool pool_thread = false;

thread_local constinit Chunk current_chunk{nullptr, 0};
// Thrown to leave a chunk that was dropped. Not an Error, since it is not a result of the job.
struct Dropped {};

void relax() noexcept {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, const timespec* most = nullptr) noexcept {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, most, nullptr, 0);
}

// The address may belong to an object that is gone by now: the kernel does not read it.
void futex_wake(std::atomic<uint32_t>* word, int count) noexcept {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, count, nullptr, nullptr, 0);
}

}  // namespace

int64_t now_ns() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

bool is_pool_thread() noexcept { return pool_thread; }

OutsideOfChunk::OutsideOfChunk() noexcept
    : before_(std::exchange(current_chunk, {nullptr, 0})), region_(std::exchange(in_region, false)) {}
OutsideOfChunk::~OutsideOfChunk() {
  current_chunk = before_;
  in_region = region_;
}

void leave_if_dropped() {
  const Chunk& chunk = current_chunk;
  if (chunk.job != nullptr && chunk.index >= chunk.job->stop_at.load(std::memory_order_relaxed)) throw Dropped();
}

RegionGuard::RegionGuard() noexcept : before_(in_region) { in_region = true; }
RegionGuard::~RegionGuard() { in_region = before_; }

namespace {

int64_t first_of(uint64_t chunks) noexcept { return static_cast<uint32_t>(chunks); }
int64_t end_of(uint64_t chunks) noexcept { return static_cast<int64_t>(chunks >> 32); }
int64_t length_of(uint64_t chunks) noexcept { return end_of(chunks) - first_of(chunks); }

}  // namespace

Job::Job(ChunkFunction f, void* c, int64_t first, int64_t last, Split s, int num_threads)
    : function(f),
      context(c),
      begin(first),
      end(last),
      split(s),
      num_shares(static_cast<int>(std::min<int64_t>({num_threads, kMaxShares, s.count}))) {
  for (int i = 0; i < num_shares; ++i) {
    const int64_t from = split.count * i / num_shares, to = split.count * (i + 1) / num_shares;
    shares[i].chunks.store(static_cast<uint64_t>(to) << 32 | static_cast<uint64_t>(from), std::memory_order_relaxed);
  }
}

int64_t Job::left() const noexcept {
  int64_t sum = 0;
  for (int i = 0; i < num_shares; ++i) sum += length_of(shares[i].chunks.load(std::memory_order_relaxed));
  return sum;
}

int64_t Job::take(int share) noexcept {
  std::atomic<uint64_t>& own = shares[share].chunks;
  uint64_t chunks = own.load(std::memory_order_relaxed);
  while (length_of(chunks) > 0)
    if (own.compare_exchange_weak(chunks, chunks + 1, std::memory_order_relaxed)) return first_of(chunks);
  for (;;) {
    std::atomic<uint64_t>* fullest = nullptr;
    int64_t most = 0;
    for (int i = 0; i < num_shares; ++i) {
      const uint64_t seen = shares[i].chunks.load(std::memory_order_relaxed);
      if (length_of(seen) > most) {
        most = length_of(seen);
        fullest = &shares[i].chunks;
        chunks = seen;
      }
    }
    if (fullest == nullptr) return -1;
    if (fullest->compare_exchange_weak(chunks, chunks - (uint64_t{1} << 32), std::memory_order_relaxed))
      return end_of(chunks) - 1;
  }
}

void Job::drop_from(int64_t chunk) noexcept {
  int64_t before = stop_at.load(std::memory_order_relaxed);
  while (chunk < before && !stop_at.compare_exchange_weak(before, chunk, std::memory_order_relaxed)) {
  }
}

bool Job::run_one(int share) noexcept {
  const int64_t i = take(share);
  if (i < 0) return false;
  if (i >= stop_at.load(std::memory_order_relaxed)) return true;
  const int64_t first = begin + i * split.chunk;
  current_chunk = {this, i};
  try {
    function(context, first, std::min(end, first + split.chunk), i);
  } catch (const Dropped&) {
  } catch (const Error& e) {
    // An interrupt, for which the caller's thread checks in a chunk of its own, takes precedence over all errors.
    keep_error(e.kind() == ErrorKind::Interrupt ? 0 : i, e.kind() == ErrorKind::Interrupt ? -1 : i);
  } catch (...) {
    keep_error(i, i);
  }
  current_chunk.job = nullptr;
  return true;
}

// All chunks before `chunk` will still be run: which error wins, that of the least `rank`, does not depend on timing.
void Job::keep_error(int64_t chunk, int64_t rank) noexcept {
  std::exception_ptr other = std::current_exception();
  error_lock.lock();
  if (rank < error_rank) {
    error_rank = rank;
    std::swap(error, other);
  }
  error_lock.unlock();
  drop_from(chunk);
}

ThreadPool::ThreadPool()
    : generation_(fork_generation()), spin_limit_(std::max(1, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)) - 1)) {}

ThreadPool& ThreadPool::instance() {
  static std::atomic<ThreadPool*> current{nullptr};
  static ForkSafeLock lock;
  ThreadPool* pool = current.load(std::memory_order_acquire);
  if (TG_LIKELY(pool != nullptr && pool->generation_ == fork_generation())) return *pool;
  std::lock_guard guard(lock);  // there may be no memory for a pool
  pool = current.load(std::memory_order_relaxed);
  if (pool == nullptr || pool->generation_ != fork_generation()) {
    // The parent's pool is abandoned: its threads do not exist here, its state may be half written.
    pool = new ThreadPool;
    current.store(pool, std::memory_order_release);
  }
  return *pool;
}

void ThreadPool::add_workers(int wanted) noexcept {
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  while (num_workers_ < wanted) {
    pthread_t thread;
    auto entry = [](void* pool) -> void* { static_cast<ThreadPool*>(pool)->work(); };
    // A thread that cannot be had is no error: the caller does the work.
    if (pthread_create(&thread, nullptr, entry, this) != 0) break;
    pthread_setname_np(thread, "tapegrad");
    pthread_detach(thread);
    ++num_workers_;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void ThreadPool::post(Job& job, int num_helpers) {
  job.free_places = num_helpers;
  lock_.lock();
  if (num_workers_ < num_helpers) add_workers(num_helpers);
  job.previous = last_;
  (last_ != nullptr ? last_->following : first_) = &job;
  last_ = &job;
  lock_.unlock();
  posted_.fetch_add(1, std::memory_order_seq_cst);
}

void ThreadPool::wake(int wanted) noexcept {
  // Sequentially consistent with work(): either we see the sleeper or it sees the new count and stays awake.
  if (sleeping_.load(std::memory_order_seq_cst) == 0 || spinning_.load(std::memory_order_seq_cst) >= wanted) return;
  const int64_t before = now_ns();
  futex_wake(&posted_, std::min(wanted, 2));
  const int64_t cost = std::clamp<int64_t>(now_ns() - before, 500, 20'000);
  const int64_t old = wake_cost_ns_.load(std::memory_order_relaxed);
  wake_cost_ns_.store(old + (cost - old) / 8, std::memory_order_relaxed);
}

bool ThreadPool::finish(Job& job, int64_t chunk_ns, bool (*interrupted)()) {
  lock_.lock();
  (job.previous != nullptr ? job.previous->following : first_) = job.following;
  (job.following != nullptr ? job.following->previous : last_) = job.previous;
  lock_.unlock();
  if (job.helpers.load(std::memory_order_acquire) == 0) return false;
  const int64_t start = now_ns(), spin_until = start + kLongestSpin;
  constexpr timespec kPatience{0, 20'000'000};
  bool stop = false;
  for (uint32_t inside; (inside = job.helpers.load(std::memory_order_acquire)) != 0;) {
    if (generation_ != fork_generation()) return stop;  // forked inside a chunk: the helpers do not exist in the child
    if (now_ns() < spin_until) {
      for (int i = 0; i < 8; ++i) relax();
    } else if ((inside & kCallerSleeps) != 0 ||
               job.helpers.compare_exchange_weak(inside, inside | kCallerSleeps, std::memory_order_acq_rel)) {
      if ((inside & ~kCallerSleeps) == 0) break;
      futex_wait(job.helpers, inside | kCallerSleeps, interrupted != nullptr ? &kPatience : nullptr);
      if (interrupted != nullptr && !stop && interrupted()) {
        stop = true;
        job.drop_from(0);
      }
    }
  }
  const int64_t now = now_ns();
  if (now - start > kStall + 4 * chunk_ns) note_stall(now);
  return stop;
}

void ThreadPool::note_stall(int64_t now) noexcept {
  // A single stall may be anything. Racing callers may lose an update, which only delays the decision.
  const bool again = now - last_stall_ns_.load(std::memory_order_relaxed) < kShortTime;
  const bool after_crowd = now - crowded_until_ns_.load(std::memory_order_relaxed) < kShortTime;
  last_stall_ns_.store(now, std::memory_order_relaxed);
  if (!again && !after_crowd) return;
  const int64_t before = after_crowd ? crowded_for_ns_.load(std::memory_order_relaxed) : 0;
  const int64_t length = std::clamp(2 * before, kCrowdedLeast, kCrowdedMost);
  crowded_for_ns_.store(length, std::memory_order_relaxed);
  crowded_until_ns_.store(now + length, std::memory_order_relaxed);
}

Job* ThreadPool::enter() noexcept {
  Job* found = nullptr;
  int more = 0;
  lock_.lock();
  for (Job* job = first_; job != nullptr; job = job->following) {
    if (job->free_places == 0 || job->left() == 0) continue;
    if (found == nullptr) {
      found = job;
      --job->free_places;
      job->helpers.fetch_add(1, std::memory_order_relaxed);
    }
    more += job->free_places;
  }
  lock_.unlock();
  if (found != nullptr && more > 0) wake(more);
  return found;
}

void ThreadPool::leave(Job& job) noexcept {
  // The job may be gone as soon as the count drops: only its address is used after that.
  std::atomic<uint32_t>* word = &job.helpers;
  if (word->fetch_sub(1, std::memory_order_acq_rel) == (kCallerSleeps | 1)) futex_wake(word, 1);
}

// True as soon as a job was posted.
bool ThreadPool::spin(uint32_t seen) noexcept {
  bool found = false;
  if (spinning_.fetch_add(1, std::memory_order_seq_cst) < spin_limit_) {
    const int64_t until = now_ns() + std::min(kLongestSpin, 3 * wake_cost_ns_.load(std::memory_order_relaxed));
    while (!(found = posted_.load(std::memory_order_acquire) != seen) && now_ns() < until)
      for (int i = 0; i < 8; ++i) relax();
  }
  spinning_.fetch_sub(1, std::memory_order_seq_cst);
  return found;
}

void ThreadPool::work() noexcept {
  prepare_thread();
  pool_thread = in_region = true;
  const int number = started_.fetch_add(1, std::memory_order_relaxed);
  for (;;) {
    const uint32_t seen = posted_.load(std::memory_order_acquire);
    if (Job* job = enter()) {
      const int share = job->num_shares > 1 ? 1 + number % (job->num_shares - 1) : 0;  // the first is the caller's
      while (job->run_one(share)) {
      }
      leave(*job);
      continue;
    }
    if (spin(seen)) continue;
    sleeping_.fetch_add(1, std::memory_order_seq_cst);
    futex_wait(posted_, seen);  // returns at once if a job was posted since
    sleeping_.fetch_sub(1, std::memory_order_seq_cst);
  }
}

}  // namespace tapegrad::detail

namespace tapegrad {

bool in_parallel_region() noexcept { return detail::in_region; }

}  // namespace tapegrad
