// tapegrad._C's functions for tapegrad.cuda: each calls the interface of the CUDA library, which is loaded by the first
// call. Devices are given as indices, -1 being the current one; streams, events and graphs as numbers.
#include <optional>
#include <span>
#include <variant>

#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/aten/record/recording.h"
#include "tapegrad/autograd/profiler/call_site.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/record/plans.h"
#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/dispatch/float32_precision.h"
#include "tapegrad/multiprocessing/exchange.h"

namespace tapegrad::python {

namespace {

void warn(const std::string& text) {
  const GilGuard gil;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1 + frames_of_package()) < 0) PyErr_WriteUnraisable(nullptr);
}

// First memory released by other processes; then Python's garbage collector, if this thread may run it: objects in
// cycles may hold the needed memory.
void collect() noexcept {
  shared::exchange().collect();
  if (!holds_gil()) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyGC_Collect();
  PyErr_Restore(type, value, trace);
}

DeviceInterface& cuda(const char* op) { return need_device(DeviceType::CUDA, op); }

// --- functions of the device's table, which take and give what they are given ---

DeviceValue to_value(PyObject* o) {
  if (PyBool_Check(o)) return o == Py_True;
  if (PyFloat_Check(o)) return PyFloat_AS_DOUBLE(o);
  if (PyUnicode_Check(o)) {
    Py_ssize_t size;
    const char* text = PyUnicode_AsUTF8AndSize(o, &size);
    if (text == nullptr) throw PythonError();
    return std::string(text, static_cast<size_t>(size));
  }
  if (PyBytes_Check(o)) return std::string(PyBytes_AS_STRING(o), static_cast<size_t>(PyBytes_GET_SIZE(o)));
  // An address is a number of 64 bits without a sign.
  const unsigned long long number = PyLong_AsUnsignedLongLongMask(o);
  if (PyErr_Occurred()) throw PythonError();
  return static_cast<int64_t>(number);
}

// What destructors call, whenever that may be. Everything else that is asked of the device is no call of a kernel, and
// no recorded step repeats it.
constexpr bool is_release(std::string_view name) { return name.starts_with("destroy") || name == "pool_release"; }

// Calls kName of the table for the caller's kOp. kWaits: other threads of Python run meanwhile.
template <Text kName, Text kOp, bool kWaits = false>
PyObject* passing_on(PyObject*, PyObject* const* args, Py_ssize_t count) {
  TG_PY_TRY
  constexpr size_t kMost = 4;
  DeviceValue values[kMost];
  TG_CHECK(count <= static_cast<Py_ssize_t>(kMost), Type, "_cuda_{}: got {} arguments", kName.text, count);
  for (Py_ssize_t i = 0; i < count; ++i) values[i] = to_value(args[i]);
  if (!is_release(kName.text)) record::refuse(fmt::format("it calls {}", kOp.text));
  DeviceInterface& c = cuda(kOp.text);
  std::optional<GilRelease> released;
  if (kWaits) released.emplace();
  const DeviceValue result = c.call(kName.text, std::span<const DeviceValue>(values, static_cast<size_t>(count)));
  released.reset();
  return rows::to_python(result);
  TG_PY_CATCH
}

// A function of the Python package names the operation that it is for.
struct Op {
  const char* name;
  static Op from(PyObject* o, const char* op) { return {to_str(o, {op, "op", 1}).data()}; }
};

// The device of an index.
int device_or_current(DeviceInterface& c, int device) { return device < 0 ? c.current() : device; }

PyObject* state() {
  DeviceInterface* c = device_interface_loaded(DeviceType::CUDA) ? device_interface(DeviceType::CUDA) : nullptr;
  return Py_BuildValue("(NNN)", PyBool_FromLong(c != nullptr), PyBool_FromLong(c && c->initialized()),
                       PyBool_FromLong(c && c->simulated()));
}

PyObject* report(Op op, std::string_view what, int device) {
  const auto text = std::get<std::string>(cuda(op.name).call("report", {std::string(what), int64_t{device}}));
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
}

std::pair<int64_t, int> current_stream(Op op, int device) {
  DeviceInterface& c = cuda(op.name);
  device = device_or_current(c, device);
  return {c.current_stream(device), device};
}

std::pair<int64_t, int> new_stream(int device, int priority) {
  DeviceInterface& c = cuda("cuda.Stream");
  device = device_or_current(c, device);
  return {std::get<int64_t>(c.call("new_stream", {int64_t{device}, int64_t{priority}})), device};
}

double memory_fraction(int device, OrNull fraction) {
  DeviceInterface& c = cuda("cuda.set_per_process_memory_fraction");
  if (fraction && fraction != Py_None)
    c.call("set_memory_fraction",
           {int64_t{device}, to_double(fraction, {"set_per_process_memory_fraction", "fraction"})});
  return std::get<double>(c.call("memory_fraction", {int64_t{device}}));
}

void record_stream(PyObject* tensor, int64_t stream) {
  const Tensor& t = to_tensor(tensor, {"record_stream", "self", 1});
  TG_CHECK(t.is_cuda(), NotImplemented, "record_stream: only for tensors on CUDA devices: got one on {}", t.device());
  cuda("record_stream").note_use(*t.impl()->storage(), stream);
}

Tensor bytes_over(Storage storage, int64_t nbytes) {
  return Tensor(make_intrusive<TensorImpl>(std::move(storage), DType::uint8, IntSpan(DimVector{nbytes})));
}

// Bytes of pinned memory, as a tensor of uint8 on the CPU.
Tensor pinned_empty(int64_t nbytes) {
  TG_CHECK(nbytes >= 0, Runtime, "pin_memory: the size must not be negative: got {}", nbytes);
  return bytes_over(cuda("pin_memory").allocate_pinned(static_cast<size_t>(nbytes)), nbytes);
}

// Memory of a device that another library made, as a tensor of uint8.
Tensor over(uint64_t pointer, int64_t nbytes, int device, PyObject* owner) {
  TG_CHECK(nbytes >= 0 && device >= 0 && device < cuda("cuda").count(), Runtime,
           "__cuda_array_interface__: {} bytes on cuda:{}", nbytes, device);
  auto storage = make_intrusive<StorageImpl>(
      reinterpret_cast<void*>(static_cast<uintptr_t>(pointer)), static_cast<size_t>(nbytes),
      Device(DeviceType::CUDA, static_cast<int8_t>(device)),
      [](void* context, void*, size_t) noexcept {
        with_gil_while_it_lasts([context] { Py_DECREF(static_cast<PyObject*>(context)); });
      },
      Py_NewRef(owner));
  storage->set_resizable(false);
  return bytes_over(std::move(storage), nbytes);
}

void pool(std::string_view what, int device, uint64_t id) {
  cuda("cuda.use_mem_pool").call("pool_" + std::string(what), {int64_t{device}, static_cast<int64_t>(id)});
}

int wait_mode(Or<-1> mode) {
  DeviceInterface& c = cuda("cuda.set_sync_debug_mode");
  if (mode >= 0) c.call("set_wait_mode", {int64_t{mode}});
  return static_cast<int>(std::get<int64_t>(c.call("wait_mode", {})));
}

// Loads nothing; nor does the next one.
bool tf32(OrNull allow) {
  if (allow) {
    const int truth = PyObject_IsTrue(allow);
    check_status(truth);
    set_allow_tf32(truth != 0);
  }
  return allow_tf32();
}

int switch_cudnn(int which, Or<-1> value) {
  TG_CHECK(which >= 0 && which < static_cast<int>(CudnnSwitch::Count), Value, "_cuda_cudnn_switch: no switch {}",
           which);
  if (value >= 0) set_cudnn_switch(static_cast<CudnnSwitch>(which), value);
  return cudnn_switch(static_cast<CudnnSwitch>(which));
}

uint64_t mark(int what, std::string_view text, Or<uint64_t{0}> id) {
  DeviceInterface* c = device_interface(DeviceType::CUDA);
  if (c == nullptr) return id;
  const DeviceValue number = c->call("mark", {int64_t{what}, std::string(text), static_cast<int64_t>(uint64_t{id})});
  return static_cast<uint64_t>(std::get<int64_t>(number));
}

}  // namespace

#define TG_PASS(name, ...) {"_cuda_" #name, as_c_function(passing_on<#name, __VA_ARGS__>), METH_FASTCALL, nullptr}

// clang-format off
PyMethodDef cuda_functions[] = {
    method<"_cuda_device_count", [] {
      DeviceInterface* c = device_interface(DeviceType::CUDA);
      return c ? c->count() : 0;
    }>(),
    method<"_cuda_state", state>(),  // (loaded, initialized, simulated) without loading anything
    method<"_cuda_why_not", [] { return device_why_not(DeviceType::CUDA); }>(),
    method<"_cuda_current_device", [](Op op) { return cuda(op.name).current(); }>(),
    method<"_cuda_report", report>(),
    method<"_cuda_current_stream", current_stream>(),
    method<"_cuda_new_stream", new_stream>(),
    method<"_cuda_event_ipc_handle", [](int64_t event) {
      return Bytes{std::get<std::string>(cuda("cuda.Event.ipc_handle").call("event_ipc_handle", {event}))};
    }>(),
    method<"_cuda_is_capturing", [](int device, int64_t stream) {
      return cuda("cuda.is_current_stream_capturing").is_capturing(device, stream);
    }>(),
    method<"_cuda_is_captured", is_captured>(),  // what this thread queues on its current stream, in a graph of the program
    // What the NVRTC in a file makes of the text of a kernel: for tests of what _cuda_chain_texts() gives.
    method<"_cuda_compile_cubin", [](std::string_view library, int64_t architecture, std::string_view text) {
      return Bytes{std::get<std::string>(cuda("record").call(
          "compile_cubin", {std::string(library), architecture, std::string(text)}))};
    }>(),
    method<"_cuda_memory_fraction", memory_fraction>(),
    method<"_cuda_record_stream", record_stream>(),
    method<"_cuda_pinned_empty", pinned_empty>(),
    method<"_cuda_over", over>(),
    method<"_cuda_pool", pool>(),
    method<"_cuda_wait_mode", wait_mode>(),
    method<"_cuda_allow_tf32", tf32>(),
    method<"_cuda_cudnn_switch", switch_cudnn>(),
    method<"_cuda_mark", mark>(),
    method<"_cuda_profiler", [](Op op, bool on) { cuda(op.name).call("profiler", {on}); }>(),
    TG_PASS(set_device, "cuda.set_device"), TG_PASS(synchronize, "cuda.synchronize", true),
    TG_PASS(can_access_peer, "cuda.can_device_access_peer"), TG_PASS(set_current_stream, "cuda.set_stream"),
    TG_PASS(stream_priority, "cuda.Stream"), TG_PASS(priority_range, "cuda.Stream.priority_range"),
    TG_PASS(query_stream, "cuda.Stream.query"), TG_PASS(synchronize_stream, "cuda.Stream.synchronize", true),
    TG_PASS(stream_wait_event, "cuda.Stream.wait_event"), TG_PASS(create_event, "cuda.Event"),
    TG_PASS(open_event, "cuda.Event.from_ipc_handle"), TG_PASS(destroy_event, "cuda.Event"),
    TG_PASS(record_event, "cuda.Event.record"), TG_PASS(query_event, "cuda.Event.query"),
    TG_PASS(synchronize_event, "cuda.Event.synchronize", true), TG_PASS(elapsed_ms, "cuda.Event.elapsed_time"),
    TG_PASS(empty_cache, "cuda.empty_cache", true), TG_PASS(reset_stats, "cuda.reset_peak_memory_stats"),
    TG_PASS(register_pinned, "cuda.cudart"), TG_PASS(memory_info, "cuda.mem_get_info"),
    TG_PASS(allocate_raw, "cuda.caching_allocator_alloc"), TG_PASS(device_of, "__cuda_array_interface__"),
    TG_PASS(free_raw, "cuda.caching_allocator_delete"), TG_PASS(record_history, "cuda.memory._record_memory_history"),
    TG_PASS(set_allocator_option, "cuda.memory._set_allocator_settings"), TG_PASS(new_pool, "cuda.graph_pool_handle"),
    TG_PASS(begin_capture, "cuda.CUDAGraph.capture_begin"), TG_PASS(end_capture, "cuda.CUDAGraph.capture_end"),
    TG_PASS(instantiate, "cuda.CUDAGraph.instantiate"),
    TG_PASS(launch_graph, "cuda.CUDAGraph.replay"), TG_PASS(destroy_graph, "cuda.CUDAGraph.reset"),
    TG_PASS(graph_dot, "cuda.CUDAGraph.debug_dump"), TG_PASS(chain_texts, "record"),
    {},
};
// clang-format on

void init_device_hooks() {
  HostHooks& hooks = host_hooks();
  hooks.site = []() noexcept { return autograd::current_site(); };
  hooks.describe_site = autograd::describe_site;
  hooks.warn = warn;
  hooks.collect = collect;
}

}  // namespace tapegrad::python
