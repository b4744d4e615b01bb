// Memory shared with other processes, for tapegrad.multiprocessing (functions of tapegrad._C).
#include "tapegrad/bindings/arguments/method.h"
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

// A handle as Python has it: bytes.
struct PackedHandle {
  Handle value;
  static PackedHandle from(PyObject* o, const char* op);
};

PackedHandle PackedHandle::from(PyObject* o, const char*) {
  char* data;
  Py_ssize_t n;
  check_status(PyBytes_AsStringAndSize(o, &data, &n));
  Handle h;
  const auto got = static_cast<size_t>(n);
  std::memcpy(&h, data, std::min(got, sizeof(h)));
  TG_CHECK(got >= Handle::kArenaBytes && got == h.sent_bytes(), Runtime, "shared memory: a handle has {} bytes: got {}",
           h.sent_bytes(), n);
  return {h};
}

PyObject* stats() {
  const shared::ExchangeStats s = exchange().stats();
  return Py_BuildValue("{sKsKsKsKsKsKsKsKsKsK}", "id", s.id, "arenas", s.arenas, "reserved_bytes", s.reserved_bytes,
                       "allocated_bytes", s.allocated_bytes, "blocks", s.blocks, "pending", s.pending, "tickets",
                       s.tickets, "owners", s.owners, "received", s.received, "mapped_arenas", s.mapped_arenas);
}

}  // namespace

// clang-format off
PyMethodDef shared_memory_functions[] = {
    method<"_shared_is", [](PyObject* tensor) {
      const Tensor& t = to_tensor(tensor, {"is_shared", "tensor", 1});
      return (t.is_cpu() || t.is_cuda()) && !t.is_sparse() && exchange().is_shared(t.impl()->storage());
    }>(),
    // The bytes of the tensor's storage, now shared; another storage where it could not be changed.
    method<"_shared_share", [](PyObject* tensor) { return bytes_of(exchange().share(storage_arg(tensor, "share_memory_"))); }>(),
    method<"_shared_empty", [](int64_t nbytes, bool read_only) {
      TG_CHECK(nbytes >= 0, Runtime, "shared memory: the size must not be negative: got {}", nbytes);
      return bytes_of(exchange().allocate(static_cast<size_t>(nbytes), read_only));
    }>(),
    method<"_shared_give", [](PyObject* tensor) {  // a handle of its storage
      const Handle h = exchange().give(storage_arg(tensor, "give"));
      return Bytes{std::string(reinterpret_cast<const char*>(&h), h.sent_bytes())};
    }>(),
    method<"_shared_receive", [](PackedHandle h) { return bytes_of(exchange().receive(h.value)); }>(),  // the storage of a handle
    method<"_shared_take_back", [](PackedHandle h) { return exchange().take_back(h.value); }>(),
    method<"_shared_on_its_way", [](PackedHandle h) { return exchange().on_its_way(h.value); }>(),
    method<"_shared_collect", [] { exchange().collect(); }>(),
    method<"_shared_stats", stats>(),
    method<"_end_with", [](int pid, int signal) { shared::end_with(pid, signal); }>(),  // this process ends when that one does
    {},
};
// clang-format on

}  // namespace tapegrad::python
