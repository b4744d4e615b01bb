#include "tapegrad/aten/record/device/compile_queue.h"

#include <pthread.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/threads/fork.h"

namespace tapegrad::record {

namespace {

constexpr size_t kMostWaiting = 256;

struct Queue {
  const uint32_t generation = fork_generation();
  std::mutex mutex;
  std::condition_variable idle;
  std::deque<std::weak_ptr<CompileJob>> waiting;
  bool running = false;
};
std::atomic<Queue*> current{nullptr};

// That of this process, or null.
Queue* known_queue() noexcept {
  Queue* q = current.load(std::memory_order_acquire);
  return q != nullptr && q->generation == fork_generation() ? q : nullptr;
}

Queue& queue() {
  if (Queue* known = known_queue()) return *known;
  static ForkSafeLock lock;
  const std::lock_guard guard(lock);
  if (Queue* known = known_queue()) return *known;
  auto* made = new Queue;  // a parent's is abandoned: another thread may have held its mutex
  current.store(made, std::memory_order_release);
  return *made;
}

void work(Queue& q) {
  std::unique_lock held(q.mutex);
  while (!q.waiting.empty()) {
    std::shared_ptr<CompileJob> job = q.waiting.front().lock();
    q.waiting.pop_front();
    if (!job) continue;
    held.unlock();
    job->run();
    job.reset();
    // Ahead of the exit handlers that the compiler has registered, where the process ends without the interpreter's.
    static const int registered = std::atexit(end_compiling);
    (void)registered;
    held.lock();
  }
  q.running = false;
  q.idle.notify_all();
}

bool start_thread(Queue& q) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool made = true;
  try {
    std::thread([&q] { work(q); }).detach();
  } catch (const std::system_error&) {
    made = false;
  } catch (const std::bad_alloc&) {
    made = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return made;
}

}  // namespace

void CompileJob::run() noexcept {
  const auto fails = [&](std::string_view why) {
    failed_ = true;
    try {
      why_ = why.substr(0, why.find('\n'));
    } catch (const std::bad_alloc&) {  // "there is no memory" is what remains
    }
  };
  try {
    compile_();
  } catch (const std::bad_alloc&) {
    fails("");
  } catch (const std::exception& e) {
    fails(e.what());
  } catch (...) {
    fails("it was given up");
  }
  try {
    compile_ = nullptr;
  } catch (...) {
  }
  done_.store(true, std::memory_order_release);
}

bool compile_later(const std::shared_ptr<CompileJob>& job) {
  Queue& q = queue();
  const std::lock_guard held(q.mutex);
  if (q.waiting.size() >= kMostWaiting) std::erase_if(q.waiting, [](const auto& each) { return each.expired(); });
  if (q.waiting.size() >= kMostWaiting) return false;
  q.waiting.push_back(job);
  if (!q.running) q.running = start_thread(q);
  if (!q.running) q.waiting.pop_back();
  return q.running;
}

void wait_for_compiling() {
  if (Queue* q = known_queue()) {
    std::unique_lock held(q->mutex);
    q->idle.wait(held, [&] { return !q->running; });
  }
}

void end_compiling() noexcept {
  Queue* q = known_queue();
  if (q == nullptr) return;
  try {
    std::unique_lock held(q->mutex);
    q->waiting.clear();
    q->idle.wait_for(held, std::chrono::seconds(30), [&] { return !q->running; });
  } catch (...) {  // there is no memory for that
  }
}

}  // namespace tapegrad::record
