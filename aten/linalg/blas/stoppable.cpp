#include "tapegrad/aten/linalg/blas/stoppable.h"

#include <chrono>
#include <condition_variable>
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
  bool done = false;
  std::function<int()> run;
  int info = 0;
  std::exception_ptr error;
};

}  // namespace

bool worth_it(double flops) {
  return flops > kLong && interrupt_hook.load(std::memory_order_relaxed) != nullptr && !detail::is_pool_thread();
}

int run_apart(std::function<int()> function) {
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
      shared->changed.notify_one();
    });
  } catch (const std::system_error&) {
    return shared->run();  // there is no thread to be had: better late to be stopped than refused
  }
  std::unique_lock lock(shared->mutex);
  try {
    while (!shared->changed.wait_for(lock, kPollInterval, [&] { return shared->done; })) check_interrupt();
  } catch (...) {
    worker.detach();
    throw;
  }
  lock.unlock();
  worker.join();
  if (shared->error) std::rethrow_exception(shared->error);
  return shared->info;
}

}  // namespace tapegrad::lapack::stoppable
