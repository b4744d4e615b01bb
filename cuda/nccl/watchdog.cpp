#include "tapegrad/cuda/nccl/watchdog.h"

#include <algorithm>

#include "tapegrad/cuda/runtime/wait.h"

namespace tapegrad::cuda::nccl_api {

using distributed::Clock;

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
    changed_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

void Watchdog::add(Task task) {
  const std::lock_guard lock(mutex_);
  tasks_.push_back(std::move(task));
  if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
  changed_.notify_all();
}

bool Watchdog::idle() {
  const std::lock_guard lock(mutex_);
  return tasks_.empty();
}

void Watchdog::give_up(const std::string& why) noexcept {
  std::vector<Task> left;
  {
    const std::lock_guard lock(mutex_);
    left.swap(tasks_);
    changed_.notify_all();
  }
  for (const Task& task : left) task.communicator->abort();
  try {
    if (!left.empty()) note_lost_work(fmt::format("{}: {}", left.front().what, why));
  } catch (const std::bad_alloc&) {  // without words, then
  }
}

std::string Watchdog::look(Task& task, bool& done) try {
  done = task.end->reached();
  if (done) return "";
  std::string text = task.communicator->failure();
  if (text.empty() && Clock::now() >= task.deadline)
    text = fmt::format("the device has not done it within {:.1f} s",
                       std::chrono::duration<double>(task.deadline - task.since).count());
  return text.empty() ? "" : fmt::format("{}: {}", task.what, text);
} catch (const std::exception& e) {  // the device itself
  return fmt::format("{}: {}", task.what, e.what());
}

void Watchdog::loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return ends_ || !tasks_.empty(); });
    if (ends_) return;
    std::vector<Task> mine = tasks_;
    lock.unlock();
    std::vector<std::shared_ptr<distributed::DeviceMark>> finished;
    std::string wrong;
    for (Task& task : mine) {
      bool done = false;
      wrong = look(task, done);
      if (done) finished.push_back(task.end);
      if (!wrong.empty()) break;
    }
    if (place_.failure->is_set())
      give_up(place_.failure->why());
    else if (!wrong.empty())
      place_.give_up(wrong);  // and with it all communicators of the group
    mine.clear();
    std::vector<Task> gone;  // memory is freed without the lock
    lock.lock();
    for (Task& task : tasks_)
      if (std::ranges::find(finished, task.end) != finished.end()) gone.push_back(std::move(task));
    std::erase_if(tasks_, [](const Task& task) { return task.end == nullptr; });
    lock.unlock();
    gone.clear();
    lock.lock();
    changed_.wait_for(lock, std::chrono::milliseconds(5), [this] { return ends_; });
  }
}

}  // namespace tapegrad::cuda::nccl_api
