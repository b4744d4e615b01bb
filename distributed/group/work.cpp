#include "tapegrad/distributed/group/work.h"

#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::distributed {

bool Work::is_completed() const {
  std::unique_lock lock(mutex_);
  if (!done_ || failed_ || !end_) return done_;
  const std::shared_ptr<DeviceMark> end = end_;
  lock.unlock();
  return end->reached();
}

bool Work::wait(std::optional<std::chrono::milliseconds> limit) {
  std::unique_lock lock(mutex_);
  if (!done_) {
    lock.unlock();
    const BlockingRegion others_run;
    const auto until = limit ? Clock::now() + *limit : Clock::time_point::max();
    lock.lock();
    while (!done_) {
      // In slices, because a Python signal handler runs on this thread only when signals are checked.
      changed_.wait_until(lock, std::min(until, Clock::now() + std::chrono::milliseconds(20)));
      if (done_) break;
      if (Clock::now() >= until) return false;
      lock.unlock();
      check_interrupt();
      lock.lock();
    }
  }
  const std::exception_ptr failed = failed_;
  const std::shared_ptr<DeviceMark> end = end_;
  lock.unlock();
  if (failed) std::rethrow_exception(failed);
  if (end) end->wait();
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
  follow();
  f();
}

// What is called next may use the results.
void Work::follow() noexcept {
  try {
    if (end_ && !failed_) end_->wait();
  } catch (const std::exception&) {  // the group has failed: waiters of the call get the error
  }
}

void Work::set_end(std::shared_ptr<DeviceMark> end) {
  const std::lock_guard lock(mutex_);
  end_ = std::move(end);
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
  if (!then.empty()) follow();
  for (const auto& f : then) f();
}

}  // namespace tapegrad::distributed
