// The internal state of SimulatedDriver: queues, events and captures.
#pragma once

#include "tapegrad/cuda/simulated/simulated_driver.h"

namespace tapegrad::cuda::simulated {

using Clock = std::chrono::steady_clock;

struct SimulatedDriver::Operation {
  enum Kind : uint8_t { Work, Record, Wait } kind = Work;
  uint64_t sequence = 0;
  const char* name = "";
  std::function<void()> work;
  SimulatedEvent* event = nullptr;
  uint64_t record = 0;                // which record of the event
  SimulatedStream* origin = nullptr;  // where it was recorded
  uint64_t origin_sequence = 0;
};

struct SimulatedStream {
  int device = 0;
  int priority = 0;
  StreamHandle handle = nullptr;
  uint64_t number = 0;  // in the order in which streams were made: addresses differ from run to run
  std::deque<SimulatedDriver::Operation> queue;
  uint64_t capture = 0;    // the capture that it takes part in
  uint64_t last_node = 0;  // of that capture
  bool joined = true;      // whether the origin waits for its last node
  bool destroyed = false;  // with work left
};

// The state of an event shared with other processes; a page of the shared file.
struct SharedCounts {
  std::atomic<uint64_t> records{0};
  std::atomic<uint64_t> done{0};
};

// `records` counts the calls of record_event, `done` those that have run. Kept until no queue names it.
struct SimulatedEvent {
  int device = 0;
  unsigned flags = 0;
  uint64_t records = 0;
  uint64_t done = 0;
  SimulatedStream* stream = nullptr;
  uint64_t sequence = 0;
  Clock::time_point time;
  uint64_t capture = 0;  // recorded in a capture, at that node of that stream
  SimulatedStream* capture_stream = nullptr;
  uint64_t node = 0;
  std::size_t waiting = 0;  // operations in queues that name it
  bool destroyed = false;
  SharedCounts* shared = nullptr;  // of an event for other processes
  uint64_t offset = 0;             // of these in the file
  int owner = 0;                   // the process that made it, and its file; 0: this one
  int owner_file = -1;

  uint64_t all_records() const { return owner != 0 ? shared->records.load() : records; }
  uint64_t all_done() const { return owner != 0 ? shared->done.load() : done; }
};

struct SimulatedDriver::Recorded {
  const char* name;
  std::function<void()> work;
};

struct SimulatedGraph {
  std::vector<SimulatedDriver::Recorded> nodes;
};

struct SimulatedDriver::Capture {
  SimulatedStream* origin = nullptr;
  std::vector<SimulatedStream*> streams;
  std::shared_ptr<SimulatedGraph> graph = std::make_shared<SimulatedGraph>();
  bool invalid = false;
  CaptureMode mode = CaptureMode::Global;
  std::thread::id thread = std::this_thread::get_id();
};

class SimulatedDriver::OpenMemory {
 public:
  explicit OpenMemory(SimulatedDriver& driver) : driver_(driver) { driver_.count_open(1); }
  ~OpenMemory() { driver_.count_open(-1); }
  OpenMemory(const OpenMemory&) = delete;
  OpenMemory& operator=(const OpenMemory&) = delete;

 private:
  SimulatedDriver& driver_;
};

}  // namespace tapegrad::cuda::simulated
