// The interface between the layers above and a device that is implemented by a separate library (libtapegrad_cuda). The
// library is loaded, and registers its implementation, when the device is first used; nothing above links to it, and
// `import tapegrad` does not load it. Handles of streams, events and graphs are the device's own pointers as numbers;
// stream 0 is the default stream. Failures are raised as Error. All functions from any thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "tapegrad/c10/tensor/storage.h"

namespace tapegrad {

// Device memory between processes; multiprocessing/exchange.h counts who holds it. Handles have 64 bytes.
class TG_API DeviceSharing {
 public:
  virtual ~DeviceSharing();

  virtual void* allocate(int device, size_t nbytes) = 0;  // what other processes can open
  virtual void free(int device, void* p, int64_t event) noexcept = 0;
  // Copies all bytes after all work queued on any stream of the device, and waits. Raises Runtime for memory of a
  // graph, which would go on using the old address.
  virtual void copy_to(void* to, const StorageImpl& from) = 0;
  // The handle of the memory around p, and where in it p lies.
  virtual uint64_t export_handle(int device, const void* p, unsigned char* handle) = 0;
  // Records the event (created if it is 0) after the current stream's work and after whatever the event marked before,
  // and writes its handle. If no event can be created, waits and returns 0.
  virtual int64_t mark_sent(int device, int64_t event, unsigned char* handle) = 0;
  virtual void* open(int device, const unsigned char* handle, uint64_t offset) = 0;
  // Makes the current stream wait for an event of another process, or of this one.
  virtual void await_sent(int device, const unsigned char* handle) = 0;
  virtual void await_sent(int device, int64_t event) = 0;
  // Waits for all work of this process on opened memory; false if that failed.
  virtual bool settle(const void* p) noexcept = 0;
  virtual void close(const void* p) noexcept = 0;
};

// What a function of the table below is given and gives: nothing, a number (streams, events, graphs and addresses,
// too), text or bytes, or two numbers.
using DeviceValue = std::variant<std::monostate, bool, int64_t, double, std::string, std::pair<int64_t, int64_t>>;

class TG_API DeviceInterface {
 public:
  virtual ~DeviceInterface();

  virtual int count() noexcept = 0;
  virtual std::string unavailable_reason() = 0;  // one sentence; "" where there is a device
  virtual bool simulated() const noexcept = 0;
  virtual bool initialized() const noexcept = 0;  // whether memory or streams of any device were requested
  virtual int current() = 0;

  virtual int64_t current_stream(int device) = 0;
  virtual bool is_capturing(int device, int64_t stream) = 0;
  // What is queued on `later` from now on runs after what is queued on `first` now.
  virtual void order_streams(int device, int64_t first, int64_t later) = 0;

  virtual void note_use(const StorageImpl& storage, int64_t stream) = 0;
  virtual Storage allocate_pinned(size_t nbytes) = 0;  // host memory that the device can access
  virtual bool is_pinned(const void* p) = 0;
  virtual DeviceSharing& sharing() = 0;

  // What programs ask of the device through a language binding and tapegrad itself does not: properties, reports,
  // streams, events, graphs, options of the allocator, profilers. The device's library has a table of these functions
  // by name (cuda/functions.cpp), which says what each takes. Raises Value for a name that is not there, Type for other
  // arguments.
  virtual DeviceValue call(std::string_view function, std::span<const DeviceValue> arguments) = 0;
  DeviceValue call(std::string_view function, std::initializer_list<DeviceValue> arguments) {
    return call(function, std::span(arguments.begin(), arguments.size()));
  }
};

// The interface of a device type, whose library the first call loads; null if there is none, and then `device_why_not`
// gives the reason in one sentence. Does not raise.
TG_API DeviceInterface* device_interface(DeviceType type) noexcept;
TG_API std::string device_why_not(DeviceType type);
// Whether a library has been loaded already.
TG_API bool device_interface_loaded(DeviceType type) noexcept;
// As device_interface, but raises Runtime with that reason instead of returning null.
TG_API DeviceInterface& need_device(DeviceType type, const char* op);
// Called by the library when it is loaded.
TG_API void set_device_interface(DeviceType type, DeviceInterface* interface);

// Callbacks that the layers above give the libraries: the current call site (autograd/profiler/call_site.h), warnings,
// and garbage collection.
struct HostHooks {
  uint32_t (*site)() noexcept = nullptr;
  std::string (*describe_site)(uint32_t site) = nullptr;
  void (*warn)(const std::string& text) = nullptr;
  void (*collect)() = nullptr;  // frees garbage of the host language, before memory runs out
};
TG_API HostHooks& host_hooks() noexcept;

}  // namespace tapegrad
