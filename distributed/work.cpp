#include "tapegrad/distributed/work.h"

#include "tapegrad/c10/parallel.h"

namespace tapegrad::distributed {

bool Work::is_completed() const {
  const std::lock_guard lock(mutex_);
  return done_;
}

bool Work::wait(std::optional<std::chrono::milliseconds> limit) {
  std::unique_lock lock(mutex_);
  if (!done_) {
    lock.unlock();
    const BlockingRegion others_run;
    const auto until = limit ? Clock::now() + *limit : Clock::time_point::max();
    lock.lock();
    while (!done_) {
      // In slices, because a signal handler of Python runs on this thread only when it is asked about.
      changed_.wait_until(lock, std::min(until, Clock::now() + std::chrono::milliseconds(20)));
      if (done_) break;
      if (Clock::now() >= until) return false;
      lock.unlock();
      check_interrupt();
      lock.lock();
    }
  }
  const std::exception_ptr failed = failed_;
  lock.unlock();
  if (failed) std::rethrow_exception(failed);
  return true;
}

std::exception_ptr Work::exception() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

int Work::source() const {
  const std::lock_guard lock(mutex_);
  return source_;
}

void Work::then(std::function<void()> f) {
  {
    const std::lock_guard lock(mutex_);
    if (!done_) {
      then_.push_back(std::move(f));
      return;
    }
  }
  f();
}

void Work::finish(std::exception_ptr failed, int source) noexcept {
  std::vector<std::function<void()>> then;
  {
    const std::lock_guard lock(mutex_);
    failed_ = std::move(failed);
    source_ = source;
    done_ = true;
    then.swap(then_);
    changed_.notify_all();
  }
  for (const auto& f : then) f();
}

}  // namespace tapegrad::distributed
