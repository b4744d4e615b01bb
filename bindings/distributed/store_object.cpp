// Stores of process groups, as tapegrad.distributed's classes use them. Calls release the GIL in C++ (BlockingRegion),
// and copy the data of Python objects before.
#include <utility>

#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/distributed/objects.h"
#include "tapegrad/distributed/store/store.h"

namespace tapegrad::python {

namespace {

using distributed::Milliseconds;
using distributed::Store;
using distributed::TcpStore;

PyTypeObject* store_type = nullptr;

using PyStore = Boxed<std::shared_ptr<Store>>;

PyObject* wrap_store(std::shared_ptr<Store> store) { return box(store_type, std::move(store)); }

void store_dealloc(PyObject* o) {
  std::shared_ptr<Store> store = std::move(unbox<std::shared_ptr<Store>>(o));
  dealloc_boxed<std::shared_ptr<Store>>(o);
  const GilRelease released;  // a server's thread is waited for, a file's lock is taken
  store.reset();
}

std::string to_key(PyObject* o, const char* op) {
  TG_CHECK(PyUnicode_Check(o), Type, "{}: a key must be a str: got {}", op, Py_TYPE(o)->tp_name);
  Py_ssize_t n;
  const char* text = PyUnicode_AsUTF8AndSize(o, &n);
  if (text == nullptr) throw_python_error();
  return {text, static_cast<size_t>(n)};
}

std::string to_value(PyObject* o, const char* op) {
  if (PyUnicode_Check(o)) return to_key(o, op);
  TG_CHECK(PyObject_CheckBuffer(o), Type, "{}: a value must be bytes or a str: got {}", op, Py_TYPE(o)->tp_name);
  return Bytes::from(o, op).text;
}

struct Key {
  std::string text;
  static Key from(PyObject* o, const char* op) { return {to_key(o, op)}; }
};
struct Value {
  std::string bytes;
  static Value from(PyObject* o, const char* op) { return {to_value(o, op)}; }
};

std::vector<std::string> to_list(PyObject* o, const char* op, const char* what,
                                 std::string (*convert)(PyObject*, const char*)) {
  TG_CHECK(!PyUnicode_Check(o) && !PyBytes_Check(o), Type, "{}: the {} must be a list: got one {}", op, what,
           Py_TYPE(o)->tp_name);
  const PyRef items = own(PySequence_Fast(o, "keys and values of a store must be given as lists"));
  std::vector<std::string> all;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    all.push_back(convert(PyRef::borrow(PySequence_Fast_GET_ITEM(items.get(), i)).get(), op));
  return all;
}
struct Keys {
  std::vector<std::string> all;
  static Keys from(PyObject* o, const char* op) { return {to_list(o, op, "keys", to_key)}; }
};
struct Values {
  std::vector<std::string> all;
  static Values from(PyObject* o, const char* op) { return {to_list(o, op, "values", to_value)}; }
};

using Limit = Or<int64_t{-1}>;
std::optional<Milliseconds> to_limit(long long ms) {
  return ms < 0 ? std::nullopt : std::optional(Milliseconds(ms));  // -1: the store's own
}

PyObject* to_bytes(const std::string& value) {
  return PyBytes_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size()));
}

const TcpStore& tcp_store_of(PyObject* o) {
  const auto* tcp = dynamic_cast<const TcpStore*>(unbox<std::shared_ptr<Store>>(o).get());
  TG_CHECK(tcp != nullptr, Attribute, "_Store: only TCP stores have a host and a port");
  return *tcp;
}

PyObject* store_timeout_ms(PyObject* o, void*) {
  return PyLong_FromLongLong(unbox<std::shared_ptr<Store>>(o)->timeout().count());
}

PyObject* store_host(PyObject* o, void*) { return PyUnicode_FromString(tcp_store_of(o).host().c_str()); }

PyObject* store_port(PyObject* o, void*) { return PyLong_FromLong(tcp_store_of(o).port()); }

// clang-format off
PyMethodDef store_methods[] = {
    method<"set", [](PyStore& s, Key key, Value value) { s.value->set(key.text, value.bytes); }>(),
    method<"append", [](PyStore& s, Key key, Value value) { s.value->append(key.text, value.bytes); }>(),
    method<"get", [](PyStore& s, Key key, Limit ms) { return Bytes{s.value->get(key.text, to_limit(ms))}; }>(),
    method<"add", [](PyStore& s, Key key, PyObject* amount) { return s.value->add(key.text, to_int(amount, {"add", "amount", 2})); }>(),
    method<"compare_set", [](PyStore& s, Key key, Value expected, Value desired) {
      return Bytes{s.value->compare_set(key.text, expected.bytes, desired.bytes)};
    }>(),
    method<"wait", [](PyStore& s, Keys keys, Limit ms) { s.value->wait(keys.all, to_limit(ms)); }>(),
    method<"check", [](PyStore& s, Keys keys) { return s.value->check(keys.all); }>(),
    method<"delete_key", [](PyStore& s, Key key) { return s.value->delete_key(key.text); }>(),
    method<"num_keys", [](PyStore& s) { return s.value->num_keys(); }>(),
    method<"list_keys", [](PyStore& s) {
      const std::vector<std::string> keys = s.value->list_keys();
      return new_list(keys.size(), [&](size_t i) {
        return PyUnicode_DecodeUTF8(keys[i].data(), static_cast<Py_ssize_t>(keys[i].size()), "surrogateescape");
      });
    }>(),
    method<"multi_get", [](PyStore& s, Keys keys) {
      const std::vector<std::string> values = s.value->multi_get(keys.all);
      return new_list(values.size(), [&](size_t i) { return to_bytes(values[i]); });
    }>(),
    method<"multi_set", [](PyStore& s, Keys keys, Values values) { s.value->multi_set(keys.all, values.all); }>(),
    method<"barrier", [](PyStore& s, Key key, int64_t size, Limit ms) { s.value->barrier(key.text, size, to_limit(ms)); }>(),
    method<"queue_push", [](PyStore& s, Key key, Value value) { s.value->queue_push(key.text, value.bytes); }>(),
    method<"queue_pop", [](PyStore& s, Key key, bool waits) -> std::optional<Bytes> {  // None: empty, and waits is false
      std::optional<std::string> value = s.value->queue_pop(key.text, waits);
      if (!value) return std::nullopt;
      return Bytes{std::move(*value)};
    }>(),
    method<"queue_len", [](PyStore& s, Key key) { return s.value->queue_len(key.text); }>(),
    method<"close", [](PyStore& s, OrNull why) {
      s.value->close(why ? to_key(why, "close") : "it was closed by this process");
    }>(),
    method<"clone", [](PyStore& s) { return wrap_store(s.value->clone()); }>(),
    method<"set_timeout_ms", [](PyStore& s, PyObject* ms) {
      s.value->set_timeout(Milliseconds(to_int(ms, {"set_timeout", "timeout", 1})));
    }>(),
    {},
};
PyGetSetDef store_getset[] = {
    {"timeout_ms", store_timeout_ms, nullptr, nullptr, nullptr},
    {"host", guarded<store_host>, nullptr, nullptr, nullptr},
    {"port", guarded<store_port>, nullptr, nullptr, nullptr},
    {},
};
PyObject* tcp_store(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"host",         "port",       "is_server", "world_size", "wait_for_workers",
                                "multi_tenant", "timeout_ms", "listen_fd", "token",      nullptr};
  distributed::TcpStoreOptions options;
  const char *host, *token = "";
  Py_ssize_t token_size = 0;
  int port = 0, is_server = 0, waits = 0, shared = 0;
  long long world_size = 0, ms = options.timeout.count();
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "sip|LppLis#:_tcp_store", const_cast<char**>(names), &host, &port,
                                   &is_server, &world_size, &waits, &shared, &ms, &options.listen_fd, &token,
                                   &token_size))
    return nullptr;
  TG_CHECK(port >= 0 && port < 65536, Value, "TCPStore: the port must be 0 to 65535: got {}", port);
  options.host = host;
  options.port = static_cast<uint16_t>(port);
  options.is_server = is_server != 0;
  options.world_size = world_size;
  options.wait_for_workers = waits != 0;
  options.multi_tenant = shared != 0;
  options.timeout = Milliseconds(ms);
  options.token.assign(token, static_cast<size_t>(token_size));
  return wrap_store(distributed::make_tcp_store(options));
}

PyMethodDef store_functions[] = {
    method<"_hash_store", [] { return wrap_store(distributed::make_hash_store()); }>(),
    method<"_prefix_store", [](Key prefix, PyObject* store) {
      return wrap_store(distributed::make_prefix_store(prefix.text, store_of(store)));
    }>(),
    method<"_file_store", [](PyObject* path, Or<int64_t{-1}> world_size) {
      PyObject* bytes;
      check_status(PyUnicode_FSConverter(path, &bytes) - 1);
      const PyRef owned(bytes);
      return wrap_store(distributed::make_file_store(PyBytes_AS_STRING(bytes), world_size));
    }>(),
    {"_tcp_store", as_c_function(guarded<tcp_store>), METH_VARARGS | METH_KEYWORDS, nullptr},
    {},
};
// clang-format on

}  // namespace

const std::shared_ptr<Store>& store_of(PyObject* o) {
  TG_CHECK(Py_TYPE(o) == store_type, Type, "store: expected a store of tapegrad.distributed: got {}",
           Py_TYPE(o)->tp_name);
  return unbox<std::shared_ptr<Store>>(o);
}

bool init_stores(PyObject* module) {
  store_type = add_type(module, "tapegrad._C._Store", sizeof(PyStore), Py_TPFLAGS_DISALLOW_INSTANTIATION,
                        {{Py_tp_dealloc, store_dealloc}, {Py_tp_methods, store_methods}, {Py_tp_getset, store_getset}});
  return store_type && PyModule_AddFunctions(module, store_functions) == 0;
}

}  // namespace tapegrad::python
