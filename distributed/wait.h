// How long a rank waits for others, and what ends the wait: the deadline, a failure reported by another rank, or
// Ctrl-C. Engines poll it in their waiting loops; the group creates one for each call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tapegrad/distributed/errors.h"

namespace tapegrad::distributed {

using Clock = std::chrono::steady_clock;

// Set once, when a group cannot go on. Shared by all who wait in it; any thread.
class TG_API Failure {
 public:
  bool is_set() const noexcept {
    const int64_t from = from_.load(std::memory_order_acquire);
    return from != kNever && Clock::now().time_since_epoch().count() >= from;
  }
  // Only the first failure counts. `grace`: it takes effect after that time, for ranks that leave in order while others
  // still read what they sent.
  void set(const std::string& why, std::chrono::milliseconds grace = {}) noexcept;
  std::string why() const;
  void raise_if_set() const;  // DistError(Backend)

 private:
  static constexpr int64_t kNever = INT64_MAX;
  std::atomic<int64_t> from_{kNever};  // ticks of Clock
  mutable std::mutex mutex_;
  std::string why_;
};

// "rank 3", "ranks 1, 2 and 60 others".
TG_API std::string rank_list(const std::vector<int>& ranks);

struct Wait {
  Clock::time_point deadline = Clock::time_point::max();
  const Failure* failure = nullptr;
  bool may_be_interrupted = false;  // the caller's own thread: checks for Ctrl-C
  // After this time, and each time the same time again, a line on stderr names the missing ranks.
  std::chrono::milliseconds patience{10'000};
  std::function<std::string(const std::vector<int>&)> describe = rank_list;  // with the lines at which they are
  // Called with the missing ranks, after half a second and then at growing intervals. May throw.
  std::function<void(const Wait&, const std::vector<int>&)> ask;
  std::string what;  // "all_reduce #12 (train.py:31)", for messages

  // To be called every 1 to 50 ms while waiting. Throws DistError(Backend) at the deadline and when the group has
  // failed, Error(Interrupt) after Ctrl-C. `missing` names the ranks that are waited for.
  TG_API void poll(Clock::time_point since, const std::function<std::vector<int>()>& missing) const;

  mutable double told = 0;  // seconds of waiting after which that line was last written
  mutable Clock::time_point asked{};
  mutable std::chrono::milliseconds pause{500};
};

}  // namespace tapegrad::distributed
