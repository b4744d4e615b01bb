// A simulated CUDA device in host memory, for tests: device memory is host memory with a limit, streams are queues of
// closures that run in order, either late or at random points, so that a missing synchronisation shows as wrong data,
// reproducibly for a given seed. Kernels are queued in the same way (launch.h). It counts every call, injects failures
// on request, and is as strict as CUDA: foreign pointers, destroyed handles, and double frees are errors; fresh memory
// is filled with a pattern, and the host's access to memory of a device is a fault.
//
// Order: an operation runs after all earlier ones of its stream and after the records that its stream was told to wait
// for; nothing else is promised. Host memory that is not pinned is read or written before the call returns, as by CUDA.
// Memory of `allocate` lies in a file that other processes of the same user may map, and events made for other
// processes count in it, too. The work before such an event is run by a background thread after a short delay, since no
// thread of this process may ever wait for it. All functions from any thread; one lock, which is held while an
// operation runs.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tapegrad/cuda/runtime/driver.h"

namespace tapegrad::cuda::simulated {

enum class Schedule : uint8_t {
  Lazy,    // nothing runs until it is waited for (or a queue has grown long)
  Eager,   // at once, if nothing has to be waited for
  Random,  // some operations of some streams at each call, drawn from the seed
};

struct Options {
  int devices = 1;
  std::size_t memory = std::size_t{1} << 30;  // of each device
  Schedule schedule = Schedule::Lazy;
  uint64_t seed = 0;
  bool poison = true;          // fill fresh memory with kPoison
  bool virtual_memory = true;  // whether granularity() is not 0
  std::size_t granularity = std::size_t{2} << 20;
  std::size_t longest_queue = 4096;
};

inline constexpr int kPoison = 0xcb;

// Reads TAPEGRAD_CUDA_SIMULATE (devices), TAPEGRAD_CUDA_SIMULATE_MEMORY (MiB of each) and
// TAPEGRAD_CUDA_SIMULATE_SCHEDULE (lazy, eager or random:SEED).
TG_API Options options_from_environment();

struct SimulatedStream;
struct SimulatedEvent;
struct SimulatedGraph;

class TG_API SimulatedDriver final : public Driver {
 public:
  explicit SimulatedDriver(Options options = {});
  ~SimulatedDriver() override;

  // --- for tests ---
  uint64_t calls(const std::string& name) const;  // by the names of the functions below, "launch" for kernels
  uint64_t all_calls() const;
  // Makes call number n (1: the next one) of that name fail: with out of memory if the function can report it, else
  // with an error. Later calls succeed again.
  void fail_at(const std::string& name, uint64_t n);
  std::size_t pending(StreamHandle stream);  // operations that have not run
  std::size_t bytes_in_use(int device) const;
  void set_memory_limit(int device, std::size_t nbytes);
  void open_memory_to_host(bool open);  // for doubles of libraries that compute on the host; calls nest

  void enqueue(StreamHandle stream, const char* name, std::function<void()> work);

  // What CUDA does with a call that a capture forbids, unless the thread is in the relaxed mode: the call fails, and
  // the captures that forbid it are spoilt. Functions of the driver that it does so for call it themselves; doubles of
  // libraries call it where the real ones allocate, load code or make events.
  void forbid_in_capture(const char* call);

  int device_of(const void* p);  // see device_of_address

  bool simulated() const noexcept override { return true; }
#define TG_DRIVER(result, name, parameters) result name parameters override;
#define TG_DRIVER_RELAXED(result, name, parameters, arguments) result name##_relaxed parameters override;
#include "tapegrad/cuda/runtime/driver_functions.inc"

 private:
  friend struct SimulatedStream;
  friend struct SimulatedGraph;
  struct Operation;
  struct Capture;
  struct Recorded;
  struct Range {
    std::size_t nbytes;
    int device;
    uint64_t offset = 0;  // in the file; 0: not there
  };
  // Memory that other processes map: whole pages, never reused. The first one is unused.
  struct SharedFile {
    int fd = -1;
    int pid = 0;  // of the process that made it
    uint64_t inode = 0;
    uint64_t end = 4096;
  };
  class OpenMemory;  // while one lives, the memory of all devices may be touched
  struct DeviceState {
    std::size_t limit = 0;
    std::size_t used = 0;
    std::unique_ptr<SimulatedStream> null_stream;
  };

  using Lock = std::unique_lock<std::mutex>;
  bool enter(const char* name);  // counts the call; true when it shall fail
  void check(const char* name);  // as enter, raises where it shall fail
  void check_index(int device) const;
  SimulatedStream& stream_of(StreamHandle handle);
  SimulatedEvent& event_of(EventHandle handle);
  void push(SimulatedStream& stream, Operation operation);
  void step();  // what the schedule runs on its own
  bool runnable(SimulatedStream& stream);
  void run_front(SimulatedStream& stream);
  void run_until(SimulatedStream& stream, uint64_t sequence);
  void run_all(int device);  // -1: of all devices
  std::vector<SimulatedStream*> streams_in_order() const;
  void check_device_range(const void* p, std::size_t nbytes, const char* call);
  bool pinned_range(const void* p) const;
  void refuse_in_capture(SimulatedStream& stream, const char* call);
  void refuse_in_any_capture(const char* call);
  uint64_t draw() noexcept;
  void protect_memory(int protection);
  void count_open(int change);
  char* map_shared(std::size_t nbytes, uint64_t& offset);
  void unmap_shared(char* p, const Range& range);
  IpcHandle pack(uint64_t offset, std::size_t nbytes) const;
  char* open_shared(const IpcHandle& handle, const char* call, int& pid, uint64_t& offset, std::size_t& nbytes);
  void share_event(SimulatedEvent& event);
  void erase_event(EventHandle handle);
  bool sleep_for(int owner, int file);                // false: the process has ended
  void await_other_process(SimulatedStream& stream);  // that the stream's first operation waits for
  void await_other_process(EventHandle event);
  void go_on();  // the thread
  void start_thread();
  void stop_thread();

  const Options options_;
  mutable std::mutex mutex_;
  std::vector<DeviceState> devices_;
  std::map<std::string, uint64_t> counts_;
  std::map<std::string, uint64_t> failures_;
  std::map<StreamHandle, std::unique_ptr<SimulatedStream>> streams_;
  uint64_t streams_made_ = 0;
  std::map<EventHandle, std::unique_ptr<SimulatedEvent>> events_;
  std::map<GraphHandle, std::shared_ptr<SimulatedGraph>> graphs_;
  std::map<GraphExecHandle, std::shared_ptr<SimulatedGraph>> execs_;
  std::map<uint64_t, std::unique_ptr<Capture>> captures_;
  bool protected_ = false, huge_ = true;
  int open_ = 0;                        // objects of OpenMemory, and openings to the host
  std::map<char*, Range> allocations_;  // of allocate
  std::map<char*, Range> opened_;       // of open_memory
  SharedFile file_;
  std::thread thread_;
  int thread_pid_ = 0;
  std::condition_variable wake_;
  bool ending_ = false;
  std::map<char*, Range> reserved_;  // of reserve_addresses
  std::map<char*, Range> mapped_;
  std::map<PhysicalHandle, Range> physical_;
  std::map<char*, std::size_t> pinned_;  // made by us
  std::map<char*, std::size_t> registered_;
  uint64_t next_sequence_ = 1;
  uint64_t next_handle_ = 1;
  uint64_t random_;
  std::string error_;
};

// The driver that `driver()` of the simulated library is.
TG_API SimulatedDriver& simulated_driver();

// Waits for the stream; while it lives, the host may touch the memory of devices: for doubles of libraries that compute
// there.
class HostAccess {
 public:
  explicit HostAccess(StreamHandle stream) {
    simulated_driver().synchronize_stream(stream);
    simulated_driver().open_memory_to_host(true);
  }
  ~HostAccess() { simulated_driver().open_memory_to_host(false); }
  HostAccess(const HostAccess&) = delete;
  HostAccess& operator=(const HostAccess&) = delete;
};

}  // namespace tapegrad::cuda::simulated
