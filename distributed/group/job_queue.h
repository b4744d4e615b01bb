// Runs jobs in order, on a thread of its own or, if no job is in progress, on the thread that submits one. The thread
// is started by the first job that needs it. Thread rules: any thread; drain() and the destructor not from a job.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "tapegrad/distributed/store/store.h"

namespace tapegrad::distributed {

class JobQueue {
 public:
  using Job = std::function<void(bool own_thread)>;

  ~JobQueue() { drain(); }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return jobs_.empty() && !busy_;
  }
  bool on_own_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }
  void run(Job job, bool may_run_here) {
    std::unique_lock lock(mutex_);
    if (may_run_here && !busy_ && jobs_.empty()) {
      busy_ = true;
      lock.unlock();
      job(false);
      lock.lock();
      busy_ = false;
      changed_.notify_all();
      return;
    }
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
    changed_.notify_all();
  }
  // Waits up to `limit` until no job is in progress; returns whether that is so.
  bool idle_within(Milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return jobs_.empty() && !busy_; });
  }
  // Waits until no job is in progress; the thread has then ended.
  void drain() {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
      ends_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !busy_ && (ends_ || !jobs_.empty()); });
      if (jobs_.empty()) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      job(true);
      job = nullptr;
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool busy_ = false, ends_ = false;
  std::thread thread_;
};

}  // namespace tapegrad::distributed
