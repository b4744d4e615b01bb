#include "tapegrad/cuda/functions.h"

#include <dlfcn.h>

#include <atomic>
#include <functional>
#include <limits>
#include <thread>
#include <type_traits>
#include <unordered_map>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/memory/device_allocator.h"
#include "tapegrad/cuda/memory/pinned_allocator.h"
#include "tapegrad/cuda/memory/report.h"
#include "tapegrad/cuda/random/draws.h"
#include "tapegrad/cuda/record/nvrtc.h"
#include "tapegrad/cuda/record/source.h"
#include "tapegrad/cuda/runtime/event.h"
#include "tapegrad/cuda/runtime/pointer.h"
#include "tapegrad/cuda/runtime/wait.h"

namespace tapegrad::cuda {
namespace {

using Arguments = std::span<const DeviceValue>;
using Function = std::function<DeviceValue(Arguments)>;

// --- arguments and results: numbers stand for handles and addresses ---

template <class T>
T argument(const DeviceValue& v) {
  if constexpr (std::is_same_v<T, bool>) {
    if (const auto* number = std::get_if<int64_t>(&v)) return *number != 0;
    return std::get<bool>(v);
  } else if constexpr (std::is_same_v<T, std::string_view>) {
    return std::get<std::string>(v);
  } else if constexpr (std::is_same_v<T, double>) {
    if (const auto* number = std::get_if<int64_t>(&v)) return static_cast<double>(*number);
    return std::get<double>(v);
  } else if constexpr (std::is_pointer_v<T>) {
    return reinterpret_cast<T>(std::get<int64_t>(v));
  } else {
    const int64_t number = std::get<int64_t>(v);
    TG_CHECK(number == static_cast<int64_t>(static_cast<T>(number)), Value,
             "cuda: a number does not fit into {} bits: got {}", 8 * sizeof(T), number);
    return static_cast<T>(number);
  }
}

template <class T>
DeviceValue result(T v) {
  if constexpr (std::is_pointer_v<T>)
    return reinterpret_cast<int64_t>(v);
  else if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
    return static_cast<int64_t>(v);
  else
    return v;
}

template <class F, class R, class... A>
Function adapted(F f, R (F::*)(A...) const) {
  return [f](Arguments given) -> DeviceValue {
    return [&]<size_t... I>(std::index_sequence<I...>) -> DeviceValue {
      if (given.size() != sizeof...(A)) throw std::bad_variant_access();
      if constexpr (std::is_void_v<R>)
        return f(argument<A>(given[I])...), DeviceValue();
      else
        return result(f(argument<A>(given[I])...));
    }(std::index_sequence_for<A...>());
  };
}
struct Row {
  template <class F>
  Row(const char* function_name, F f) : name(function_name), function(adapted(f, &F::operator())) {}
  const char* name;
  Function function;
};

// --- the longer functions ---

std::string report(std::string_view what, int device) {
  if (what == "versions") return versions_json();
  if (what == "libraries") return driver().libraries();
  if (what == "host_memory_stats") return host_stats_json(pinned_allocator().stats());
  device = device_or_current(device);
  if (what == "properties") return properties_json(driver().properties(device));
  if (what == "memory_stats") return stats_json(device_allocator(device).stats());
  if (what == "snapshot") return snapshot_json(device, device_allocator(device));
  TG_THROW(Value, "cuda: there is no report '{}'", what);
}

EventHandle open_event(int device, std::string_view bytes) {
  IpcHandle handle;
  TG_CHECK(bytes.size() == sizeof(handle.bytes), Value, "cuda: a handle of an event has {} bytes: got {}",
           sizeof(handle.bytes), bytes.size());
  std::copy(bytes.begin(), bytes.end(), handle.bytes);
  return driver().open_event(device_or_current(device), handle);
}

// A pool is a number that separates the memory of captures.
void use_pool(int device, uint64_t pool, bool only_this_thread) {
  const auto thread = std::this_thread::get_id();
  device_allocator(device_or_current(device)).begin_pool(pool, [=](StreamHandle) {
    return !only_this_thread || std::this_thread::get_id() == thread;
  });
}

void begin_capture(int device, StreamHandle stream, uint64_t pool, std::string_view mode) {
  device = device_or_current(device);
  DeviceGuard guard(device);
  driver().begin_capture(stream, std::string(mode).c_str());
  const uint64_t id = driver().capture_id(stream);
  try {
    device_allocator(device).begin_pool(pool,
                                        [=](StreamHandle s) { return s != nullptr && driver().capture_id(s) == id; });
  } catch (...) {
    driver().destroy_graph(driver().end_capture(stream));
    throw;
  }
  begin_draws({stream, device});
}

GraphHandle end_capture(int device, StreamHandle stream, uint64_t pool) {
  device = device_or_current(device);
  DeviceGuard guard(device);
  GraphHandle graph = nullptr;
  try {
    graph = driver().end_capture(stream);
  } catch (...) {
    end_draws({stream, device}, nullptr);
    device_allocator(device).end_pool(pool);
    throw;
  }
  end_draws({stream, device}, graph);
  device_allocator(device).end_pool(pool);
  return graph;
}

void destroy_graph(GraphHandle graph, GraphExecHandle exec) {
  if (graph != nullptr) {
    forget_draws(graph);
    driver().destroy_graph(graph);
  }
  if (exec != nullptr) {
    forget_draws(exec);
    driver().destroy_graph_exec(exec);
  }
}

// --- the table ---

template <class F>
void for_each_allocator(F&& f) {
  for (int d = 0; d < device_count(); ++d) f(device_allocator(d));
}

const std::unordered_map<std::string_view, Function>& table() {
  static const auto& all = *[] {
    const Row rows[] = {
        {"set_device", [](int device) { driver().set_device(device_or_current(device)); }},
        {"synchronize",
         [](int device) {
           driver().synchronize_device(device_or_current(device));
           call_after_wait();
         }},
        {"can_access_peer",
         [](int device, int peer) {
           check_device(device);
           check_device(peer);
           return driver().can_access_peer(device, peer);
         }},
        {"report", [](std::string_view what, int device) { return report(what, device); }},
        {"set_wait_mode", [](int mode) { set_wait_mode(mode); }},
        {"wait_mode", [] { return wait_mode(); }},
        {"mark",
         [](int what, std::string_view text, uint64_t id) {
           driver().mark(what, std::string(text).c_str(), &id);
           return id;
         }},
        {"profiler", [](bool on) { driver().profiler(on); }},

        // streams and events
        {"set_current_stream",
         [](int device, StreamHandle stream) { set_current_stream({stream, device_or_current(device)}); }},
        {"new_stream",
         [](int device, int priority) { return stream_from_pool(device_or_current(device), priority).handle; }},
        {"stream_priority", [](int device, StreamHandle stream) { return stream_priority({stream, device}); }},
        {"priority_range",
         [] {
           device_or_current(-1);
           int least, greatest;
           driver().priority_range(least, greatest);
           return std::pair<int64_t, int64_t>(least, greatest);
         }},
        {"query_stream",
         [](int device, StreamHandle stream) {
           DeviceGuard guard(device);
           return driver().query_stream(stream);
         }},
        {"synchronize_stream",
         [](int device, StreamHandle stream) {
           DeviceGuard guard(device);
           driver().synchronize_stream(stream);
           call_after_wait();
         }},
        {"stream_wait_event",
         [](int device, StreamHandle stream, EventHandle event) {
           DeviceGuard guard(device);
           driver().stream_wait_event(stream, event);
         }},
        {"create_event",
         [](int device, bool timing, bool blocking, bool interprocess) {
           const unsigned flags = (timing ? kEventTiming : 0u) | (blocking ? kEventBlockingSync : 0u) |
                                  (interprocess ? kEventInterprocess : 0u);
           return driver().create_event(device_or_current(device), flags);
         }},
        {"destroy_event", [](EventHandle event) { driver().destroy_event(event); }},
        {"record_event",
         [](int device, EventHandle event, StreamHandle stream) {
           DeviceGuard guard(device);
           driver().record_event(event, stream);
         }},
        {"event_ipc_handle",
         [](EventHandle event) {
           const IpcHandle handle = driver().event_ipc_handle(event);
           return std::string(reinterpret_cast<const char*>(handle.bytes), sizeof(handle.bytes));
         }},
        {"query_event", [](EventHandle event) { return driver().query_event(event); }},
        {"synchronize_event",
         [](EventHandle event) {
           driver().synchronize_event(event);
           call_after_wait();
         }},
        {"elapsed_ms",
         [](EventHandle start, EventHandle end) { return static_cast<double>(driver().elapsed_ms(start, end)); }},
        {"open_event", [](int device, std::string_view bytes) { return open_event(device, bytes); }},

        // memory
        {"empty_cache",
         [](bool pinned) {
           if (pinned)
             pinned_allocator().empty_cache();
           else if (devices_used())
             for_each_allocator([](DeviceAllocator& a) { a.empty_cache(); });
         }},
        {"reset_stats",
         [](int device, bool peak) {
           DeviceAllocator& allocator = device_allocator(device_or_current(device));
           peak ? allocator.reset_peak() : allocator.reset_accumulated();
         }},
        {"memory_info",
         [](int device) {
           const MemoryInfo info = driver().memory_info(device_or_current(device));
           return std::pair(static_cast<int64_t>(info.free), static_cast<int64_t>(info.total));
         }},
        {"memory_fraction", [](int device) { return device_allocator(device_or_current(device)).fraction(); }},
        {"set_memory_fraction",
         [](int device, double fraction) { device_allocator(device_or_current(device)).set_fraction(fraction); }},
        {"allocate_raw",
         [](int device, uint64_t nbytes, StreamHandle stream) -> void* {
           device = device_or_current(device);
           if (nbytes == 0) return nullptr;
           return device_allocator(device).allocate(nbytes, stream, host_hooks().site())->address;
         }},
        {"free_raw", [](void* address) { for_each_allocator([=](DeviceAllocator& a) { a.free_at(address); }); }},
        // On which device an address lies; -1: on none.
        {"device_of", [](const void* address) { return device_of_address(address); }},
        // For snapshots; 0: off.
        {"record_history",
         [](uint64_t most_events) { for_each_allocator([=](DeviceAllocator& a) { a.record_history(most_events); }); }},
        {"set_allocator_option",
         [](std::string_view name, std::string_view value) {
           for_each_allocator([=](DeviceAllocator& a) { a.set_option(name, value); });
         }},
        // What is queued on the stream from now on runs after what other streams do with the memory.
        {"await_uses", [](int device, const void* address,
                          StreamHandle stream) { device_allocator(device).await_uses(address, {stream, device}); }},
        // The stream's use of the memory was captured and has not run.
        {"forget_use", [](int device, const void* address,
                          StreamHandle stream) { device_allocator(device).forget_use(address, {stream, device}); }},
        {"register_pinned",
         [](void* p, uint64_t nbytes) {  // 0: no longer
           nbytes > 0 ? driver().register_pinned(p, nbytes) : driver().unregister_pinned(p);
         }},

        // pools and graphs
        {"new_pool",
         [] {
           static std::atomic<int64_t> next{1};
           return next.fetch_add(1);
         }},
        {"pool_use", [](int device, uint64_t pool) { use_pool(device, pool, false); }},
        {"pool_use_in_thread", [](int device, uint64_t pool) { use_pool(device, pool, true); }},
        {"pool_end", [](int device, uint64_t pool) { device_allocator(device_or_current(device)).end_pool(pool); }},
        {"pool_retain",
         [](int device, uint64_t pool) { device_allocator(device_or_current(device)).retain_pool(pool); }},
        {"pool_release",
         [](int device, uint64_t pool) { device_allocator(device_or_current(device)).release_pool(pool); }},
        {"begin_capture", [](int device, StreamHandle stream, uint64_t pool,
                             std::string_view mode) { begin_capture(device, stream, pool, mode); }},
        {"end_capture",
         [](int device, StreamHandle stream, uint64_t pool) { return end_capture(device, stream, pool); }},
        {"instantiate",
         [](GraphHandle graph) {
           const GraphExecHandle exec = driver().instantiate(graph);
           instantiate_draws(graph, exec);
           return exec;
         }},
        {"launch_graph",
         [](int device, GraphExecHandle exec, StreamHandle stream) {
           DeviceGuard guard(device);
           launch_draws(exec, {stream, device});
           driver().launch_graph(exec, stream);
         }},
        {"graph_dot", [](GraphHandle graph) { return driver().graph_dot(graph); }},
        {"destroy_graph", [](GraphHandle graph, GraphExecHandle exec) { destroy_graph(graph, exec); }},

        // kernels made at run time; for tests: their texts, with a zero between them, and what the NVRTC in a file makes
        // of one
        {"chain_texts", [] { return chain_texts(); }},
        {"compile_cubin", [](std::string_view library, int architecture, std::string_view text) {
           void* opened = dlopen(std::string(library).c_str(), RTLD_NOW);
           TG_CHECK(opened != nullptr, Runtime, "cuda: NVRTC cannot be loaded: {}", dlerror());
           return compile_cubin([&](const char* s) { return dlsym(opened, s); }, architecture, std::string(text),
                                device_texts());
         }},
    };
    auto* map = new std::unordered_map<std::string_view, Function>;
    for (const Row& row : rows) map->emplace(row.name, row.function);
    return map;
  }();
  return all;
}

}  // namespace

DeviceValue call_function(std::string_view name, std::span<const DeviceValue> arguments) try {
  const auto found = table().find(name);
  TG_CHECK(found != table().end(), Value, "cuda: there is no function '{}'", name);
  return found->second(arguments);
} catch (const std::bad_variant_access&) {
  TG_THROW(Type, "cuda: the arguments do not fit '{}': got {} of them", name, arguments.size());
}

}  // namespace tapegrad::cuda
