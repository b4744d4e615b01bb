// tapegrad._C's functions for tapegrad.cuda: each calls the interface of the CUDA library, which is loaded by the first
// call. Devices are given as indices, -1 being the current one; streams, events and graphs as numbers.
#include <algorithm>
#include <optional>
#include <span>
#include <variant>

#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/autograd/call_site.h"
#include "tapegrad/bindings/args.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/c10/device_interface.h"
#include "tapegrad/c10/float32_precision.h"
#include "tapegrad/multiprocessing/exchange.h"

namespace tapegrad::python {

namespace {

void warn(const std::string& text) {
  const GilGuard gil;
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) < 0) PyErr_WriteUnraisable(nullptr);
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

PyObject* to_python(const DeviceValue& value) {
  struct {
    PyObject* operator()(std::monostate) const { return Py_NewRef(Py_None); }
    PyObject* operator()(bool v) const { return PyBool_FromLong(v); }
    PyObject* operator()(int64_t v) const { return PyLong_FromLongLong(v); }
    PyObject* operator()(double v) const { return PyFloat_FromDouble(v); }
    PyObject* operator()(const std::string& v) const { return PyUnicode_FromString(v.c_str()); }
    PyObject* operator()(const std::pair<int64_t, int64_t>& v) const {
      return Py_BuildValue("(LL)", static_cast<long long>(v.first), static_cast<long long>(v.second));
    }
  } visitor;
  return std::visit(visitor, value);
}

// Text as a template argument.
template <size_t N>
struct Text {
  char text[N];
  consteval Text(const char (&from)[N]) { std::copy_n(from, N, text); }
};

// Calls kName of the table for the caller's kOp. kWaits: other threads of Python run meanwhile.
template <Text kName, Text kOp, bool kWaits = false>
PyObject* passing_on(PyObject*, PyObject* const* args, Py_ssize_t count) {
  TG_PY_TRY
  constexpr size_t kMost = 4;
  DeviceValue values[kMost];
  TG_CHECK(count <= static_cast<Py_ssize_t>(kMost), Type, "_cuda_{}: got {} arguments", kName.text, count);
  for (Py_ssize_t i = 0; i < count; ++i) values[i] = to_value(args[i]);
  DeviceInterface& c = cuda(kOp.text);
  std::optional<GilRelease> released;
  if (kWaits) released.emplace();
  const DeviceValue result = c.call(kName.text, std::span<const DeviceValue>(values, static_cast<size_t>(count)));
  released.reset();
  return to_python(result);
  TG_PY_CATCH
}

// --- functions that do more ---

#define TG_CUDA_FUNCTION(name) PyObject* name(PyObject*, PyObject* args)
#define TG_PARSE(...) \
  if (!PyArg_ParseTuple(args, __VA_ARGS__)) return nullptr
using Number = long long;

TG_CUDA_FUNCTION(device_count) {
  TG_PY_TRY
  TG_PARSE(":_cuda_device_count");
  DeviceInterface* c = device_interface(DeviceType::CUDA);
  return PyLong_FromLong(c ? c->count() : 0);
  TG_PY_CATCH
}

// _cuda_state(): (loaded, initialized, simulated) without loading anything.
TG_CUDA_FUNCTION(state) {
  TG_PY_TRY
  TG_PARSE(":_cuda_state");
  DeviceInterface* c = device_interface_loaded(DeviceType::CUDA) ? device_interface(DeviceType::CUDA) : nullptr;
  return Py_BuildValue("(NNN)", PyBool_FromLong(c != nullptr), PyBool_FromLong(c && c->initialized()),
                       PyBool_FromLong(c && c->simulated()));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(why_not) {
  TG_PY_TRY
  TG_PARSE(":_cuda_why_not");
  return PyUnicode_FromString(device_why_not(DeviceType::CUDA).c_str());
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(current_device) {
  TG_PY_TRY
  const char* op;
  TG_PARSE("s:_cuda_current_device", &op);
  return PyLong_FromLong(cuda(op).current());
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(report) {
  TG_PY_TRY
  const char *op, *what;
  int device;
  TG_PARSE("ssi:_cuda_report", &op, &what, &device);
  const auto text = std::get<std::string>(cuda(op).call("report", {what, int64_t{device}}));
  return PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace");
  TG_PY_CATCH
}

// --- streams ---

TG_CUDA_FUNCTION(current_stream) {
  TG_PY_TRY
  const char* op;
  int device;
  TG_PARSE("si:_cuda_current_stream", &op, &device);
  DeviceInterface& c = cuda(op);
  if (device < 0) device = c.current();
  return Py_BuildValue("(Li)", static_cast<Number>(c.current_stream(device)), device);
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(new_stream) {
  TG_PY_TRY
  int device, priority;
  TG_PARSE("ii:_cuda_new_stream", &device, &priority);
  DeviceInterface& c = cuda("cuda.Stream");
  if (device < 0) device = c.current();
  const PyRef stream(to_python(c.call("new_stream", {int64_t{device}, int64_t{priority}})));
  return Py_BuildValue("(Oi)", stream.get(), device);
  TG_PY_CATCH
}

// --- events ---

TG_CUDA_FUNCTION(event_ipc_handle) {
  TG_PY_TRY
  Number event;
  TG_PARSE("L:_cuda_event_ipc_handle", &event);
  const auto handle =
      std::get<std::string>(cuda("cuda.Event.ipc_handle").call("event_ipc_handle", {static_cast<int64_t>(event)}));
  return PyBytes_FromStringAndSize(handle.data(), static_cast<Py_ssize_t>(handle.size()));
  TG_PY_CATCH
}

// --- memory ---

TG_CUDA_FUNCTION(memory_fraction) {
  TG_PY_TRY
  int device;
  PyObject* fraction = Py_None;
  TG_PARSE("i|O:_cuda_memory_fraction", &device, &fraction);
  DeviceInterface& c = cuda("cuda.set_per_process_memory_fraction");
  if (fraction != Py_None)
    c.call("set_memory_fraction",
           {int64_t{device}, to_double(fraction, {"set_per_process_memory_fraction", "fraction"})});
  return to_python(c.call("memory_fraction", {int64_t{device}}));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(record_stream) {
  TG_PY_TRY
  PyObject* tensor;
  Number stream;
  TG_PARSE("OL:_cuda_record_stream", &tensor, &stream);
  const Tensor& t = to_tensor(tensor, {"record_stream", "self", 1});
  TG_CHECK(t.is_cuda(), NotImplemented, "record_stream: only for tensors on CUDA devices: got one on {}", t.device());
  cuda("record_stream").note_use(*t.impl()->storage(), stream);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// _cuda_pinned_empty(nbytes): bytes of pinned memory, as a tensor of uint8 on the CPU.
TG_CUDA_FUNCTION(pinned_empty) {
  TG_PY_TRY
  Py_ssize_t nbytes;
  TG_PARSE("n:_cuda_pinned_empty", &nbytes);
  TG_CHECK(nbytes >= 0, Runtime, "pin_memory: the size must not be negative: got {}", nbytes);
  Storage storage = cuda("pin_memory").allocate_pinned(static_cast<size_t>(nbytes));
  return wrap(Tensor(make_intrusive<TensorImpl>(std::move(storage), DType::uint8, IntSpan(DimVector{nbytes}))));
  TG_PY_CATCH
}

// _cuda_over(pointer, nbytes, device, owner): memory of a device that another library made, as a tensor of uint8.
TG_CUDA_FUNCTION(over) {
  TG_PY_TRY
  unsigned long long pointer;
  Py_ssize_t nbytes;
  int device;
  PyObject* owner;
  TG_PARSE("KniO:_cuda_over", &pointer, &nbytes, &device, &owner);
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
  return wrap(Tensor(make_intrusive<TensorImpl>(std::move(storage), DType::uint8, IntSpan(DimVector{nbytes}))));
  TG_PY_CATCH
}

// --- pools and graphs ---

// _cuda_pool(what, device, pool): use, use_in_thread, end, retain, release.
TG_CUDA_FUNCTION(pool) {
  TG_PY_TRY
  const char* what;
  int device;
  unsigned long long id;
  TG_PARSE("siK:_cuda_pool", &what, &device, &id);
  cuda("cuda.use_mem_pool").call(std::string("pool_") + what, {int64_t{device}, static_cast<int64_t>(id)});
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// --- waiting and profiling ---

TG_CUDA_FUNCTION(wait_mode) {
  TG_PY_TRY
  int mode = -1;
  TG_PARSE("|i:_cuda_wait_mode", &mode);
  DeviceInterface& c = cuda("cuda.set_sync_debug_mode");
  if (mode >= 0) c.call("set_wait_mode", {int64_t{mode}});
  return to_python(c.call("wait_mode", {}));
  TG_PY_CATCH
}

// _cuda_allow_tf32([allow]): loads nothing.
TG_CUDA_FUNCTION(allow_tf32) {
  TG_PY_TRY
  int allow = -1;
  TG_PARSE("|p:_cuda_allow_tf32", &allow);
  if (allow >= 0) set_allow_tf32(allow != 0);
  return PyBool_FromLong(::tapegrad::allow_tf32());
  TG_PY_CATCH
}

// _cuda_cudnn_switch(which, [value]) -> what it is: loads nothing.
TG_CUDA_FUNCTION(cudnn_switch) {
  TG_PY_TRY
  int which, value = -1;
  TG_PARSE("i|i:_cuda_cudnn_switch", &which, &value);
  TG_CHECK(which >= 0 && which < static_cast<int>(CudnnSwitch::Count), Value, "_cuda_cudnn_switch: no switch {}",
           which);
  if (value >= 0) set_cudnn_switch(static_cast<CudnnSwitch>(which), value);
  return PyLong_FromLong(::tapegrad::cudnn_switch(static_cast<CudnnSwitch>(which)));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(mark) {
  TG_PY_TRY
  int what;
  const char* text;
  unsigned long long id = 0;
  TG_PARSE("is|K:_cuda_mark", &what, &text, &id);
  if (DeviceInterface* c = device_interface(DeviceType::CUDA))
    return to_python(c->call("mark", {int64_t{what}, text, static_cast<int64_t>(id)}));
  return PyLong_FromUnsignedLongLong(id);
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(profiler) {
  TG_PY_TRY
  const char* op;
  int on;
  TG_PARSE("sp:_cuda_profiler", &op, &on);
  cuda(op).call("profiler", {on != 0});
  Py_RETURN_NONE;
  TG_PY_CATCH
}

}  // namespace

#define TG_ROW(name) {"_cuda_" #name, name, METH_VARARGS, nullptr}
#define TG_PASS(name, ...)                                                                                      \
  {"_cuda_" #name, reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(passing_on<#name, __VA_ARGS__>)), \
   METH_FASTCALL, nullptr}

// clang-format off
PyMethodDef cuda_functions[] = {
    TG_ROW(device_count), TG_ROW(state), TG_ROW(why_not), TG_ROW(current_device), TG_ROW(report),
    TG_ROW(current_stream), TG_ROW(new_stream), TG_ROW(event_ipc_handle), 
    TG_ROW(memory_fraction), TG_ROW(record_stream), TG_ROW(pinned_empty), TG_ROW(over), 
    TG_ROW(pool), TG_ROW(wait_mode), TG_ROW(allow_tf32), TG_ROW(cudnn_switch), TG_ROW(mark), TG_ROW(profiler),
    TG_PASS(set_device, "cuda.set_device"),
    TG_PASS(synchronize, "cuda.synchronize", true),
    TG_PASS(can_access_peer, "cuda.can_device_access_peer"),
    TG_PASS(set_current_stream, "cuda.set_stream"),
    TG_PASS(stream_priority, "cuda.Stream"),
    TG_PASS(priority_range, "cuda.Stream.priority_range"),
    TG_PASS(query_stream, "cuda.Stream.query"),
    TG_PASS(synchronize_stream, "cuda.Stream.synchronize", true),
    TG_PASS(stream_wait_event, "cuda.Stream.wait_event"),
    TG_PASS(create_event, "cuda.Event"),
    TG_PASS(open_event, "cuda.Event.from_ipc_handle"),
    TG_PASS(destroy_event, "cuda.Event"),
    TG_PASS(record_event, "cuda.Event.record"),
    TG_PASS(query_event, "cuda.Event.query"),
    TG_PASS(synchronize_event, "cuda.Event.synchronize", true),
    TG_PASS(elapsed_ms, "cuda.Event.elapsed_time"),
    TG_PASS(empty_cache, "cuda.empty_cache", true),
    TG_PASS(reset_stats, "cuda.reset_peak_memory_stats"),
    TG_PASS(register_pinned, "cuda.cudart"),
    TG_PASS(memory_info, "cuda.mem_get_info"),
    TG_PASS(allocate_raw, "cuda.caching_allocator_alloc"),
    TG_PASS(device_of, "__cuda_array_interface__"),
    TG_PASS(free_raw, "cuda.caching_allocator_delete"),
    TG_PASS(record_history, "cuda.memory._record_memory_history"),
    TG_PASS(set_allocator_option, "cuda.memory._set_allocator_settings"),
    TG_PASS(new_pool, "cuda.graph_pool_handle"),
    TG_PASS(begin_capture, "cuda.CUDAGraph.capture_begin"),
    TG_PASS(end_capture, "cuda.CUDAGraph.capture_end"),
    TG_PASS(is_capturing, "cuda.is_current_stream_capturing"),
    TG_PASS(instantiate, "cuda.CUDAGraph.instantiate"),
    TG_PASS(launch_graph, "cuda.CUDAGraph.replay"),
    TG_PASS(destroy_graph, "cuda.CUDAGraph.reset"),
    TG_PASS(graph_dot, "cuda.CUDAGraph.debug_dump"),
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
