// The CUDA implementation of c10/device_interface.h: each function forwards to the part of the backend that implements
// it.
#include "tapegrad/c10/device_interface.h"

#include <thread>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/memory/device_allocator.h"
#include "tapegrad/cuda/memory/pinned_allocator.h"
#include "tapegrad/cuda/memory/report.h"
#include "tapegrad/cuda/memory/shared.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/random/draws.h"
#include "tapegrad/cuda/runtime/event.h"
#include "tapegrad/cuda/runtime/pointer.h"
#include "tapegrad/cuda/runtime/wait.h"

namespace tapegrad::cuda {

namespace {

template <class Handle>
Handle as(int64_t number) {
  return reinterpret_cast<Handle>(number);
}
template <class Handle>
int64_t number(Handle handle) {
  return reinterpret_cast<int64_t>(handle);
}

class Interface final : public DeviceInterface {
 public:
  // --- devices ---
  int count() noexcept override { return device_count(); }
  std::string unavailable_reason() override { return device_count() > 0 ? "" : driver().why_no_device(); }
  bool simulated() const noexcept override { return driver().simulated(); }
  bool initialized() const noexcept override { return devices_used(); }
  int current() override { return driver().current_device(); }
  void set_current(int device) override {
    enter(device);
    driver().set_device(device);
  }
  void synchronize(int device) override {
    device = enter(device);
    driver().synchronize_device(device);
    call_after_wait();
  }
  bool can_access_peer(int device, int peer) override {
    check_device(device);
    check_device(peer);
    return driver().can_access_peer(device, peer);
  }
  std::string report(std::string_view what, int device) override {
    if (what == "versions") return versions_json();
    if (what == "libraries") return driver().libraries();
    if (what == "host_memory_stats") return host_stats_json(pinned_allocator().stats());
    device = enter(device);
    if (what == "properties") return properties_json(driver().properties(device));
    if (what == "memory_stats") return stats_json(device_allocator(device).stats());
    if (what == "snapshot") return snapshot_json(device, device_allocator(device));
    TG_THROW(Value, "cuda: there is no report '{}'", what);
  }

  // --- streams and events ---
  int64_t current_stream(int device) override { return number(cuda::current_stream(enter(device)).handle); }
  void set_current_stream(int device, int64_t stream) override {
    cuda::set_current_stream({as<StreamHandle>(stream), enter(device)});
  }
  int64_t new_stream(int device, int priority) override {
    return number(stream_from_pool(enter(device), priority).handle);
  }
  int stream_priority(int device, int64_t stream) override {
    return cuda::stream_priority({as<StreamHandle>(stream), device});
  }
  std::pair<int, int> priority_range() override {
    enter(-1);
    std::pair<int, int> range;
    driver().priority_range(range.first, range.second);
    return range;
  }
  bool query_stream(int device, int64_t stream) override {
    DeviceGuard guard(device);
    return driver().query_stream(as<StreamHandle>(stream));
  }
  void synchronize_stream(int device, int64_t stream) override {
    DeviceGuard guard(device);
    driver().synchronize_stream(as<StreamHandle>(stream));
    call_after_wait();
  }
  void stream_wait_event(int device, int64_t stream, int64_t event) override {
    DeviceGuard guard(device);
    driver().stream_wait_event(as<StreamHandle>(stream), as<EventHandle>(event));
  }
  int64_t create_event(int device, bool timing, bool blocking, bool interprocess) override {
    const unsigned flags =
        (timing ? kEventTiming : 0u) | (blocking ? kEventBlockingSync : 0u) | (interprocess ? kEventInterprocess : 0u);
    return number(driver().create_event(enter(device), flags));
  }
  void destroy_event(int64_t event) noexcept override { driver().destroy_event(as<EventHandle>(event)); }
  void record_event(int device, int64_t event, int64_t stream) override {
    DeviceGuard guard(device);
    driver().record_event(as<EventHandle>(event), as<StreamHandle>(stream));
  }
  bool query_event(int64_t event) override { return driver().query_event(as<EventHandle>(event)); }
  void synchronize_event(int64_t event) override {
    driver().synchronize_event(as<EventHandle>(event));
    call_after_wait();
  }
  double elapsed_ms(int64_t start, int64_t end) override {
    return driver().elapsed_ms(as<EventHandle>(start), as<EventHandle>(end));
  }
  std::string event_ipc_handle(int64_t event) override {
    const IpcHandle handle = driver().event_ipc_handle(as<EventHandle>(event));
    return {reinterpret_cast<const char*>(handle.bytes), sizeof(handle.bytes)};
  }
  int64_t open_event(int device, std::string_view bytes) override {
    IpcHandle handle;
    TG_CHECK(bytes.size() == sizeof(handle.bytes), Value, "cuda: a handle of an event has {} bytes: got {}",
             sizeof(handle.bytes), bytes.size());
    std::copy(bytes.begin(), bytes.end(), handle.bytes);
    return number(driver().open_event(enter(device), handle));
  }

  // --- memory ---
  void empty_cache() override {
    if (!initialized()) return;
    for (int d = 0; d < device_count(); ++d) device_allocator(d).empty_cache();
  }
  void reset_peak(int device) override { device_allocator(enter(device)).reset_peak(); }
  void reset_accumulated(int device) override { device_allocator(enter(device)).reset_accumulated(); }
  std::pair<uint64_t, uint64_t> memory_info(int device) override {
    const MemoryInfo info = driver().memory_info(enter(device));
    return {info.free, info.total};
  }
  double memory_fraction(int device) override { return device_allocator(enter(device)).fraction(); }
  void set_memory_fraction(int device, double fraction) override {
    device_allocator(enter(device)).set_fraction(fraction);
  }
  uint64_t allocate_raw(int device, uint64_t nbytes, int64_t stream) override {
    device = enter(device);
    if (nbytes == 0) return 0;
    return reinterpret_cast<uint64_t>(
        device_allocator(device).allocate(nbytes, as<StreamHandle>(stream), host_hooks().site())->address);
  }
  void free_raw(uint64_t address) override {
    for (int d = 0; d < device_count(); ++d) device_allocator(d).free_at(reinterpret_cast<void*>(address));
  }
  void note_use(const StorageImpl& storage, int64_t stream) override {
    if (!storage.device().is_cuda()) return;
    detail::note_use_slow(storage, {as<StreamHandle>(stream), storage.device().index});
  }
  int device_of(uint64_t address) override { return device_of_address(reinterpret_cast<const void*>(address)); }
  void record_history(uint64_t most_events) override {
    for (int d = 0; d < device_count(); ++d) device_allocator(d).record_history(most_events);
  }
  void set_option(std::string_view name, std::string_view value) override {
    for (int d = 0; d < device_count(); ++d) device_allocator(d).set_option(name, value);
  }

  // --- memory between processes ---
  void* allocate_shared(int device, size_t nbytes) override { return cuda::allocate_shared(enter(device), nbytes); }
  void free_shared(int device, void* p, int64_t event) noexcept override {
    cuda::free_shared(device, p, as<EventHandle>(event));
  }
  void copy_to_shared(void* to, const StorageImpl& from) override { cuda::copy_to_shared(to, from); }
  uint64_t export_shared(int device, const void* p, unsigned char* handle) override {
    return cuda::export_shared(device, p, handle);
  }
  int64_t mark_sent(int device, int64_t event) override {
    return number(cuda::mark_sent(enter(device), as<EventHandle>(event)));
  }
  void* open_shared(int device, const unsigned char* handle, uint64_t offset) override {
    return cuda::open_shared(enter(device), handle, offset);
  }
  void await_sent(int device, const unsigned char* event) override { cuda::await_sent(enter(device), event); }
  bool settle_shared(const void* p) noexcept override { return cuda::settle_shared(p); }
  void close_shared(const void* p) noexcept override { cuda::close_shared(p); }

  // --- pinned memory ---
  Storage allocate_pinned(size_t nbytes) override {
    enter(-1);
    return allocate_pinned_storage(nbytes);
  }
  bool is_pinned(const void* p) override { return p != nullptr && device_count() > 0 && driver().is_pinned(p); }
  void empty_pinned_cache() override { pinned_allocator().empty_cache(); }
  void register_pinned(void* p, size_t nbytes) override { driver().register_pinned(p, nbytes); }
  void unregister_pinned(void* p) override { driver().unregister_pinned(p); }

  // --- graphs ---
  uint64_t new_pool() override {
    static std::atomic<uint64_t> next{1};
    return next.fetch_add(1);
  }
  void use_pool(int device, uint64_t pool, bool only_this_thread) override {
    const auto thread = std::this_thread::get_id();
    device_allocator(enter(device)).begin_pool(pool, [=](StreamHandle) {
      return !only_this_thread || std::this_thread::get_id() == thread;
    });
  }
  void end_pool(int device, uint64_t pool) override { device_allocator(enter(device)).end_pool(pool); }
  void retain_pool(int device, uint64_t pool) override { device_allocator(enter(device)).retain_pool(pool); }
  void release_pool(int device, uint64_t pool) override { device_allocator(enter(device)).release_pool(pool); }
  void begin_capture(int device, int64_t stream, uint64_t pool, const std::string& mode) override {
    device = enter(device);
    DeviceGuard guard(device);
    const auto handle = as<StreamHandle>(stream);
    driver().begin_capture(handle, mode.c_str());
    const uint64_t id = driver().capture_id(handle);
    try {
      device_allocator(device).begin_pool(pool,
                                          [=](StreamHandle s) { return s != nullptr && driver().capture_id(s) == id; });
    } catch (...) {
      driver().destroy_graph(driver().end_capture(handle));
      throw;
    }
    begin_draws({handle, device});
  }
  int64_t end_capture(int device, int64_t stream, uint64_t pool) override {
    device = enter(device);
    DeviceGuard guard(device);
    GraphHandle graph = nullptr;
    try {
      graph = driver().end_capture(as<StreamHandle>(stream));
    } catch (...) {
      end_draws({as<StreamHandle>(stream), device}, nullptr);
      device_allocator(device).end_pool(pool);
      throw;
    }
    end_draws({as<StreamHandle>(stream), device}, graph);
    device_allocator(device).end_pool(pool);
    return number(graph);
  }
  bool is_capturing(int device, int64_t stream) override {
    DeviceGuard guard(device);
    return driver().capture_state(as<StreamHandle>(stream)) != CaptureState::None;
  }
  int64_t instantiate(int64_t graph) override {
    const GraphExecHandle exec = driver().instantiate(as<GraphHandle>(graph));
    instantiate_draws(as<GraphHandle>(graph), exec);
    return number(exec);
  }
  void launch_graph(int device, int64_t exec, int64_t stream) override {
    DeviceGuard guard(device);
    launch_draws(as<GraphExecHandle>(exec), {as<StreamHandle>(stream), device});
    driver().launch_graph(as<GraphExecHandle>(exec), as<StreamHandle>(stream));
  }
  std::string graph_dot(int64_t graph) override { return driver().graph_dot(as<GraphHandle>(graph)); }
  void destroy_graph(int64_t graph) noexcept override {
    forget_draws(as<GraphHandle>(graph));
    driver().destroy_graph(as<GraphHandle>(graph));
  }
  void destroy_graph_exec(int64_t exec) noexcept override {
    forget_draws(as<GraphExecHandle>(exec));
    driver().destroy_graph_exec(as<GraphExecHandle>(exec));
  }

  // --- waiting and profiling ---
  void set_wait_mode(int mode) override { cuda::set_wait_mode(mode); }
  int wait_mode() const noexcept override { return cuda::wait_mode(); }
  void mark(int what, const char* text, uint64_t* id) override { driver().mark(what, text, id); }
  void profiler(bool on) override { driver().profiler(on); }

 private:
  // The device meant, -1 being the current one; from here on CUDA is in use.
  static int enter(int device) {
    if (device < 0) device = device_count() > 0 ? driver().current_device() : 0;
    check_device(device);
    return device;
  }
};

}  // namespace

void register_interface() {
  static auto& instance = *new Interface;
  set_device_interface(DeviceType::CUDA, &instance);
}

}  // namespace tapegrad::cuda
