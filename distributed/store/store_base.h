// Common base of all stores: their process, their timeout, and how their threads wait.
#pragma once

#include <atomic>
#include <mutex>

#include "tapegrad/c10/threads/fork.h"
#include "tapegrad/distributed/store/store.h"
#include "tapegrad/distributed/wait.h"

namespace tapegrad::distributed {

// A deadline that never overflows.
Clock::time_point deadline_in(Milliseconds limit) noexcept;
std::string text_of(Milliseconds limit);  // "300 ms", "12.5 s"
// "a, b and 3 others"
std::string key_list(const std::vector<std::string>& keys);
// How long a thread sleeps before it checks for Ctrl-C and its deadline.
inline constexpr Milliseconds kSlice{50};

// The state of a store object besides its keys. close() may be called from any thread at any time.
class StoreState {
 protected:
  StoreState(const char* name, Milliseconds limit) : name_(name) { set_limit(limit); }
  ~StoreState() = default;
  bool in_its_process() const noexcept { return generation_ == fork_generation(); }
  bool is_closed() const noexcept { return closed_.load(std::memory_order_acquire); }
  // DistError(Store) in a forked child and once the store is closed. `op` for the message.
  void check_usable(const char* op) const;
  [[noreturn]] void fail_closed(const char* op) const;
  Milliseconds limit() const noexcept { return Milliseconds(limit_.load(std::memory_order_relaxed)); }
  void set_limit(Milliseconds limit);
  Milliseconds checked(const char* op, std::optional<Milliseconds> limit) const;  // Error(Value) for negative ones
  bool begin_close(const std::string& why) noexcept;                              // whether there is something to close

 private:
  const char* name_;
  const uint32_t generation_ = fork_generation();
  std::atomic<int64_t> limit_{0};
  std::atomic<bool> closed_{false};
  mutable std::mutex why_mutex_;
  std::string why_;
};

// Base of the stores that wait themselves.
template <class Interface>
class StoreBase : public Interface, protected StoreState {
 public:
  Milliseconds timeout() const override { return limit(); }
  void set_timeout(Milliseconds limit) override { set_limit(limit); }
  void close(const std::string& why) noexcept override {
    if (begin_close(why)) wake();
  }

 protected:
  StoreBase(const char* name, Milliseconds limit) : StoreState(name, limit) {}
  virtual void wake() noexcept = 0;  // waiting threads then check is_closed()
};

}  // namespace tapegrad::distributed
