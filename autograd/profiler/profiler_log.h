// The log of one thread while a profiler runs: events and the shapes of their arguments, in blocks that never move.
//
// The owner writes without a lock: it fills an event, then publishes the count. Another thread may read meanwhile (it
// stops the session): it sees the events that are published, each either open (`end` is -1) or complete. Times are
// ticks of the processor's counter, which takes a third of the time of a system clock; they become nanoseconds in
// `read`.
#pragma once

#include <array>
#include <atomic>
#include <cstring>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "tapegrad/autograd/profiler/profiler.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tapegrad::autograd::profiler {

int64_t steady_ns() noexcept;
// Whether the processor's counter runs at one rate on all cores, so that its readings are times.
bool counter_is_steady() noexcept;
extern bool use_counter;  // set once, before the first session

inline int64_t ticks() noexcept {
#if defined(__x86_64__)
  if (TG_LIKELY(use_counter)) return static_cast<int64_t>(__rdtsc());
#elif defined(__aarch64__)
  if (TG_LIKELY(use_counter)) {
    int64_t count;
    asm volatile("mrs %0, cntvct_el0" : "=r"(count));
    return count;
  }
#endif
  return steady_ns();
}

// Nanoseconds of the steady clock by ticks: two readings of both, at the begin and the end of a session.
class TickScale {
 public:
  void begin() noexcept { first_ = read(); }
  void end() noexcept;  // waits until a tenth of a millisecond has passed since begin()
  int64_t ns(int64_t tick) const noexcept {
    return first_.ns + static_cast<int64_t>(static_cast<double>(tick - first_.tick) * ns_per_tick_);
  }

 private:
  struct Reading {
    int64_t tick = 0, ns = 0;
  };
  static Reading read() noexcept;
  Reading first_;
  double ns_per_tick_ = 1.0;
};

// Memory for events: a huge page where the kernel has them, all of it touched beforehand. (Measured: the first touch of
// an ordinary page costs as much as writing the 64 events that it holds twenty times; a huge page a tenth of that.)
struct EventBlock {
  static constexpr size_t kBytes = size_t{2} << 20;
  static constexpr uint32_t kEvents = kBytes / sizeof(Event);
  Event* events = nullptr;
  std::atomic<EventBlock*> next{nullptr};
};

// Descriptions of arguments. `base` numbers lie in the blocks before.
struct InputBlock {
  explicit InputBlock(size_t n) : numbers(new int64_t[n]), capacity(n) {}
  std::unique_ptr<int64_t[]> numbers;
  size_t capacity;
  uint64_t base = 0;
  std::atomic<uint64_t> used{0};
  std::atomic<InputBlock*> next{nullptr};
};

class Log {
 public:
  static constexpr size_t kInputsPerBlock = 4096;
  static constexpr size_t kMostEvents = size_t{1} << 24;  // 1 GB; later events are only counted

  Log(uint64_t session, Options options);
  ~Log();
  Log(const Log&) = delete;
  Log& operator=(const Log&) = delete;

  const uint64_t session;
  const Options options;
  const uint64_t thread;

  // Opens an event: its index, or kNone when none is taken.
  uint32_t begin(Kind kind, const char* name, int64_t sequence, uint32_t extra, const dispatch::Arguments* inputs);
  void finish(uint32_t at) noexcept;
  // A copy of a name that lives as long as the log.
  const char* keep(std::string_view name);
  // What has been published so far, in nanoseconds; open events end at `now` (ticks). From any thread.
  void read(ThreadRecord& into, const TickScale& scale, int64_t now) const;

 private:
  static_assert(sizeof(Event) == 64, "an event is one cache line");

  Event* slot(uint32_t at) const noexcept { return blocks_[at / EventBlock::kEvents] + at % EventBlock::kEvents; }
  void add_event_block();
  uint32_t append_inputs(const std::vector<int64_t>& numbers);
  uint32_t note_inputs(dispatch::Arguments inputs);
  void grow_table();

  // The owner's.
  std::vector<Event*> blocks_;
  std::vector<uint32_t> open_;
  uint32_t count_ = 0;
  EventBlock* last_events_ = nullptr;
  InputBlock* last_inputs_ = nullptr;
  // Every description is stored once: a training loop calls operators with the same shapes again and again.
  struct Noted {
    const int64_t* numbers = nullptr;
    uint32_t size = 0;
    uint32_t at = 0;
    uint64_t hash = 0;
  };
  std::vector<int64_t> scratch_;
  std::vector<Noted> table_{512};  // open addressing
  size_t noted_ = 0;
  std::unordered_set<std::string> names_;  // addresses stay
  struct Known {
    const char* given = nullptr;
    size_t size = 0;
    const char* kept = nullptr;
  };
  std::array<Known, 64> known_{};  // by address; the text is compared, as addresses are reused

  // For readers, too.
  std::atomic<EventBlock*> first_events_{nullptr};
  std::atomic<InputBlock*> first_inputs_{nullptr};
  std::atomic<uint32_t> published_{0};
  std::atomic<uint64_t> dropped_{0};
};

}  // namespace tapegrad::autograd::profiler
