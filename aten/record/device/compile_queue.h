// Compiles kernels of chains by a thread of its own, one after the other, while steps are replayed without them. The
// thread ends when nothing waits. It blocks all signals and touches nothing of the program: what is compiled comes as a
// function that owns all it needs, so that steps may go meanwhile.
//
// After a fork the child has an empty queue, and what it waits for never comes. All functions from any thread.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

#include "tapegrad/c10/macros.h"

namespace tapegrad::record {

class CompileJob {
 public:
  explicit CompileJob(std::function<void()> compile) : compile_(std::move(compile)) {}
  bool done() const noexcept { return done_.load(std::memory_order_acquire); }
  // Why it failed, or null; once it is done.
  const char* why() const noexcept { return failed_ ? why_.empty() ? "there is no memory" : why_.c_str() : nullptr; }
  void run() noexcept;  // by the thread of the queue

 private:
  std::function<void()> compile_;
  std::string why_;
  bool failed_ = false;
  std::atomic<bool> done_{false};
};

// False where too many wait, or no thread can be made. A job that nobody holds any more before its turn is dropped.
bool compile_later(const std::shared_ptr<CompileJob>& job);
// Waits until all are done, for tests and measurements.
TG_API void wait_for_compiling();
// At the end of the process, before the compiler's own exit handlers: drops what waits and waits for what is being
// compiled, 30 s at most.
TG_API void end_compiling() noexcept;

}  // namespace tapegrad::record
