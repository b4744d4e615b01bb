// One rank's communicator, in non-blocking mode: each call is polled until it is done, under a deadline, so that
// missing ranks, failures elsewhere and Ctrl-C end the wait. It is never finalised, since that may block: the
// destructor aborts. Calls from one thread at a time; state() and abort() from any.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tapegrad/cuda/nccl/api.h"
#include "tapegrad/cuda/runtime/stream.h"
#include "tapegrad/distributed/wait.h"

namespace tapegrad::cuda::nccl_api {

inline bool is_failure(Result r) { return r != kSuccess && r != kInProgress; }

// Several functions as one, between ncclGroupStart and ncclGroupEnd.
template <class F>
Result grouped(const Functions& api, F&& f) {
  const Result started = api.group_start();
  if (is_failure(started)) return started;
  Result inside = kSuccess;
  try {
    inside = f();
  } catch (...) {
    (void)api.group_end();
    throw;
  }
  const Result ended = api.group_end();
  return is_failure(inside) ? inside : ended;
}

class Communicator {
 public:
  // Starts to connect, on the device; await() waits until it is done.
  Communicator(const Functions& api, int device, int size, const UniqueId& id, int rank);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int device() const noexcept { return device_; }
  int size() const noexcept { return size_; }
  int rank() const noexcept { return rank_; }
  const Functions& api() const noexcept { return api_; }
  Stream stream() const noexcept {
    return stream_;
  }  // owned; reused by the next communicator when this one is destroyed

  // Calls f(handle) -> Result and waits until NCCL has done its part on the host. DistError(Backend) with NCCL's
  // message.
  using Missing = std::function<std::vector<int>()>;
  void call(const char* name, const distributed::Wait& wait, const Missing& missing,
            const std::function<Result(Handle)>& f);
  void await(const char* name, const distributed::Wait& wait, const Missing& missing);
  // Only calls f(handle): within a group of calls, whose end is awaited.
  Result give(const std::function<Result(Handle)>& f);

  std::string failure();  // the asynchronous error of queued work; "" if there is none
  void abort() noexcept;

 private:
  std::string describe(const char* name, Result result) const;  // locked

  const Functions& api_;
  const int device_, size_, rank_;
  Stream stream_;
  std::mutex mutex_;
  Handle handle_ = nullptr;  // null once it was aborted
};

// The unique id of a new communicator.
UniqueId new_id(const Functions& api);

}  // namespace tapegrad::cuda::nccl_api
