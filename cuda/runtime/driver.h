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
// What a thread's calls may spoil (cudaStreamCaptureMode): captures of any thread that are global, its own, or none.
enum class CaptureMode : uint8_t { Global, ThreadLocal, Relaxed };

// Properties of an event; bits may be combined. Events without Timing are cheaper.
enum EventFlags : unsigned { kEventPlain = 0, kEventTiming = 1, kEventBlockingSync = 2, kEventInterprocess = 4 };

// An interprocess handle: 64 bytes, as in CUDA.
struct IpcHandle {
  unsigned char bytes[64] = {};
};

class Driver;
// The driver of this library; made on first use, never destroyed.
TG_API Driver& driver();

// While it lives, this thread may make calls that put nothing into a graph (allocations, handles of libraries, waits
// for other streams) though some stream is being captured, by whichever thread; otherwise they would fail and spoil the
// capture. Driver's own functions have it where they need it, calls of libraries by LibraryFunction
// (libraries/function.h). Within another one it does nothing.
class TG_API RelaxedCapture {
 public:
  explicit RelaxedCapture(Driver& driver = cuda::driver()) noexcept;
  ~RelaxedCapture();
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  Driver& driver_;
  CaptureMode before_ = CaptureMode::Relaxed;
};

class TG_API Driver {
 public:
  virtual ~Driver();

  virtual bool simulated() const noexcept { return false; }
#define TG_DRIVER(result, name, parameters) virtual result name parameters = 0;
#define TG_DRIVER_RELAXED(result, name, parameters, arguments) \
  result name parameters {                                     \
    const RelaxedCapture relaxed(*this);                       \
    return name##_relaxed arguments;                           \
  }                                                            \
  virtual result name##_relaxed parameters = 0;
#include "tapegrad/cuda/runtime/driver_functions.inc"

  // Whether the event has passed; with `wait`, after waiting for it.
  bool has_passed(EventHandle event, bool wait) {
    if (!wait) return query_event(event);
    synchronize_event(event);
    return true;
  }

  // --- profilers and libraries ---
  // 0 marks a moment, 1 and 2 open and close a nested range, 3 and 4 one with a number (*id).
  virtual void mark(int what, const char* text, uint64_t* id);
  virtual void profiler(bool on);
  // The libraries beside CUDA's own as JSON, {"cublas": {"version": 130000} or {"missing": "why"}, ...}; opens them.
  virtual std::string libraries();
};

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
