// The shared memory of the ranks of a group on one machine, and how they wait for each other in it. It holds, for each
// rank: a futex word on which its threads sleep, its progress through the chunks of collectives, its process, and its
// failure message; two slots for small exchanges; kBuffers chunks for large data; and for each other rank the pass of
// the message channel to it. The contents are not trusted, since another process may be damaged: all offsets are
// computed locally from the number of ranks, and values are validated before use.
//
// Waiting: a rank that writes something notifies the ranks that may wait for it. A waiting rank spins for a while, then
// sleeps on its futex in slices of kSlice, between which it checks for failures, deaths, deadlines and interrupts. A
// death is detected by a rank that waits for the dead one, and reported to all others through the area's failure word.
// Thread rules: any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "tapegrad/c10/threads/fork.h"
#include "tapegrad/distributed/backend.h"
#include "tapegrad/distributed/local/common_memory.h"
#include "tapegrad/distributed/local/process.h"

namespace tapegrad::distributed::local {

using Word = std::atomic<uint32_t>;
using Number = std::atomic<uint64_t>;
static_assert(Word::is_always_lock_free && Number::is_always_lock_free);

inline constexpr int kMostRanks = 250;  // as many holders as a ledger counts
inline constexpr size_t kBuffers = 4;

class Area {
 public:
  struct ExchangeSlot {
    Number posted;  // the number of the exchange that the data belong to
    char data[Backend::kMostExchanged];
    char fill[kLine - sizeof(Number)];
  };
  static constexpr size_t kPassWords = sizeof(CommonMemory::Pass) / sizeof(uint64_t);
  struct ChannelEntry {
    alignas(kLine) Word ready;
    alignas(kLine) Number pass[kPassWords];
  };

  // Collective: returns when all ranks have arrived. DistError if some do not.
  Area(CommonMemory& memory, const BackendPlace& place);
  ~Area();
  Area(const Area&) = delete;
  Area& operator=(const Area&) = delete;

  CommonMemory& memory() const noexcept { return memory_; }
  int rank() const noexcept { return rank_; }
  int size() const noexcept { return size_; }

  ExchangeSlot& exchange_slot(int r, uint64_t number) const noexcept;
  ChannelEntry& channel_entry(int from, int to) const noexcept;
  // The chunk that a rank fills in a step, and the number of steps that it has done. A chunk is a multiple of kLine.
  char* chunk(int r, uint64_t step) const noexcept;
  size_t chunk_bytes() const noexcept { return chunk_bytes_; }
  Number& steps_done(int r) const noexcept { return at(r).steps_done; }

  // Call after writing something that that rank (all ranks) may wait for.
  void notify(int r) const noexcept;
  void notify_all() const noexcept;

  // Returns when ready() is true, which is polled often, on this thread only. `missing` returns the ranks that are
  // waited for. Throws DistError(Backend) where one of them has died or left (`any`: where all of them have left), and
  // where the group has failed.
  template <class Ready, class Missing>
  void until(const Wait& wait, Ready&& ready, Missing&& missing, bool any = false) const {
    if (ready()) return;
    for (const auto end = Clock::now() + spinning_; Clock::now() < end;) {
      for (int i = 0; i < 32; ++i) {
        if (ready()) return;
        pause();
      }
    }
    sleep_until(wait, std::ref(ready), std::ref(missing), any);
  }

  // Raises if one of these ranks has ended, with the failure that ended it if there was one.
  void raise_ended(const Wait& wait, const std::vector<int>& ranks, bool any) const;
  // Why one of these ranks (`any`: all of them) can make no more progress: it has died or left. Else empty.
  std::string ended(const std::vector<int>& ranks, bool any) const;

  // At the beginning of each call: throws where the group has failed, or belongs to the process that this one was
  // forked from.
  void enter(const Wait& wait) const {
    if (TG_UNLIKELY(header().failed.load(std::memory_order_relaxed) != 0 || failure_->is_set() ||
                    generation_ != fork_generation()))
      raise_failed(wait);
  }
  // Reports to the other ranks that this one has failed. Only the first report counts.
  void tell(const char* why) noexcept;
  // The same, and waiting calls of this process raise it, too.
  void abort(const std::string& why) noexcept;

 private:
  static constexpr size_t kWhyWords = 64;
  struct Header {
    uint64_t magic, nbytes;
    alignas(kLine) Word failed;  // the rank + 1
  };
  struct Rank {
    alignas(kLine) Word wakeups, sleepers;
    alignas(kLine) Number steps_done;
    alignas(kLine) Number mark;  // of its process; 0 until it has arrived
    Word left;
    alignas(kLine) Number why[kWhyWords];
  };

  Header& header() const noexcept { return *reinterpret_cast<Header*>(piece_.data); }
  Rank& at(int r) const noexcept;
  size_t lay_out() noexcept;
  void make(const BackendPlace& place, size_t nbytes);
  void join(const BackendPlace& place, size_t nbytes);
  void meet(const BackendPlace& place);
  void leave() noexcept;
  static void pause() noexcept;
  static void wake(Rank& rank) noexcept;
  void sleep_until(const Wait& wait, const std::function<bool()>& ready,
                   const std::function<std::vector<int>()>& missing, bool any) const;
  [[noreturn]] void raise_failed(const Wait& wait) const;
  std::string why(int r) const;

  CommonMemory& memory_;
  const int rank_, size_;
  size_t slots_at_ = 0, entries_at_ = 0, chunks_at_ = 0, chunk_bytes_ = 0;
  Piece piece_;
  std::vector<CommonMemory::Pass> passes_;  // that were given
  std::shared_ptr<Failure> failure_;
  std::vector<std::shared_ptr<Process>> processes_;  // null: this one
  std::chrono::nanoseconds spinning_{};
  const uint32_t generation_ = fork_generation();
  std::atomic<bool> told_{false};
};

}  // namespace tapegrad::distributed::local
