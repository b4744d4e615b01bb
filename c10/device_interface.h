// The interface between the layers above and a device that is implemented by a separate library (libtapegrad_cuda). The
// library is loaded, and registers its implementation, when the device is first used; nothing above links to it, and
// `import tapegrad` does not load it. Handles of streams, events and graphs are the device's own pointers as numbers;
// stream 0 is the default stream. Failures are raised as Error. All functions from any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "tapegrad/c10/storage.h"

namespace tapegrad {

class TG_API DeviceInterface {
 public:
  virtual ~DeviceInterface();

  // --- devices ---
  virtual int count() noexcept = 0;
  virtual std::string unavailable_reason() = 0;  // one sentence; "" where there is a device
  virtual bool simulated() const noexcept = 0;
  virtual bool initialized() const noexcept = 0;  // whether memory or streams of any device were requested
  virtual int current() = 0;
  virtual void set_current(int device) = 0;
  virtual void synchronize(int device) = 0;
  virtual bool can_access_peer(int device, int peer) = 0;
  // Facts as JSON: "properties", "memory_stats", "snapshot", "host_memory_stats", "versions", "libraries".
  virtual std::string report(std::string_view what, int device) = 0;

  // --- streams and events ---
  virtual int64_t current_stream(int device) = 0;
  virtual void set_current_stream(int device, int64_t stream) = 0;
  virtual int64_t new_stream(int device, int priority) = 0;
  virtual int stream_priority(int device, int64_t stream) = 0;
  virtual std::pair<int, int> priority_range() = 0;  // least, greatest
  virtual bool query_stream(int device, int64_t stream) = 0;
  virtual void synchronize_stream(int device, int64_t stream) = 0;
  virtual void stream_wait_event(int device, int64_t stream, int64_t event) = 0;
  virtual int64_t create_event(int device, bool timing, bool blocking, bool interprocess) = 0;
  virtual void destroy_event(int64_t event) noexcept = 0;
  virtual void record_event(int device, int64_t event, int64_t stream) = 0;
  virtual bool query_event(int64_t event) = 0;
  virtual void synchronize_event(int64_t event) = 0;
  virtual double elapsed_ms(int64_t start, int64_t end) = 0;
  virtual std::string event_ipc_handle(int64_t event) = 0;  // 64 bytes
  virtual int64_t open_event(int device, std::string_view handle) = 0;

  // --- memory ---
  virtual void empty_cache() = 0;
  virtual void reset_peak(int device) = 0;
  virtual void reset_accumulated(int device) = 0;
  virtual std::pair<uint64_t, uint64_t> memory_info(int device) = 0;  // free, total
  virtual double memory_fraction(int device) = 0;
  virtual void set_memory_fraction(int device, double fraction) = 0;
  virtual uint64_t allocate_raw(int device, uint64_t nbytes, int64_t stream) = 0;
  virtual void free_raw(uint64_t address) = 0;
  virtual void note_use(const StorageImpl& storage, int64_t stream) = 0;
  virtual int device_of(uint64_t address) = 0;            // on which device it lies; -1: on none
  virtual void record_history(uint64_t most_events) = 0;  // for snapshots; 0: off
  virtual void set_option(std::string_view name, std::string_view value) = 0;

  // --- memory between processes; multiprocessing/exchange.h counts who holds it. Handles have 64 bytes ---
  virtual void* allocate_shared(int device, size_t nbytes) = 0;  // what other processes can open
  virtual void free_shared(int device, void* p, int64_t event) noexcept = 0;
  virtual void copy_to_shared(void* to, const StorageImpl& from) = 0;  // after all work of the device; waits
  // The handle of the memory around p, and where in it p lies.
  virtual uint64_t export_shared(int device, const void* p, unsigned char* handle) = 0;
  // Records the event (created if it is 0) after the current stream's work and after whatever the event marked before.
  // If no event can be created, waits and returns 0.
  virtual int64_t mark_sent(int device, int64_t event) = 0;
  virtual void* open_shared(int device, const unsigned char* handle, uint64_t offset) = 0;
  // Makes the current stream wait for the sender's event.
  virtual void await_sent(int device, const unsigned char* event) = 0;
  // Waits for all work of this process on opened memory; false if that failed.
  virtual bool settle_shared(const void* p) noexcept = 0;
  virtual void close_shared(const void* p) noexcept = 0;

  // --- host memory that the device can access ---
  virtual Storage allocate_pinned(size_t nbytes) = 0;
  virtual bool is_pinned(const void* p) = 0;
  virtual void empty_pinned_cache() = 0;
  virtual void register_pinned(void* p, size_t nbytes) = 0;
  virtual void unregister_pinned(void* p) = 0;

  // --- graphs; a pool is a number that separates the memory of captures ---
  virtual uint64_t new_pool() = 0;
  virtual void use_pool(int device, uint64_t pool, bool only_this_thread) = 0;  // until end_pool
  virtual void end_pool(int device, uint64_t pool) = 0;
  virtual void retain_pool(int device, uint64_t pool) = 0;
  virtual void release_pool(int device, uint64_t pool) = 0;
  virtual void begin_capture(int device, int64_t stream, uint64_t pool, const std::string& mode) = 0;
  virtual int64_t end_capture(int device, int64_t stream, uint64_t pool) = 0;  // a graph
  virtual bool is_capturing(int device, int64_t stream) = 0;
  virtual int64_t instantiate(int64_t graph) = 0;
  virtual void launch_graph(int device, int64_t exec, int64_t stream) = 0;
  virtual std::string graph_dot(int64_t graph) = 0;
  virtual void destroy_graph(int64_t graph) noexcept = 0;
  virtual void destroy_graph_exec(int64_t exec) noexcept = 0;

  // --- waiting and profiling ---
  virtual void set_wait_mode(int mode) = 0;  // when host code waits for a value: 0 nothing, 1 warns, 2 raises
  virtual int wait_mode() const noexcept = 0;
  virtual void mark(int what, const char* text, uint64_t* id) = 0;  // nvtx: 0 mark, 1 push, 2 pop, 3 start, 4 end
  virtual void profiler(bool on) = 0;
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

// Callbacks that the layers above give the libraries: the current call site (autograd/call_site.h), warnings, and
// garbage collection.
struct HostHooks {
  uint32_t (*site)() noexcept = nullptr;
  std::string (*describe_site)(uint32_t site) = nullptr;
  void (*warn)(const std::string& text) = nullptr;
  void (*collect)() = nullptr;  // frees garbage of the host language, before memory runs out
};
TG_API HostHooks& host_hooks() noexcept;

}  // namespace tapegrad
