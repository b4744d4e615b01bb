// The state of a collective call: done, in progress or failed. Reference counted; any thread. Where its tensors are on
// a device, wait() waits for the call to be queued there and lets the calling thread's current stream wait for the
// rest.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/distributed/device_backend.h"
#include "tapegrad/distributed/wait.h"

namespace tapegrad::distributed {

class TG_API Work {
 public:
  bool is_completed() const;
  // Waits for the end and rethrows the call's exception. False if `limit` has passed (without a limit, the group's
  // deadline ends the wait). Ctrl-C ends the wait with Error(Interrupt); the call goes on.
  bool wait(std::optional<std::chrono::milliseconds> limit = {});
  std::exception_ptr exception() const;  // null: none, or not done
  const std::vector<Tensor>& result() const noexcept { return result_; }
  int source() const;  // of a receive from any rank, once it is done
  // Registers a callback that is called when the work is done, on the thread that completes it, or at once if it is
  // already done. It must not throw.
  void then(std::function<void()> f);

  void set_end(std::shared_ptr<DeviceMark> end);                     // on the device; by the group, before finish()
  void finish(std::exception_ptr failed, int source = -1) noexcept;  // by the group
  explicit Work(std::vector<Tensor> result) : result_(std::move(result)) {}

 private:
  void follow() noexcept;  // once it is done
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  bool done_ = false;
  int source_ = -1;
  std::exception_ptr failed_;
  std::shared_ptr<DeviceMark> end_;
  std::vector<std::function<void()>> then_;
  std::vector<Tensor> result_;
};

}  // namespace tapegrad::distributed
