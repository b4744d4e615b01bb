// The queues of the simulated machine: what runs when. Memory is in simulated_memory.cpp, captures in
// simulated_graph.cpp, sharing with other processes in simulated_processes.cpp.
#include "tapegrad/cuda/simulated/simulated_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/simulated/simulated_state.h"

namespace tapegrad::cuda::simulated {

namespace {
thread_local int thread_device = 0;
}

SimulatedDriver::SimulatedDriver(Options options)
    : options_(options), random_(options.seed * 0x9e3779b97f4a7c15ull + 0x2545f4914f6cdd1dull) {
  devices_.resize(static_cast<size_t>(options_.devices));
  for (int d = 0; d < options_.devices; ++d) {
    devices_[d].limit = options_.memory;
    devices_[d].null_stream = std::make_unique<SimulatedStream>();
    devices_[d].null_stream->device = d;
  }
}

SimulatedDriver::~SimulatedDriver() {
  stop_thread();
  for (auto& [p, range] : allocations_) munmap(p, range.nbytes);
  for (auto& [p, range] : opened_) munmap(p, range.nbytes);
  while (!events_.empty()) erase_event(events_.begin()->first);
  if (file_.pid != 0) close(file_.fd);
  for (auto& [p, range] : reserved_) munmap(p, range.nbytes);
  for (auto& [p, nbytes] : pinned_) munmap(p, nbytes);
}

uint64_t SimulatedDriver::draw() noexcept {  // xorshift64*
  random_ ^= random_ >> 12;
  random_ ^= random_ << 25;
  random_ ^= random_ >> 27;
  return random_ * 0x2545f4914f6cdd1dull;
}

uint64_t SimulatedDriver::calls(const std::string& name) const {
  Lock lock(mutex_);
  auto it = counts_.find(name);
  return it == counts_.end() ? 0 : it->second;
}

uint64_t SimulatedDriver::all_calls() const {
  Lock lock(mutex_);
  uint64_t sum = 0;
  for (auto& [name, n] : counts_) sum += n;
  return sum;
}

void SimulatedDriver::fail_at(const std::string& name, uint64_t n) {
  Lock lock(mutex_);
  failures_[name] = counts_[name] + n;
}

bool SimulatedDriver::enter(const char* name) {
  const uint64_t number = ++counts_[name];
  if (failures_.empty()) return false;
  auto it = failures_.find(name);
  if (it == failures_.end() || it->second != number) return false;
  failures_.erase(it);
  return true;
}

void SimulatedDriver::check(const char* name) {
  TG_CHECK(!enter(name), Runtime, "cuda: {}: an error that the simulation was told to make", name);
}

void SimulatedDriver::check_index(int device) const {
  TG_CHECK(device >= 0 && device < options_.devices, Runtime, "cuda: device index out of range: cuda:{} of {}", device,
           options_.devices);
}

int SimulatedDriver::device_count() noexcept { return options_.devices; }
int SimulatedDriver::driver_version() { return 13000; }
int SimulatedDriver::runtime_version() { return 13000; }

std::string SimulatedDriver::why_no_device() {
  return options_.devices > 0 ? "" : "TAPEGRAD_CUDA_SIMULATE asks for no device";
}

int SimulatedDriver::current_device() { return thread_device < options_.devices ? thread_device : 0; }

void SimulatedDriver::set_device(int device) {
  check_index(device);
  thread_device = device;
}

DeviceProperties SimulatedDriver::properties(int device) {
  check_index(device);
  DeviceProperties p;
  p.name = "tapegrad simulated device";
  p.major = 9;
  p.multiprocessors = 4;
  p.total_memory = devices_[device].limit;
  p.max_threads_per_multiprocessor = 2048;
  p.max_threads_per_block = 1024;
  p.shared_memory_per_block = 48 << 10;
  p.shared_memory_per_block_optin = 227 << 10;
  p.shared_memory_per_multiprocessor = 228 << 10;
  p.registers_per_multiprocessor = 65536;
  p.l2_cache_size = 1 << 20;
  p.pci_bus_id = device;
  p.uuid[0] = 0x51;
  p.uuid[15] = static_cast<unsigned char>(device);
  return p;
}

bool SimulatedDriver::can_access_peer(int device, int peer) {
  check_index(device);
  check_index(peer);
  return device != peer;
}

void SimulatedDriver::enable_peer_access_relaxed(int device, int peer) {
  check_index(device);
  check_index(peer);
}

std::string SimulatedDriver::last_error() {
  Lock lock(mutex_);
  return std::exchange(error_, "");
}

SimulatedStream& SimulatedDriver::stream_of(StreamHandle handle) {
  if (handle == nullptr) return *devices_[current_device()].null_stream;
  auto it = streams_.find(handle);
  TG_CHECK(it != streams_.end() && !it->second->destroyed, Runtime, "cuda: invalid resource handle: no such stream");
  return *it->second;
}

SimulatedEvent& SimulatedDriver::event_of(EventHandle handle) {
  auto it = events_.find(handle);
  TG_CHECK(it != events_.end() && !it->second->destroyed, Runtime, "cuda: invalid resource handle: no such event");
  return *it->second;
}

void SimulatedDriver::push(SimulatedStream& stream, Operation operation) {
  operation.sequence = next_sequence_++;
  if (operation.event != nullptr) ++operation.event->waiting;
  stream.queue.push_back(std::move(operation));
  step();
  if (stream.queue.size() > options_.longest_queue) run_until(stream, stream.queue[stream.queue.size() / 2].sequence);
}

void SimulatedDriver::step() {
  if (options_.schedule == Schedule::Lazy) return;
  std::vector<SimulatedStream*> all;
  for (auto& d : devices_) all.push_back(d.null_stream.get());
  for (SimulatedStream* s : streams_in_order()) all.push_back(s);
  if (options_.schedule == Schedule::Eager) {
    for (bool any = true; any;) {
      any = false;
      for (SimulatedStream* s : all)
        while (runnable(*s)) {
          run_front(*s);
          any = true;
        }
    }
    return;
  }
  for (uint64_t n = draw() % 4; n > 0; --n) {
    SimulatedStream& s = *all[draw() % all.size()];
    if (runnable(s)) run_front(s);
  }
}

bool SimulatedDriver::runnable(SimulatedStream& stream) {
  if (stream.queue.empty()) return false;
  const Operation& front = stream.queue.front();
  return front.kind != Operation::Wait || front.event->all_done() >= front.record;
}

void SimulatedDriver::run_front(SimulatedStream& stream) {
  Operation operation = std::move(stream.queue.front());
  stream.queue.pop_front();
  if (operation.kind == Operation::Work) {
    const OpenMemory open(*this);
    try {
      operation.work();
    } catch (const std::exception& error) {
      if (error_.empty()) error_ = std::string(operation.name) + ": " + error.what();
    }
    return;
  }
  SimulatedEvent& event = *operation.event;
  if (operation.kind == Operation::Record) {
    event.done = std::max(event.done, operation.record);
    if (event.shared != nullptr) event.shared->done.store(event.done);
    event.time = Clock::now();
  }
  if (--event.waiting == 0 && event.destroyed) erase_event(reinterpret_cast<EventHandle>(&event));
}

// Runs what must run for the operations of `stream` up to `sequence`, and nothing else: those before them in their
// stream and the records that they wait for, and so on. A stack of its own: such chains may be long.
void SimulatedDriver::run_until(SimulatedStream& stream, uint64_t sequence) {
  if (stream.queue.empty() || stream.queue.front().sequence > sequence) return;
  const OpenMemory open(*this);  // once for all that runs
  std::vector<std::pair<SimulatedStream*, uint64_t>> needed{{&stream, sequence}};
  while (!needed.empty()) {
    auto [s, last] = needed.back();
    if (s->queue.empty() || s->queue.front().sequence > last) {
      needed.pop_back();
    } else if (runnable(*s)) {
      run_front(*s);
    } else {
      const Operation& wait = s->queue.front();
      if (wait.event->owner != 0)
        await_other_process(*s);
      else
        needed.emplace_back(wait.origin, wait.origin_sequence);
    }
  }
}

std::vector<SimulatedStream*> SimulatedDriver::streams_in_order() const {
  std::vector<SimulatedStream*> all;
  for (auto& [handle, s] : streams_) all.push_back(s.get());
  std::sort(all.begin(), all.end(), [](auto* a, auto* b) { return a->number < b->number; });
  return all;
}

void SimulatedDriver::run_all(int device) {
  auto run = [&](SimulatedStream& s) {
    if ((device < 0 || s.device == device) && !s.queue.empty()) run_until(s, UINT64_MAX);
  };
  for (auto& d : devices_) run(*d.null_stream);
  for (SimulatedStream* s : streams_in_order()) run(*s);
}

void SimulatedDriver::enqueue(StreamHandle handle, const char* name, std::function<void()> work) {
  Lock lock(mutex_);
  check("launch");
  SimulatedStream& stream = stream_of(handle);
  if (stream.capture != 0) {
    Capture& capture = *captures_.at(stream.capture);
    capture.graph->nodes.push_back({name, std::move(work)});
    stream.last_node = capture.graph->nodes.size();
    stream.joined = &stream == capture.origin;
    return;
  }
  Operation operation;
  operation.name = name;
  operation.work = std::move(work);
  push(stream, std::move(operation));
}

void SimulatedDriver::host_function(StreamHandle stream, std::function<void()> function) {
  enqueue(stream, "host_function", std::move(function));
}

std::size_t SimulatedDriver::pending(StreamHandle stream) {
  Lock lock(mutex_);
  return stream_of(stream).queue.size();
}

// --- streams ---

StreamHandle SimulatedDriver::create_stream_relaxed(int device, int priority) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("create_stream");
  check("create_stream");
  auto stream = std::make_unique<SimulatedStream>();
  stream->device = device;
  stream->priority = priority;
  auto handle = reinterpret_cast<StreamHandle>(stream.get());
  stream->handle = handle;
  stream->number = ++streams_made_;
  streams_[handle] = std::move(stream);
  return handle;
}

void SimulatedDriver::destroy_stream_relaxed(StreamHandle handle) {
  Lock lock(mutex_);
  refuse_in_any_capture("destroy_stream");
  check("destroy_stream");
  SimulatedStream& stream = stream_of(handle);
  TG_CHECK(handle != nullptr, Runtime, "cuda: the default stream cannot be destroyed");
  // CUDA lets the work finish by itself; others may wait for records in it, so the queue lives on.
  stream.destroyed = true;
}

void SimulatedDriver::refuse_in_capture(SimulatedStream& stream, const char* call) {
  if (stream.capture == 0) return;
  captures_.at(stream.capture)->invalid = true;
  TG_THROW(Runtime, "cuda: {}: operation not permitted when stream is capturing", call);
}

bool SimulatedDriver::query_stream_relaxed(StreamHandle handle) {
  Lock lock(mutex_);
  refuse_in_any_capture("query_stream");
  check("query_stream");
  SimulatedStream& stream = stream_of(handle);
  refuse_in_capture(stream, "query_stream");
  if (stream.queue.empty()) return true;
  run_until(stream, stream.queue.front().sequence);  // a device goes on by itself
  return false;
}

void SimulatedDriver::synchronize_stream_relaxed(StreamHandle handle) {
  Lock lock(mutex_);
  refuse_in_any_capture("synchronize_stream");
  check("synchronize_stream");
  SimulatedStream& stream = stream_of(handle);
  refuse_in_capture(stream, "synchronize_stream");
  run_until(stream, UINT64_MAX);
  if (!error_.empty()) TG_THROW(Runtime, "cuda: {}", std::exchange(error_, ""));
}

void SimulatedDriver::synchronize_device(int device) {
  check_index(device);
  Lock lock(mutex_);
  check("synchronize_device");
  for (auto& [id, capture] : captures_)
    if (capture->origin->device == device) refuse_in_capture(*capture->origin, "synchronize_device");
  run_all(device);
  if (!error_.empty()) TG_THROW(Runtime, "cuda: {}", std::exchange(error_, ""));
}

void SimulatedDriver::stream_wait_event(StreamHandle handle, EventHandle event_handle) {
  Lock lock(mutex_);
  check("stream_wait_event");
  SimulatedStream& stream = stream_of(handle);
  SimulatedEvent& event = event_of(event_handle);
  if (event.capture != 0 && captures_.count(event.capture)) {
    Capture& capture = *captures_.at(event.capture);
    TG_CHECK(stream.capture == 0 || stream.capture == event.capture, Runtime,
             "cuda: stream_wait_event: the event belongs to another capture");
    if (stream.capture == 0) {
      stream.capture = event.capture;
      stream.last_node = 0;
      stream.joined = false;
      capture.streams.push_back(&stream);
    }
    // Whether the origin knows of the other stream's last work: directly, or through a stream that it joined.
    if (&stream == capture.origin) {
      if (event.node >= event.capture_stream->last_node) event.capture_stream->joined = true;
    } else if (event.capture_stream != capture.origin && event.node >= event.capture_stream->last_node) {
      event.capture_stream->joined = true;
      stream.joined = false;
    }
    return;
  }
  if (stream.capture != 0) {
    captures_.at(stream.capture)->invalid = true;
    TG_THROW(Runtime, "cuda: stream_wait_event: a capturing stream cannot wait for work outside of the capture");
  }
  if (event.all_done() >= event.all_records()) return;
  Operation operation;
  operation.kind = Operation::Wait;
  operation.name = "wait";
  operation.event = &event;
  operation.record = event.all_records();
  operation.origin = event.stream;
  operation.origin_sequence = event.sequence;
  push(stream, std::move(operation));
}

void SimulatedDriver::priority_range(int& least, int& greatest) {
  least = 0;
  greatest = -5;
}

// --- events ---

EventHandle SimulatedDriver::create_event_relaxed(int device, unsigned flags) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("create_event");
  check("create_event");
  auto event = std::make_unique<SimulatedEvent>();
  event->device = device;
  event->flags = flags;
  if (flags & kEventInterprocess) share_event(*event);
  auto handle = reinterpret_cast<EventHandle>(event.get());
  events_[handle] = std::move(event);
  return handle;
}

void SimulatedDriver::destroy_event(EventHandle handle) noexcept {
  Lock lock(mutex_);
  enter("destroy_event");
  auto it = events_.find(handle);
  if (it == events_.end()) return;
  it->second->destroyed = true;
  if (it->second->waiting == 0) erase_event(handle);
}

void SimulatedDriver::record_event(EventHandle handle, StreamHandle stream_handle) {
  Lock lock(mutex_);
  check("record_event");
  SimulatedEvent& event = event_of(handle);
  SimulatedStream& stream = stream_of(stream_handle);
  TG_CHECK(event.owner == 0, Runtime,
           "cuda: record_event: only the process that made an event records it on a simulated device");
  TG_CHECK(event.device == stream.device, Runtime,
           "cuda: record_event: invalid resource handle: the event is of cuda:{}, the stream of cuda:{}", event.device,
           stream.device);
  if (stream.capture != 0) {
    event.capture = stream.capture;
    event.capture_stream = &stream;
    event.node = stream.last_node;
    return;
  }
  event.capture = 0;
  event.stream = &stream;
  event.sequence = next_sequence_;
  Operation operation;
  operation.kind = Operation::Record;
  operation.name = "record";
  operation.event = &event;
  operation.record = ++event.records;
  if (event.shared != nullptr) {
    event.shared->records.store(event.records);
    wake_.notify_all();
  }
  push(stream, std::move(operation));
}

bool SimulatedDriver::query_event_relaxed(EventHandle handle) {
  Lock lock(mutex_);
  refuse_in_any_capture("query_event");
  check("query_event");
  SimulatedEvent& event = event_of(handle);
  TG_CHECK(event.capture == 0, Runtime, "cuda: query_event: the event was recorded in a capture");
  if (event.all_done() >= event.all_records()) return true;
  if (event.owner == 0 && !event.stream->queue.empty()) run_until(*event.stream, event.stream->queue.front().sequence);
  return false;
}

void SimulatedDriver::synchronize_event_relaxed(EventHandle handle) {
  Lock lock(mutex_);
  refuse_in_any_capture("synchronize_event");
  check("synchronize_event");
  SimulatedEvent& event = event_of(handle);
  TG_CHECK(event.capture == 0, Runtime, "cuda: synchronize_event: the event was recorded in a capture");
  if (event.owner != 0)
    await_other_process(handle);
  else if (event.done < event.records)
    run_until(*event.stream, event.sequence);
  if (!error_.empty()) TG_THROW(Runtime, "cuda: {}", std::exchange(error_, ""));
}

float SimulatedDriver::elapsed_ms(EventHandle start, EventHandle end) {
  Lock lock(mutex_);
  check("elapsed_ms");
  const SimulatedEvent& a = event_of(start);
  const SimulatedEvent& b = event_of(end);
  TG_CHECK((a.flags & kEventTiming) && (b.flags & kEventTiming) && a.records > 0 && b.records > 0, Runtime,
           "cuda: elapsed_ms: both events must keep time and must have been recorded");
  TG_CHECK(a.done >= a.records && b.done >= b.records, Runtime, "cuda: elapsed_ms: device not ready");
  return std::chrono::duration<float, std::milli>(b.time - a.time).count();
}

}  // namespace tapegrad::cuda::simulated
