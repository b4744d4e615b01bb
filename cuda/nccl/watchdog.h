// Monitors queued work: a thread that drops finished work and, if work exceeds its time limit, NCCL reports an error or
// the group has failed, aborts the communicators, so that no stream waits forever.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tapegrad/c10/tensor/storage.h"
#include "tapegrad/cuda/nccl/communicator.h"
#include "tapegrad/distributed/device_backend.h"

namespace tapegrad::cuda::nccl_api {

class Watchdog {
 public:
  explicit Watchdog(distributed::DevicePlace place) : place_(std::move(place)) {}
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  struct Task {
    std::shared_ptr<Communicator> communicator;
    std::shared_ptr<distributed::DeviceMark> end;
    std::vector<Storage> storages;
    distributed::Clock::time_point since, deadline;
    std::string what;
  };
  void add(Task task);
  bool idle();
  // Aborts the communicators of all tasks. Their results on the device are invalid, so the next wait for the device
  // raises.
  void give_up(const std::string& why) noexcept;

 private:
  void loop();
  std::string look(Task& task, bool& done);  // the error, or ""

  const distributed::DevicePlace place_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Task> tasks_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace tapegrad::cuda::nccl_api
