// tapegrad._C's functions for tapegrad.cuda: each asks the interface of the CUDA library, which the first call loads.
// Devices are given as indices, -1 being the current one; streams, events and graphs as numbers.
#include "tapegrad/autograd/call_site.h"
#include "tapegrad/bindings/args.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/c10/device_interface.h"

namespace tapegrad::python {

namespace {

void warn(const std::string& text) {
  const PyGILState_STATE state = PyGILState_Ensure();
  if (PyErr_WarnEx(PyExc_UserWarning, text.c_str(), 1) < 0) PyErr_WriteUnraisable(nullptr);
  PyGILState_Release(state);
}

// Runs Python's collector, when this thread may: objects in cycles may hold the memory that is wanted.
void collect() {
  if (!PyGILState_Check()) return;
  PyObject *type, *value, *trace;
  PyErr_Fetch(&type, &value, &trace);
  PyGC_Collect();
  PyErr_Restore(type, value, trace);
}

DeviceInterface& cuda(const char* op) { return need_device(DeviceType::CUDA, op); }

// Functions of one line each: TG_CUDA_CALL(name, "format", variables, result).
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

TG_CUDA_FUNCTION(set_device) {
  TG_PY_TRY
  int device;
  TG_PARSE("i:_cuda_set_device", &device);
  cuda("cuda.set_device").set_current(device);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(synchronize) {
  TG_PY_TRY
  int device;
  TG_PARSE("i:_cuda_synchronize", &device);
  DeviceInterface& c = cuda("cuda.synchronize");
  {
    GilRelease released;
    c.synchronize(device);
  }
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(can_access_peer) {
  TG_PY_TRY
  int device, peer;
  TG_PARSE("ii:_cuda_can_access_peer", &device, &peer);
  return PyBool_FromLong(cuda("cuda.can_device_access_peer").can_access_peer(device, peer));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(report) {
  TG_PY_TRY
  const char *op, *what;
  int device;
  TG_PARSE("ssi:_cuda_report", &op, &what, &device);
  const std::string text = cuda(op).report(what, device);
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

TG_CUDA_FUNCTION(set_current_stream) {
  TG_PY_TRY
  int device;
  Number stream;
  TG_PARSE("iL:_cuda_set_current_stream", &device, &stream);
  cuda("cuda.set_stream").set_current_stream(device, stream);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(new_stream) {
  TG_PY_TRY
  int device, priority;
  TG_PARSE("ii:_cuda_new_stream", &device, &priority);
  DeviceInterface& c = cuda("cuda.Stream");
  if (device < 0) device = c.current();
  return Py_BuildValue("(Li)", static_cast<Number>(c.new_stream(device, priority)), device);
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(stream_priority) {
  TG_PY_TRY
  int device;
  Number stream;
  TG_PARSE("iL:_cuda_stream_priority", &device, &stream);
  return PyLong_FromLong(cuda("cuda.Stream").stream_priority(device, stream));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(priority_range) {
  TG_PY_TRY
  TG_PARSE(":_cuda_priority_range");
  const auto [least, greatest] = cuda("cuda.Stream.priority_range").priority_range();
  return Py_BuildValue("(ii)", least, greatest);
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(query_stream) {
  TG_PY_TRY
  int device;
  Number stream;
  TG_PARSE("iL:_cuda_query_stream", &device, &stream);
  return PyBool_FromLong(cuda("cuda.Stream.query").query_stream(device, stream));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(synchronize_stream) {
  TG_PY_TRY
  int device;
  Number stream;
  TG_PARSE("iL:_cuda_synchronize_stream", &device, &stream);
  DeviceInterface& c = cuda("cuda.Stream.synchronize");
  {
    GilRelease released;
    c.synchronize_stream(device, stream);
  }
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(stream_wait_event) {
  TG_PY_TRY
  int device;
  Number stream, event;
  TG_PARSE("iLL:_cuda_stream_wait_event", &device, &stream, &event);
  cuda("cuda.Stream.wait_event").stream_wait_event(device, stream, event);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// --- events ---

TG_CUDA_FUNCTION(create_event) {
  TG_PY_TRY
  int device, timing, blocking, interprocess;
  TG_PARSE("ippp:_cuda_create_event", &device, &timing, &blocking, &interprocess);
  return PyLong_FromLongLong(cuda("cuda.Event").create_event(device, timing, blocking, interprocess));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(destroy_event) {
  TG_PY_TRY
  Number event;
  TG_PARSE("L:_cuda_destroy_event", &event);
  cuda("cuda.Event").destroy_event(event);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(record_event) {
  TG_PY_TRY
  int device;
  Number event, stream;
  TG_PARSE("iLL:_cuda_record_event", &device, &event, &stream);
  cuda("cuda.Event.record").record_event(device, event, stream);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(query_event) {
  TG_PY_TRY
  Number event;
  TG_PARSE("L:_cuda_query_event", &event);
  return PyBool_FromLong(cuda("cuda.Event.query").query_event(event));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(synchronize_event) {
  TG_PY_TRY
  Number event;
  TG_PARSE("L:_cuda_synchronize_event", &event);
  DeviceInterface& c = cuda("cuda.Event.synchronize");
  {
    GilRelease released;
    c.synchronize_event(event);
  }
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(elapsed_ms) {
  TG_PY_TRY
  Number start, end;
  TG_PARSE("LL:_cuda_elapsed_ms", &start, &end);
  return PyFloat_FromDouble(cuda("cuda.Event.elapsed_time").elapsed_ms(start, end));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(event_ipc_handle) {
  TG_PY_TRY
  Number event;
  TG_PARSE("L:_cuda_event_ipc_handle", &event);
  const std::string handle = cuda("cuda.Event.ipc_handle").event_ipc_handle(event);
  return PyBytes_FromStringAndSize(handle.data(), static_cast<Py_ssize_t>(handle.size()));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(open_event) {
  TG_PY_TRY
  int device;
  const char* bytes;
  Py_ssize_t n;
  TG_PARSE("iy#:_cuda_open_event", &device, &bytes, &n);
  return PyLong_FromLongLong(cuda("cuda.Event.from_ipc_handle").open_event(device, {bytes, static_cast<size_t>(n)}));
  TG_PY_CATCH
}

// --- memory ---

TG_CUDA_FUNCTION(empty_cache) {
  TG_PY_TRY
  int pinned;
  TG_PARSE("p:_cuda_empty_cache", &pinned);
  DeviceInterface& c = cuda("cuda.empty_cache");
  {
    GilRelease released;
    if (pinned)
      c.empty_pinned_cache();
    else
      c.empty_cache();
  }
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(reset_stats) {
  TG_PY_TRY
  int device, peak;
  TG_PARSE("ip:_cuda_reset_stats", &device, &peak);
  DeviceInterface& c = cuda("cuda.reset_peak_memory_stats");
  if (peak)
    c.reset_peak(device);
  else
    c.reset_accumulated(device);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(memory_info) {
  TG_PY_TRY
  int device;
  TG_PARSE("i:_cuda_memory_info", &device);
  const auto [free, total] = cuda("cuda.mem_get_info").memory_info(device);
  return Py_BuildValue("(KK)", static_cast<unsigned long long>(free), static_cast<unsigned long long>(total));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(memory_fraction) {
  TG_PY_TRY
  int device;
  PyObject* fraction = Py_None;
  TG_PARSE("i|O:_cuda_memory_fraction", &device, &fraction);
  DeviceInterface& c = cuda("cuda.set_per_process_memory_fraction");
  if (fraction != Py_None)
    c.set_memory_fraction(device, to_double(fraction, {"set_per_process_memory_fraction", "fraction"}));
  return PyFloat_FromDouble(c.memory_fraction(device));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(allocate_raw) {
  TG_PY_TRY
  int device;
  unsigned long long nbytes;
  Number stream;
  TG_PARSE("iKL:_cuda_allocate_raw", &device, &nbytes, &stream);
  return PyLong_FromUnsignedLongLong(cuda("cuda.caching_allocator_alloc").allocate_raw(device, nbytes, stream));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(free_raw) {
  TG_PY_TRY
  unsigned long long address;
  TG_PARSE("K:_cuda_free_raw", &address);
  cuda("cuda.caching_allocator_delete").free_raw(address);
  Py_RETURN_NONE;
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

TG_CUDA_FUNCTION(record_history) {
  TG_PY_TRY
  unsigned long long most;
  TG_PARSE("K:_cuda_record_history", &most);
  cuda("cuda.memory._record_memory_history").record_history(most);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(set_allocator_option) {
  TG_PY_TRY
  const char *name, *value;
  TG_PARSE("ss:_cuda_set_allocator_option", &name, &value);
  cuda("cuda.memory._set_allocator_settings").set_option(name, value);
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

TG_CUDA_FUNCTION(register_pinned) {
  TG_PY_TRY
  unsigned long long address, nbytes;
  TG_PARSE("KK:_cuda_register_pinned", &address, &nbytes);
  DeviceInterface& c = cuda("cuda.cudart");
  if (nbytes > 0)
    c.register_pinned(reinterpret_cast<void*>(address), nbytes);
  else
    c.unregister_pinned(reinterpret_cast<void*>(address));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// --- pools and graphs ---

TG_CUDA_FUNCTION(new_pool) {
  TG_PY_TRY
  TG_PARSE(":_cuda_new_pool");
  return PyLong_FromUnsignedLongLong(cuda("cuda.graph_pool_handle").new_pool());
  TG_PY_CATCH
}

// _cuda_pool(what, device, pool): use, use_in_thread, end, retain, release.
TG_CUDA_FUNCTION(pool) {
  TG_PY_TRY
  const char* what;
  int device;
  unsigned long long id;
  TG_PARSE("siK:_cuda_pool", &what, &device, &id);
  DeviceInterface& c = cuda("cuda.use_mem_pool");
  const std::string_view w = what;
  if (w == "use" || w == "use_in_thread")
    c.use_pool(device, id, w != "use");
  else if (w == "end")
    c.end_pool(device, id);
  else if (w == "retain")
    c.retain_pool(device, id);
  else if (w == "release")
    c.release_pool(device, id);
  else
    TG_THROW(Value, "_cuda_pool: got '{}'", w);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(begin_capture) {
  TG_PY_TRY
  int device;
  Number stream;
  unsigned long long id;
  const char* mode;
  TG_PARSE("iLKs:_cuda_begin_capture", &device, &stream, &id, &mode);
  cuda("cuda.CUDAGraph.capture_begin").begin_capture(device, stream, id, mode);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(end_capture) {
  TG_PY_TRY
  int device;
  Number stream;
  unsigned long long id;
  TG_PARSE("iLK:_cuda_end_capture", &device, &stream, &id);
  return PyLong_FromLongLong(cuda("cuda.CUDAGraph.capture_end").end_capture(device, stream, id));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(is_capturing) {
  TG_PY_TRY
  int device;
  Number stream;
  TG_PARSE("iL:_cuda_is_capturing", &device, &stream);
  return PyBool_FromLong(cuda("cuda.is_current_stream_capturing").is_capturing(device, stream));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(instantiate) {
  TG_PY_TRY
  Number graph;
  TG_PARSE("L:_cuda_instantiate", &graph);
  return PyLong_FromLongLong(cuda("cuda.CUDAGraph.instantiate").instantiate(graph));
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(launch_graph) {
  TG_PY_TRY
  int device;
  Number exec, stream;
  TG_PARSE("iLL:_cuda_launch_graph", &device, &exec, &stream);
  cuda("cuda.CUDAGraph.replay").launch_graph(device, exec, stream);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(graph_dot) {
  TG_PY_TRY
  Number graph;
  TG_PARSE("L:_cuda_graph_dot", &graph);
  return PyUnicode_FromString(cuda("cuda.CUDAGraph.debug_dump").graph_dot(graph).c_str());
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(destroy_graph) {
  TG_PY_TRY
  Number graph, exec;
  TG_PARSE("LL:_cuda_destroy_graph", &graph, &exec);
  DeviceInterface& c = cuda("cuda.CUDAGraph.reset");
  if (graph != 0) c.destroy_graph(graph);
  if (exec != 0) c.destroy_graph_exec(exec);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// --- waiting and profiling ---

TG_CUDA_FUNCTION(wait_mode) {
  TG_PY_TRY
  int mode = -1;
  TG_PARSE("|i:_cuda_wait_mode", &mode);
  DeviceInterface& c = cuda("cuda.set_sync_debug_mode");
  if (mode >= 0) c.set_wait_mode(mode);
  return PyLong_FromLong(c.wait_mode());
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(mark) {
  TG_PY_TRY
  int what;
  const char* text;
  unsigned long long id = 0;
  TG_PARSE("is|K:_cuda_mark", &what, &text, &id);
  uint64_t number = id;
  if (DeviceInterface* c = device_interface(DeviceType::CUDA)) c->mark(what, text, &number);
  return PyLong_FromUnsignedLongLong(number);
  TG_PY_CATCH
}

TG_CUDA_FUNCTION(profiler) {
  TG_PY_TRY
  const char* op;
  int on;
  TG_PARSE("sp:_cuda_profiler", &op, &on);
  cuda(op).profiler(on != 0);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

}  // namespace

#define TG_ROW(name) \
  { "_cuda_" #name, name, METH_VARARGS, nullptr }

// clang-format off
PyMethodDef cuda_functions[] = {
    TG_ROW(device_count), TG_ROW(state), TG_ROW(why_not), TG_ROW(current_device), TG_ROW(set_device),
    TG_ROW(synchronize), TG_ROW(can_access_peer), TG_ROW(report), TG_ROW(current_stream), TG_ROW(set_current_stream),
    TG_ROW(new_stream), TG_ROW(stream_priority), TG_ROW(priority_range), TG_ROW(query_stream),
    TG_ROW(synchronize_stream), TG_ROW(stream_wait_event), TG_ROW(create_event), TG_ROW(destroy_event),
    TG_ROW(record_event), TG_ROW(query_event), TG_ROW(synchronize_event), TG_ROW(elapsed_ms),
    TG_ROW(event_ipc_handle), TG_ROW(open_event), TG_ROW(empty_cache), TG_ROW(reset_stats), TG_ROW(memory_info),
    TG_ROW(memory_fraction), TG_ROW(allocate_raw), TG_ROW(free_raw), TG_ROW(record_stream), TG_ROW(record_history),
    TG_ROW(set_allocator_option), TG_ROW(pinned_empty), TG_ROW(register_pinned), TG_ROW(new_pool),
    TG_ROW(pool), TG_ROW(begin_capture), TG_ROW(end_capture), TG_ROW(is_capturing), TG_ROW(instantiate),
    TG_ROW(launch_graph), TG_ROW(graph_dot), TG_ROW(destroy_graph), TG_ROW(wait_mode), TG_ROW(mark), TG_ROW(profiler),
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
