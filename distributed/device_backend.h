// An engine for memory of devices: NCCL. It does not fit Backend (backend.h), which moves bytes of the host and blocks:
// here a call is queued on a stream of the engine's own, behind a mark in the caller's stream, and gives a mark behind
// it that other streams wait for; nobody on the host waits for data. The group compares what all ranks ask for through
// its host engine first, and the ranks of a communicator find each other through it, too.
//
// The engine is in the library of the device (cuda/nccl/), which registers it when it is loaded. Thread rules: run() of
// one communicator by one thread at a time; all else from any thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/storage.h"
#include "tapegrad/distributed/backend.h"

namespace tapegrad::distributed {

// A place in a stream of a device.
class TG_API DeviceMark {
 public:
  virtual ~DeviceMark();
  // The calling thread's current stream goes on behind it; the host does not wait. DistError when the group has failed.
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
  std::vector<int> others;                           // by their numbers in the group, for messages
  std::function<void(void* bytes, size_t n)> share;  // bytes of its first rank to all; when the communicator is made
  std::shared_ptr<DeviceMark> after;                 // what the work waits for
  std::vector<Storage> storages;                     // kept until the device is done
};

struct DevicePlace {
  std::shared_ptr<Failure> failure;
  // Tells of a failure that the engine sees by itself, on a thread of its own: the group ends, here and elsewhere.
  std::function<void(const std::string& why)> give_up;
};

class TG_API DeviceBackend {
 public:
  DeviceBackend() = default;
  virtual ~DeviceBackend();  // gives up what is under way
  DeviceBackend(const DeviceBackend&) = delete;
  DeviceBackend& operator=(const DeviceBackend&) = delete;

  virtual const char* name() const noexcept = 0;
  // Error(Value), Error(Type) for reductions that the engine has not.
  virtual void check_reduce(const char* op, DType dtype, Reduce reduce) const = 0;
  // Behind all that the calling thread's current stream has been given. Error(Runtime) during a capture.
  virtual std::shared_ptr<DeviceMark> mark(const char* op, Device device) = 0;
  // Makes the communicator where it is not there, with its stream current runs `body`, which queues work on it, and
  // marks the end. The host waits for other ranks' hosts, until the deadline; from then on the work's time counts.
  virtual std::shared_ptr<DeviceMark> run(const DeviceJob& job, const Wait& wait,
                                          const std::function<void(DeviceQueue&)>& body) = 0;
  virtual bool idle() = 0;
  // Whoever waits in run() leaves, and the device gives up what was queued.
  virtual void abort(const std::string& why) noexcept = 0;
};

enum class Kind : uint8_t;  // group/group.h

// What the device's library registers.
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
// Collectives that cuda.nccl asks for, one thread for all devices: in[i] and out[i] are on device i; Reduce has the
// root's output alone, Broadcast none. On the devices' current streams. Error(Value), Error(Type) before anything is
// written.
TG_API void among_devices(Kind kind, const std::vector<Tensor>& in, const std::vector<Tensor>& out, Reduce reduce,
                          int root);

}  // namespace tapegrad::distributed
