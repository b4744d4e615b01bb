// Memory shared with others: NumPy arrays, DLPack capsules, the buffer protocol.

#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/keyword_method.h"
#include "tapegrad/bindings/exchange/dlpack.h"
#include "tapegrad/bindings/exchange/numpy.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/held.h"
#include "tapegrad/bindings/tensor/tensor_type.h"
#include "tapegrad/c10/device/device_interface.h"

namespace tapegrad::python {

namespace {

// The tensor whose memory may be shown to others: on the CPU, without a gradient.
PyRef exposable(PyObject* self, const char* op, bool force) {
  const Tensor& t = unwrap(self);
  if (t.is_batched()) batch::throw_needs_values(op);
  TG_CHECK(!t.is_meta(), Runtime, "{}: a meta tensor has no data", op);
  TG_CHECK(!t.is_sparse(), Type, "{}: can't convert Sparse layout tensor to numpy\nuse Tensor.to_dense() first", op);
  if (!force) {
    TG_CHECK(!t.requires_grad() || !grad_enabled(), Runtime,
             "{}: Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead: changes made "
             "through "
             "the shared memory would be lost to it",
             op);
    TG_CHECK(t.is_cpu(), Type, "{}: the tensor is on {}\nuse tensor.cpu() first", op, t.device());
    return PyRef::borrow(self);
  }
  PyRef result = PyRef::borrow(self);
  if (t.requires_grad()) result = own(wrap(t.detach()));
  if (!unwrap(result.get()).is_cpu()) result = call_method(result.get(), "cpu");
  return result;
}

PyObject* numpy(PyObject* self, const ArgumentsBase& a) {
  PyRef source = exposable(self, "numpy", a.boolean(1, false));
  return array_from_tensor(source.get()).release();
}

PyObject* array(PyObject* self, const ArgumentsBase& a) {
  PyRef source = exposable(self, "numpy", false);
  PyRef result = array_from_tensor(source.get());
  const std::optional<bool> copy = a.optional_boolean(2);
  if (a.has(1)) {
    PyRef same = PyRef();
    PyRef have = own(PyObject_GetAttrString(result.get(), "dtype"));
    const int equal = PyObject_RichCompareBool(have.get(), a.object(1), Py_EQ);
    check_status(equal);
    if (!equal) {
      TG_CHECK(copy.value_or(true), Value, "__array__: another dtype needs a copy, which copy=False forbids");
      return call_method(result.get(), "astype", a.object(1)).release();
    }
  }
  if (copy.value_or(false)) return call_method(result.get(), "copy").release();
  return result.release();
}

// Streams as DLPack counts them: 1 is the default one.
int64_t stream_of_dlpack(int64_t stream) { return stream == 1 ? 0 : stream; }

// The consumer's stream goes on when the work that made the tensor is done: what is queued on the current stream.
void wait_for_producer(const Device& device, int64_t consumer) {
  DeviceInterface& cuda = need_device(DeviceType::CUDA, "__dlpack__");
  cuda.order_streams(device.index, cuda.current_stream(device.index), consumer);
}

PyObject* dlpack(PyObject* self, const ArgumentsBase& a) {
  const int64_t stream = a.has(1) ? to_int(a.object(1), a.ctx(1)) : 1;
  bool versioned = false;
  if (a.has(2)) {
    const DimVector version = to_ints(a.object(2), a.ctx(2));
    versioned = !version.empty() && version[0] >= 1;
  }
  Tensor t = unwrap(self);
  if (t.requires_grad()) {  // the class that the array API asks for
    PyErr_SetString(PyExc_BufferError,
                    "__dlpack__: the tensor requires grad, which no other library can follow\nuse tensor.detach()");
    return nullptr;
  }
  if (a.has(3)) {
    const DimVector wanted = to_ints(a.object(3), a.ctx(3));
    const auto [type, id] = dlpack_device(t);
    if (wanted.size() != 2 || wanted[0] != type || wanted[1] != id) {
      PyErr_SetString(PyExc_BufferError, "__dlpack__: the tensor is not on the wanted device");
      return nullptr;
    }
  }
  const bool copied = a.has(4) && to_bool(a.object(4), a.ctx(4));
  if (copied) {
    PyRef copy = call_method(self, "clone");
    t = unwrap(copy.get());
  } else {
    t.impl()->storage()->set_resizable(false);
  }
  // Without a stream the consumer works on the default one; -1: it orders the work itself.
  if (t.is_cuda() && stream != -1) wait_for_producer(t.device(), stream_of_dlpack(stream));
  return to_dlpack(t, versioned, copied).release();
}

PyObject* dlpack_device_method(PyObject* self, PyObject*) {
  const auto [type, id] = dlpack_device(unwrap(self));
  return Py_BuildValue("(ii)", type, id);
}

int refuse_buffer(const char* why) {
  PyErr_SetString(PyExc_BufferError, why);
  return -1;
}

struct BufferShape {
  Py_ssize_t sizes[kMaxDims];
  Py_ssize_t strides[kMaxDims];
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  view->obj = nullptr;
  const Tensor& t = unwrap(self);
  const char* format = buffer_format(t.dtype());
  if (!t.is_cpu() || t.requires_grad()) return refuse_buffer("buffer: the tensor must be on the CPU and detached");
  if (!format) return refuse_buffer("buffer: there is no buffer format for bfloat16");
  const bool read_only = t.impl()->storage()->read_only();
  if (read_only && (flags & PyBUF_WRITABLE)) return refuse_buffer("buffer: the tensor is read-only");
  if (!t.is_contiguous() && (flags & PyBUF_STRIDES) != PyBUF_STRIDES)
    return refuse_buffer("buffer: the tensor is not contiguous");
  if ((flags & PyBUF_C_CONTIGUOUS) == PyBUF_C_CONTIGUOUS && !t.is_contiguous())
    return refuse_buffer("buffer: the tensor is not contiguous");
  if ((flags & PyBUF_F_CONTIGUOUS) == PyBUF_F_CONTIGUOUS && t.ndim() > 1)
    return refuse_buffer("buffer: the tensor is not in Fortran's order");
  auto* shape = new (std::nothrow) BufferShape;
  if (!shape) return refuse_buffer("buffer: out of memory");
  const auto itemsize = static_cast<Py_ssize_t>(t.itemsize());
  for (int d = 0; d < t.ndim(); ++d) {
    shape->sizes[d] = t.impl()->size(d);
    shape->strides[d] = t.impl()->stride(d) * itemsize;
  }
  static char nothing;
  record::note_host_read("the buffer protocol");
  view->buf = t.data_ptr() ? t.data_ptr() : &nothing;
  view->len = t.nbytes();
  view->itemsize = itemsize;
  view->readonly = read_only;
  view->ndim = t.ndim();
  view->format = (flags & PyBUF_FORMAT) ? const_cast<char*>(format) : nullptr;
  view->shape = (flags & PyBUF_ND) ? shape->sizes : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? shape->strides : nullptr;
  view->suboffsets = nullptr;
  view->internal = shape;
  view->obj = Py_NewRef(self);
  t.impl()->storage()->set_resizable(false);
  return 0;
}

void release_buffer(PyObject*, Py_buffer* view) { delete static_cast<BufferShape*>(view->internal); }

PyObject* from_numpy(PyObject*, PyObject* source) { return wrap(tensor_from_array(source, true)); }

// The CUDA device that a producer's memory is on; -1 where it is elsewhere.
int cuda_device_of(PyObject* source) {
  if (!PyObject_HasAttrString(source, "__dlpack_device__")) return -1;
  PyRef answer = call_method(source, "__dlpack_device__");
  PyRef pair = own(PySequence_Tuple(answer.get()));
  int type = 0, id = 0;
  check_status(PyArg_ParseTuple(pair.get(), "ii", &type, &id) != 0 ? 0 : -1);
  return type == 2 ? id : -1;
}

PyObject* from_dlpack(const ArgumentsBase& a) {
  PyObject* source = a.object(0);
  if (PyCapsule_CheckExact(source)) {
    TG_CHECK(!a.has(1) && !a.has(2), Value,
             "from_dlpack: device and copy are for objects with __dlpack__: got a capsule");
    return wrap(from_dlpack_capsule(source, PyRef()));
  }
  TG_CHECK(PyObject_HasAttrString(source, "__dlpack__"), Runtime,
           "from_dlpack: expected an object with __dlpack__ or a DLPack capsule: got {}", Py_TYPE(source)->tp_name);
  PyRef method = own(PyObject_GetAttrString(source, "__dlpack__"));
  PyRef none = own(PyTuple_New(0));
  PyRef options = own(Py_BuildValue("{s:(ii)}", "max_version", 1, 0));
  if (a.has(1)) {
    const Device wanted = to_device(a.object(1), a.ctx(1));
    PyRef pair = own(wanted.is_cuda() ? Py_BuildValue("(ii)", 2, wanted.index) : Py_BuildValue("(ii)", 1, 0));
    TG_CHECK(wanted.is_cpu() || wanted.is_cuda(), NotImplemented, "from_dlpack: there is no memory to take on {}",
             wanted);
    check_status(PyDict_SetItemString(options.get(), "dl_device", pair.get()));
  }
  if (a.has(2)) check_status(PyDict_SetItemString(options.get(), "copy", a.object(2)));
  if (const int device = cuda_device_of(source); device >= 0) {
    const int64_t current = need_device(DeviceType::CUDA, "from_dlpack").current_stream(device);
    PyRef stream = own(PyLong_FromLongLong(current == 0 ? 1 : current));
    check_status(PyDict_SetItemString(options.get(), "stream", stream.get()));
  }
  PyRef capsule(PyObject_Call(method.get(), none.get(), options.get()));
  if (!capsule) {
    if (!PyErr_ExceptionMatches(PyExc_TypeError)) throw_python_error();
    PyErr_Clear();  // a producer older than DLPack 1.0
    check_status(PyDict_DelItemString(options.get(), "max_version"));
    capsule = own(PyObject_Call(method.get(), none.get(), options.get()));
  }
  return wrap(from_dlpack_capsule(capsule.get(), resize_guard(source)));
}

// Keeps the buffer of any object for the life of a storage.
struct HeldBuffer final : Held {
  Py_buffer view{};
  PyRef guard;
  ~HeldBuffer() override { PyBuffer_Release(&view); }  // does nothing where there is none
};

PyObject* frombuffer(const ArgumentsBase& a) {
  const DType dtype = a.dtype(1);
  const auto itemsize = static_cast<int64_t>(element_size(dtype));
  int64_t count = a.integer(2, -1);
  const int64_t offset = a.integer(3, 0);
  auto held = std::make_unique<HeldBuffer>();
  bool read_only = false;
  if (PyObject_GetBuffer(a.object(0), &held->view, PyBUF_WRITABLE) < 0) {
    PyErr_Clear();
    read_only = true;
    check_status(PyObject_GetBuffer(a.object(0), &held->view, PyBUF_SIMPLE));
  }
  const int64_t length = held->view.len;
  const char* wrong = nullptr;
  if (offset < 0 || offset > length)
    wrong = "offset must lie in the buffer";
  else if (count == 0 || count < -1)
    wrong = "count must be positive, or -1 for all";
  else if (count < 0 && (length - offset) % itemsize)
    wrong = "the buffer is not a whole number of elements";
  else if (count > 0 && count > (length - offset) / itemsize)
    wrong = "the buffer is shorter than count elements";
  else if (reinterpret_cast<uintptr_t>(static_cast<char*>(held->view.buf) + offset) %
           std::min<uintptr_t>(static_cast<uintptr_t>(itemsize), 8))
    wrong = "the offset leaves the elements unaligned";
  if (count < 0) count = (length - offset) / itemsize;
  TG_CHECK(!wrong, Value, "frombuffer: {}: got {} bytes, offset {}, count {}, element size {}", wrong, length, offset,
           a.integer(2, -1), itemsize);
  held->guard = resize_guard(held->view.obj);
  char* data = static_cast<char*>(held->view.buf) + offset;
  auto storage = make_intrusive<StorageImpl>(data, static_cast<size_t>(count * itemsize), Device(), release_held,
                                             static_cast<Held*>(held.release()));
  storage->set_resizable(false);
  storage->set_read_only(read_only);
  Tensor t(make_intrusive<TensorImpl>(std::move(storage), dtype, IntSpan(DimVector{count})));
  if (a.boolean(4, false)) t.set_requires_grad(true);
  return wrap(std::move(t));
}

}  // namespace

void add_buffer_slots(std::vector<Slot>& slots) {
  slots.push_back({Py_bf_getbuffer, get_buffer});
  slots.push_back({Py_bf_releasebuffer, release_buffer});
}

PyMethodDef tensor_exchange_methods[] = {
    keyword_method<"numpy", "(*, bool force=False)", numpy>(
        "numpy($self, *, force=False)\n--\n\nA NumPy array over the same memory; force: detached and copied to the CPU "
        "first."),
    keyword_method<"__array__", "(dtype=None, *, bool? copy=None)", array>(),
    keyword_method<"__dlpack__", "(*, stream=None, max_version=None, dl_device=None, bool? copy=None)", dlpack>(),
    {"__dlpack_device__", guarded<dlpack_device_method>, METH_NOARGS, nullptr},
    {},
};

PyMethodDef exchange_functions[] = {
    {"from_numpy", guarded<from_numpy>, METH_O, "from_numpy(array)\n--\n\nA tensor over the memory of a NumPy array."},
    keyword_method<"from_dlpack", "(object ext_tensor, *, Device? device=None, bool? copy=None)", from_dlpack>(
        "from_dlpack(ext_tensor, *, device=None, copy=None)\n--\n\nA tensor over the memory of another library's, or "
        "over "
        "a "
        "copy that the library is asked for."),
    keyword_method<"frombuffer", "(buffer, *, DType dtype, int count=-1, int offset=0, bool requires_grad=False)",
                   frombuffer>(
        "frombuffer(buffer, *, dtype, count=-1, offset=0, requires_grad=False)\n--\n\nA tensor over the memory of an "
        "object "
        "with the buffer protocol."),
    {},
};

}  // namespace tapegrad::python
