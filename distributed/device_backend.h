// An engine for memory of devices: NCCL. It does not fit Backend (backend.h), which moves bytes of the host and blocks:
// here a call is queued on a stream of the engine, after a mark in the caller's stream, and returns a mark of its end
// on which other streams wait; the host does not wait for data. The group first verifies through its host engine that
// all ranks make the same call; the ranks of a communicator also find each other through that engine.
//
// The engine is part of the device's library (cuda/nccl/), which registers it when it is loaded. Thread rules: run() of
// one communicator by one thread at a time; all else from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/tensor/storage.h"
#include "tapegrad/distributed/backend.h"

namespace tapegrad::distributed {

// A point in a stream of a device (like a CUDA event).
class TG_API DeviceMark {
 public:
  virtual ~DeviceMark();
  // Makes the calling thread's current stream wait for it; the host does not wait. DistError if the group has failed.
  virtual void wait() = 0;
  virtual bool reached() = 0;
};

// Queues work of one communicator on its stream; numbers of ranks are those in the communicator.
class TG_API DeviceQueue : public Collectives {
 public:
  virtual void send(ConstBytes data, int peer, const Wait& wait) = 0;
  virtual void recv(Bytes data, int peer, const Wait& wait) = 0;
};

struct DeviceJob {
  Device device;
  std::string members;  // which communicator of the group: empty for all ranks
  int rank = 0, size = 1;
  std::vector<int> others;  // by their numbers in the group, for messages
  std::function<void(void* bytes, size_t n)>
      share;                          // broadcasts bytes of its first rank; used when the communicator is created
  std::shared_ptr<DeviceMark> after;  // what the work waits for
  std::vector<Storage> storages;      // kept until the device is done
};

struct DevicePlace {
  std::shared_ptr<Failure> failure;
  // Called on a thread of the engine when it detects a failure: the group then fails on all ranks.
  std::function<void(const std::string& why)> give_up;
};

class TG_API DeviceBackend {
 public:
  DeviceBackend() = default;
  virtual ~DeviceBackend();  // abandons work in progress
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  virtual const char* name() const noexcept = 0;
  // Error(Value), Error(Type) for reductions that the engine does not support.
  virtual void check_reduce(const char* op, DType dtype, Reduce reduce) const = 0;
  // A mark after all work queued so far on the calling thread's current stream. Error(Runtime) during a capture.
  virtual std::shared_ptr<DeviceMark> mark(const char* op, Device device) = 0;
  // Creates the communicator if needed, runs `body`, which queues work, with the communicator's stream as the current
  // one, and marks the end. The host waits for the other ranks' hosts until the deadline; then the time limit of the
  // queued work begins.
  virtual std::shared_ptr<DeviceMark> run(const DeviceJob& job, const Wait& wait,
                                          const std::function<void(DeviceQueue&)>& body) = 0;
  virtual bool idle() = 0;
  // Calls waiting in run() end, and the device abandons queued work.
  virtual void abort(const std::string& why) noexcept = 0;
};

enum class Kind : uint8_t;  // group/group.h

// Registered by the device's library.
struct DeviceEngine {
  std::string (*why_not)() = nullptr;  // one sentence; "" where it can be used
  std::unique_ptr<DeviceBackend> (*make)(DevicePlace) = nullptr;
  // A collective among devices of this process: in[i] and out[i] are device i's (cuda/nccl/local.h).
  void (*among_devices)(Kind kind, const std::vector<Tensor>& in, const std::vector<Tensor>& out, Reduce reduce,
                        int root) = nullptr;
};
TG_API void set_device_engine(const DeviceEngine* engine);
// Both load the device's library.
TG_API std::string device_engine_why_not();
TG_API std::unique_ptr<DeviceBackend> make_device_backend(DevicePlace place);  // DistError(Backend) with that sentence
TG_API const DeviceEngine& device_engine();                                    // the same
// Collectives of cuda.nccl, called by one thread for all devices: in[i] and out[i] are on device i; Reduce has the
// root's output alone, Broadcast none. On the devices' current streams. Error(Value), Error(Type) before anything is
// written.
TG_API void among_devices(Kind kind, const std::vector<Tensor>& in, const std::vector<Tensor>& out, Reduce reduce,
                          int root);

}  // namespace tapegrad::distributed
