// Memory shared with other processes, for tapegrad.multiprocessing (functions of tapegrad._C).
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/multiprocessing/exchange.h"
#include "tapegrad/multiprocessing/parent_watch.h"

namespace tapegrad::python {

namespace {

using shared::exchange;
using shared::Handle;

PyObject* bytes_of(Storage storage) {
  const auto n = static_cast<int64_t>(storage->nbytes());
  return wrap(Tensor(make_intrusive<TensorImpl>(std::move(storage), DType::uint8, IntSpan(DimVector{n}))));
}

const Storage& storage_arg(PyObject* o, const char* op) {
  const Tensor& t = to_tensor(o, {op, "tensor", 1});
  TG_CHECK((t.is_cpu() || t.is_cuda()) && !t.is_sparse(), Runtime,
           "{}: only dense tensors on the CPU and CUDA devices can be shared: got one on {}", op, t.device());
  return t.impl()->storage();
}

// _shared_is(tensor): whether its memory is shared.
PyObject* is_shared(PyObject*, PyObject* o) {
  TG_PY_TRY
  const Tensor& t = to_tensor(o, {"is_shared", "tensor", 1});
  return PyBool_FromLong((t.is_cpu() || t.is_cuda()) && !t.is_sparse() && exchange().is_shared(t.impl()->storage()));
  TG_PY_CATCH
}

// _shared_share(tensor): the bytes of the tensor's storage, now shared; another storage where it could not be changed.
PyObject* share(PyObject*, PyObject* o) {
  TG_PY_TRY
  return bytes_of(exchange().share(storage_arg(o, "share_memory_")));
  TG_PY_CATCH
}

// _shared_empty(nbytes, read_only): fresh bytes.
PyObject* empty(PyObject*, PyObject* args) {
  TG_PY_TRY
  Py_ssize_t nbytes;
  int read_only;
  if (!PyArg_ParseTuple(args, "np:_shared_empty", &nbytes, &read_only)) return nullptr;
  TG_CHECK(nbytes >= 0, Runtime, "shared memory: the size must not be negative: got {}", nbytes);
  return bytes_of(exchange().allocate(static_cast<size_t>(nbytes), read_only != 0));
  TG_PY_CATCH
}

PyObject* pack(const Handle& h) {
  return PyBytes_FromStringAndSize(reinterpret_cast<const char*>(&h), static_cast<Py_ssize_t>(h.sent_bytes()));
}

Handle unpack(PyObject* o) {
  char* data;
  Py_ssize_t n;
  check_status(PyBytes_AsStringAndSize(o, &data, &n));
  Handle h;
  const auto got = static_cast<size_t>(n);
  std::memcpy(&h, data, std::min(got, sizeof(h)));
  TG_CHECK(got >= Handle::kArenaBytes && got == h.sent_bytes(), Runtime, "shared memory: a handle has {} bytes: got {}",
           h.sent_bytes(), n);
  return h;
}

// _shared_give(tensor): a handle of its storage, as bytes.
PyObject* give(PyObject*, PyObject* o) {
  TG_PY_TRY
  return pack(exchange().give(storage_arg(o, "give")));
  TG_PY_CATCH
}

// _shared_receive(handle): the storage of the handle.
PyObject* receive(PyObject*, PyObject* o) {
  TG_PY_TRY
  return bytes_of(exchange().receive(unpack(o)));
  TG_PY_CATCH
}

PyObject* take_back(PyObject*, PyObject* o) {
  TG_PY_TRY
  return PyBool_FromLong(exchange().take_back(unpack(o)));
  TG_PY_CATCH
}

PyObject* on_its_way(PyObject*, PyObject* o) {
  TG_PY_TRY
  return PyBool_FromLong(exchange().on_its_way(unpack(o)));
  TG_PY_CATCH
}

PyObject* collect(PyObject*, PyObject*) {
  TG_PY_TRY
  exchange().collect();
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* stats(PyObject*, PyObject*) {
  TG_PY_TRY
  const shared::ExchangeStats s = exchange().stats();
  return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsK}", "id", s.id, "arenas", s.arenas, "reserved_bytes", s.reserved_bytes,
                       "allocated_bytes", s.allocated_bytes, "blocks", s.blocks, "pending", s.pending, "tickets",
                       s.tickets, "owners", s.owners, "received", s.received, "mapped_arenas", s.mapped_arenas);
  TG_PY_CATCH
}

// _end_with(pid, signal): this process ends when that one does.
PyObject* end_with_process(PyObject*, PyObject* args) {
  TG_PY_TRY
  int pid, signal;
  if (!PyArg_ParseTuple(args, "ii:_end_with", &pid, &signal)) return nullptr;
  shared::end_with(pid, signal);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

}  // namespace

// clang-format off
PyMethodDef shared_memory_functions[] = {
    {"_shared_is", is_shared, METH_O, nullptr},
    {"_shared_share", share, METH_O, nullptr},
    {"_shared_empty", empty, METH_VARARGS, nullptr},
    {"_shared_give", give, METH_O, nullptr},
    {"_shared_receive", receive, METH_O, nullptr},
    {"_shared_take_back", take_back, METH_O, nullptr},
    {"_shared_on_its_way", on_its_way, METH_O, nullptr},
    {"_shared_collect", collect, METH_NOARGS, nullptr},
    {"_shared_stats", stats, METH_NOARGS, nullptr},
    {"_end_with", end_with_process, METH_VARARGS, nullptr},
    {},
};
// clang-format on

}  // namespace tapegrad::python
