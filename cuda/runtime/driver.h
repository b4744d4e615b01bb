// The interface between the CUDA backend and the CUDA runtime and driver. Two implementations: RuntimeDriver (the CUDA
// runtime and driver; cuda/runtime/runtime_driver.cpp, in libtapegrad_cuda) and SimulatedDriver (a fake device in host
// memory; cuda/simulated/, in libtapegrad_cuda_sim and the tests). `driver()` is the one of this library. Host code of
// the backend includes this header in place of CUDA's own, so that it compiles where there is no toolkit.
//
// Threads: all functions from any thread; the current device belongs to the calling thread. Failures are raised as
// tapegrad::Error with CUDA's own text, except where a function is documented to return null or false. The handles are
// CUDA's own types (cudaStream_t is CUstream_st*), so that .cu files use them as they are. The null stream is the
// device's default one, with CUDA's legacy rules towards blocking streams; all others made here are non-blocking.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "tapegrad/c10/macros.h"

struct CUstream_st;
struct CUevent_st;
struct CUgraph_st;
struct CUgraphExec_st;

namespace tapegrad::cuda {

using StreamHandle = CUstream_st*;
using EventHandle = CUevent_st*;
using GraphHandle = CUgraph_st*;
using GraphExecHandle = CUgraphExec_st*;
using PhysicalHandle = uint64_t;  // of memory that has no address yet; 0: none

struct MemoryInfo {
  std::size_t free = 0;
  std::size_t total = 0;
};

struct DeviceProperties {
  std::string name;
  int major = 0;  // compute capability
  int minor = 0;
  int multiprocessors = 0;
  std::size_t total_memory = 0;
  int warp_size = 32;
  int max_threads_per_multiprocessor = 0;
  int max_threads_per_block = 0;
  std::size_t shared_memory_per_block = 0;
  std::size_t shared_memory_per_block_optin = 0;
  std::size_t shared_memory_per_multiprocessor = 0;
  int registers_per_multiprocessor = 0;
  std::size_t l2_cache_size = 0;
  int clock_rate_khz = 0;
  int memory_clock_rate_khz = 0;
  int memory_bus_width = 0;  // bits
  bool integrated = false;
  bool multi_gpu_board = false;
  int pci_bus_id = 0, pci_device_id = 0, pci_domain_id = 0;
  unsigned char uuid[16] = {};
};

enum class CopyKind : uint8_t { HostToDevice, DeviceToHost, DeviceToDevice };
enum class CaptureState : uint8_t { None, Active, Invalid };

// Properties of an event; bits may be combined. Events without Timing are cheaper.
enum EventFlags : unsigned { kEventPlain = 0, kEventTiming = 1, kEventBlockingSync = 2, kEventInterprocess = 4 };

// An interprocess handle: 64 bytes, as in CUDA.
struct IpcHandle {
  unsigned char bytes[64] = {};
};

class TG_API Driver {
 public:
  virtual ~Driver();

  // --- the machine ---
  virtual bool simulated() const noexcept { return false; }
  virtual int device_count() noexcept = 0;  // 0 where there is no driver or no device
  virtual std::string why_no_device() = 0;  // one sentence; "" where there is a device
  virtual int driver_version() = 0;         // 13000 is 13.0; 0 without a driver
  virtual int runtime_version() = 0;
  virtual int current_device() = 0;
  virtual void set_device(int device) = 0;
  virtual MemoryInfo memory_info(int device) = 0;
  virtual DeviceProperties properties(int device) = 0;
  virtual bool can_access_peer(int device, int peer) = 0;
  virtual void enable_peer_access(int device, int peer) = 0;  // once or more often
  virtual void synchronize_device(int device) = 0;
  // The message of an asynchronous error of earlier queued work; "" if none. Clears it.
  virtual std::string last_error() = 0;

  // --- memory of a device; nothing here orders itself with streams, except free, which waits for the device ---
  virtual void* allocate(int device, std::size_t nbytes) = 0;  // aligned to 512 bytes; null when it is out of memory
  virtual void free(int device, void* p) = 0;

  // Addresses without memory and memory without addresses. Sizes are multiples of granularity(device).
  virtual std::size_t granularity(int device) = 0;  // 0 where the device has no virtual memory management
  virtual void* reserve_addresses(int device, std::size_t nbytes) = 0;
  virtual void release_addresses(int device, void* p, std::size_t nbytes) = 0;
  virtual PhysicalHandle create_memory(int device, std::size_t nbytes) = 0;  // 0 when it is out of memory
  virtual void release_memory(int device, PhysicalHandle memory, std::size_t nbytes) = 0;
  virtual void map(int device, void* at, PhysicalHandle memory, std::size_t nbytes) = 0;
  virtual void unmap(int device, void* at, std::size_t nbytes) = 0;

  // --- host memory that the device can access ---
  virtual void* allocate_pinned(std::size_t nbytes) = 0;  // mapped and portable; null when it is out of memory
  virtual void free_pinned(void* p) = 0;
  virtual void register_pinned(void* p, std::size_t nbytes) = 0;  // the caller's own pages
  virtual void unregister_pinned(void* p) = 0;
  virtual bool is_pinned(const void* p) = 0;
  virtual void* device_address(void* pinned) = 0;  // where kernels find pinned memory

  // --- work; queued on `stream`, which belongs to the calling thread's current device ---
  // From or to host memory that is not pinned, the call waits until the host memory has been read or written.
  virtual void copy(void* to, const void* from, std::size_t nbytes, CopyKind kind, StreamHandle stream) = 0;
  virtual void copy_peer(void* to, int to_device, const void* from, int from_device, std::size_t nbytes,
                         StreamHandle stream) = 0;
  virtual void fill(void* p, int byte, std::size_t nbytes, StreamHandle stream) = 0;
  // Runs `function` on a host thread when the stream reaches this point. It must not call this interface.
  virtual void host_function(StreamHandle stream, std::function<void()> function) = 0;

  // --- streams ---
  virtual StreamHandle create_stream(int device, int priority) = 0;  // lower numbers first, see priority_range
  virtual void destroy_stream(StreamHandle stream) = 0;
  virtual bool query_stream(StreamHandle stream) = 0;  // whether all is done
  virtual void synchronize_stream(StreamHandle stream) = 0;
  virtual void stream_wait_event(StreamHandle stream, EventHandle event) = 0;
  virtual void priority_range(int& least, int& greatest) = 0;  // such as 0 and -5

  // --- events ---
  virtual EventHandle create_event(int device, unsigned flags) = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record_event(EventHandle event, StreamHandle stream) = 0;
  virtual bool query_event(EventHandle event) = 0;  // true for one that was never recorded
  virtual void synchronize_event(EventHandle event) = 0;
  virtual float elapsed_ms(EventHandle start, EventHandle end) = 0;

  // --- other processes ---
  virtual IpcHandle event_ipc_handle(EventHandle event) = 0;
  virtual EventHandle open_event(int device, const IpcHandle& handle) = 0;
  virtual IpcHandle memory_ipc_handle(void* p) = 0;  // of what `allocate` gave
  virtual void* open_memory(int device, const IpcHandle& handle) = 0;
  virtual void close_memory(int device, void* p) = 0;

  // --- graphs ---
  // mode: "global", "thread_local" or "relaxed", as in CUDA.
  virtual void begin_capture(StreamHandle stream, const char* mode) = 0;
  virtual GraphHandle end_capture(StreamHandle stream) = 0;  // raises if the capture was invalidated
  virtual CaptureState capture_state(StreamHandle stream) = 0;
  // The capture that the stream takes part in, itself or through an event; 0: none.
  virtual uint64_t capture_id(StreamHandle stream) = 0;
  virtual GraphExecHandle instantiate(GraphHandle graph) = 0;
  virtual void launch_graph(GraphExecHandle graph, StreamHandle stream) = 0;
  virtual std::size_t graph_nodes(GraphHandle graph) = 0;
  virtual std::string graph_dot(GraphHandle graph) = 0;  // the graph as a Graphviz file
  virtual void destroy_graph(GraphHandle graph) noexcept = 0;
  virtual void destroy_graph_exec(GraphExecHandle graph) noexcept = 0;

  // --- profilers and libraries ---
  // 0 marks a moment, 1 and 2 open and close a nested range, 3 and 4 one with a number (*id).
  virtual void mark(int what, const char* text, uint64_t* id);
  virtual void profiler(bool on);
  // The libraries beside CUDA's own as JSON, {"cublas": {"version": 130000} or {"missing": "why"}, ...}; opens them.
  virtual std::string libraries();
};

// The driver of this library; made on first use, never destroyed.
TG_API Driver& driver();

// The number of devices, counted once.
TG_API int device_count() noexcept;
// Whether a device has been used, that is, whether check_device ever succeeded.
TG_API bool devices_used() noexcept;
// Raises, in one sentence, where there is no device `index`. Called before each first use of one.
TG_API void check_device(int index);

// Makes a device the thread's current one for a scope; -1: no change.
class TG_API DeviceGuard {
 public:
  explicit DeviceGuard(int device) {
    if (device < 0) return;
    const int now = driver().current_device();
    if (now == device) return;
    driver().set_device(device);
    before_ = now;
  }
  ~DeviceGuard() {
    if (before_ >= 0) driver().set_device(before_);
  }
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;

 private:
  int before_ = -1;
};

}  // namespace tapegrad::cuda

// Entry point, called once by the loader of the library before any other function; registers the interfaces of c10 and
// fills the CUDA column of the kernel table. The result is the number of usable devices.
extern "C" TG_API int tapegrad_cuda_init();
