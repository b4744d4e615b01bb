#include "tapegrad/aten/linalg/stoppable.h"

#include <stdlib.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/c10/threads/thread_pool.h"

namespace tapegrad::lapack::stoppable {
namespace {

constexpr double kLong = 5e8;  // operations: some 50 ms
constexpr std::chrono::milliseconds kPollInterval(20);

struct Shared {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false, abandoned = false;
  std::function<int()> run;
  int info = 0;
  std::exception_ptr error;
};

std::atomic<int> left_behind{0};
constexpr int kNotExiting = -1;
std::atomic<int> exit_status{kNotExiting};

// A thread that still computes must not see the library's memory go away when the process ends: OpenBLAS unmaps it in a
// destructor of its own. Ours runs before that one and after all handlers of exit(), whenever they were registered.
[[gnu::destructor]] void end_while_threads_compute() {
  if (left_behind.load() == 0 || exit_status.load() == kNotExiting) return;
  std::fflush(nullptr);
  _exit(exit_status.load());
}

}  // namespace

bool worth_it(double flops) {
  return flops > kLong && interrupt_hook.load(std::memory_order_relaxed) != nullptr && !detail::is_pool_thread();
}

int run_apart(std::function<int()> function) {
  static const int registered = on_exit([](int status, void*) { exit_status = status & 0xff; }, nullptr);
  static_cast<void>(registered);
  auto shared = std::make_shared<Shared>();
  shared->run = std::move(function);
  std::thread worker;
  try {
    worker = std::thread([shared] {
      int info = 0;
      std::exception_ptr error;
      try {
        info = shared->run();
      } catch (...) {
        error = std::current_exception();
      }
      shared->run = nullptr;  // frees the copies before the caller is notified
      std::lock_guard lock(shared->mutex);
      shared->info = info;
      shared->error = error;
      shared->done = true;
      if (shared->abandoned) --left_behind;
      shared->changed.notify_one();
    });
  } catch (const std::system_error&) {
    return shared->run();  // there is no thread to be had: better late to be stopped than refused
  }
  std::unique_lock lock(shared->mutex);
  try {
    while (!shared->changed.wait_for(lock, kPollInterval, [&] { return shared->done; })) check_interrupt();
  } catch (...) {
    shared->abandoned = true;
    ++left_behind;
    worker.detach();
    throw;
  }
  lock.unlock();
  worker.join();
  if (shared->error) std::rethrow_exception(shared->error);
  return shared->info;
}

}  // namespace tapegrad::lapack::stoppable
