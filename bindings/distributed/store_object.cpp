// Stores of process groups, as tapegrad.distributed's classes use them. Calls release the GIL in C++ (BlockingRegion),
// and copy the data of Python objects before.
#include <utility>

#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/distributed/objects.h"
#include "tapegrad/distributed/store/store.h"

namespace tapegrad::python {

namespace {

using distributed::Milliseconds;
using distributed::Store;
using distributed::TcpStore;

PyTypeObject* store_type = nullptr;

struct PyStore {
  PyObject_HEAD std::shared_ptr<Store> store;
};

PyObject* wrap_store(std::shared_ptr<Store> store) {
  PyObject* o = check(store_type->tp_alloc(store_type, 0));
  new (&reinterpret_cast<PyStore*>(o)->store) std::shared_ptr<Store>(std::move(store));
  return o;
}

void store_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  std::shared_ptr<Store> store = std::move(reinterpret_cast<PyStore*>(o)->store);
  reinterpret_cast<PyStore*>(o)->store.~shared_ptr();
  type->tp_free(o);
  Py_DECREF(type);
  const GilRelease released;  // a server's thread is waited for, a file's lock is taken
  store.reset();
}

// Another thread may drop the object during a call: the call holds the store.
std::shared_ptr<Store> hold(PyObject* o) { return reinterpret_cast<PyStore*>(o)->store; }

std::string to_key(PyObject* o, const char* op) {
  TG_CHECK(PyUnicode_Check(o), Type, "{}: a key must be a str: got {}", op, Py_TYPE(o)->tp_name);
  Py_ssize_t n;
  const char* text = PyUnicode_AsUTF8AndSize(o, &n);
  if (text == nullptr) throw_python_error();
  return {text, static_cast<size_t>(n)};
}

std::string to_value(PyObject* o, const char* op) {
  if (PyUnicode_Check(o)) return to_key(o, op);
  Py_buffer view;
  TG_CHECK(PyObject_CheckBuffer(o), Type, "{}: a value must be bytes or a str: got {}", op, Py_TYPE(o)->tp_name);
  check_status(PyObject_GetBuffer(o, &view, PyBUF_SIMPLE));
  std::string bytes(static_cast<const char*>(view.buf), static_cast<size_t>(view.len));
  PyBuffer_Release(&view);
  return bytes;
}

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

std::optional<Milliseconds> to_limit(long long ms) {
  return ms < 0 ? std::nullopt : std::optional(Milliseconds(ms));  // -1: the store's own
}

PyObject* to_bytes(const std::string& value) {
  return PyBytes_FromStringAndSize(value.data(), static_cast<Py_ssize_t>(value.size()));
}

template <class F>
PyObject* list_of(const std::vector<std::string>& values, F&& convert) {
  PyRef list = own(PyList_New(static_cast<Py_ssize_t>(values.size())));
  for (size_t i = 0; i < values.size(); ++i)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), check(convert(values[i])));
  return list.release();
}

PyObject* store_set(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject *key, *value;
  if (!PyArg_ParseTuple(args, "OO:set", &key, &value)) return nullptr;
  hold(o)->set(to_key(key, "set"), to_value(value, "set"));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* store_append(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject *key, *value;
  if (!PyArg_ParseTuple(args, "OO:append", &key, &value)) return nullptr;
  hold(o)->append(to_key(key, "append"), to_value(value, "append"));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* store_get(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject* key;
  long long ms = -1;
  if (!PyArg_ParseTuple(args, "O|L:get", &key, &ms)) return nullptr;
  return to_bytes(hold(o)->get(to_key(key, "get"), to_limit(ms)));
  TG_PY_CATCH
}

PyObject* store_add(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject *key, *amount;
  if (!PyArg_ParseTuple(args, "OO:add", &key, &amount)) return nullptr;
  return PyLong_FromLongLong(hold(o)->add(to_key(key, "add"), to_int(amount, {"add", "amount", 2})));
  TG_PY_CATCH
}

PyObject* store_compare_set(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject *key, *expected, *desired;
  if (!PyArg_ParseTuple(args, "OOO:compare_set", &key, &expected, &desired)) return nullptr;
  return to_bytes(hold(o)->compare_set(to_key(key, "compare_set"), to_value(expected, "compare_set"),
                                       to_value(desired, "compare_set")));
  TG_PY_CATCH
}

PyObject* store_wait(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject* keys;
  long long ms = -1;
  if (!PyArg_ParseTuple(args, "O|L:wait", &keys, &ms)) return nullptr;
  hold(o)->wait(to_list(keys, "wait", "keys", to_key), to_limit(ms));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* store_check(PyObject* o, PyObject* keys) {
  TG_PY_TRY
  return PyBool_FromLong(hold(o)->check(to_list(keys, "check", "keys", to_key)));
  TG_PY_CATCH
}

PyObject* store_delete_key(PyObject* o, PyObject* key) {
  TG_PY_TRY
  return PyBool_FromLong(hold(o)->delete_key(to_key(key, "delete_key")));
  TG_PY_CATCH
}

PyObject* store_num_keys(PyObject* o, PyObject*) {
  TG_PY_TRY
  return PyLong_FromLongLong(hold(o)->num_keys());
  TG_PY_CATCH
}

PyObject* store_list_keys(PyObject* o, PyObject*) {
  TG_PY_TRY
  return list_of(hold(o)->list_keys(), [](const std::string& key) {
    return PyUnicode_DecodeUTF8(key.data(), static_cast<Py_ssize_t>(key.size()), "surrogateescape");
  });
  TG_PY_CATCH
}

PyObject* store_multi_get(PyObject* o, PyObject* keys) {
  TG_PY_TRY
  return list_of(hold(o)->multi_get(to_list(keys, "multi_get", "keys", to_key)), to_bytes);
  TG_PY_CATCH
}

PyObject* store_multi_set(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject *keys, *values;
  if (!PyArg_ParseTuple(args, "OO:multi_set", &keys, &values)) return nullptr;
  hold(o)->multi_set(to_list(keys, "multi_set", "keys", to_key), to_list(values, "multi_set", "values", to_value));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* store_barrier(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject* key;
  long long size, ms = -1;
  if (!PyArg_ParseTuple(args, "OL|L:barrier", &key, &size, &ms)) return nullptr;
  hold(o)->barrier(to_key(key, "barrier"), size, to_limit(ms));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* store_queue_push(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject *key, *value;
  if (!PyArg_ParseTuple(args, "OO:queue_push", &key, &value)) return nullptr;
  hold(o)->queue_push(to_key(key, "queue_push"), to_value(value, "queue_push"));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// None if the queue is empty and wait is false.
PyObject* store_queue_pop(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject* key;
  int waits;
  if (!PyArg_ParseTuple(args, "Op:queue_pop", &key, &waits)) return nullptr;
  const std::optional<std::string> value = hold(o)->queue_pop(to_key(key, "queue_pop"), waits != 0);
  if (!value) Py_RETURN_NONE;
  return to_bytes(*value);
  TG_PY_CATCH
}

PyObject* store_queue_len(PyObject* o, PyObject* key) {
  TG_PY_TRY
  return PyLong_FromLongLong(hold(o)->queue_len(to_key(key, "queue_len")));
  TG_PY_CATCH
}

PyObject* store_close(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject* why = nullptr;
  if (!PyArg_ParseTuple(args, "|U:close", &why)) return nullptr;
  hold(o)->close(why == nullptr ? std::string("it was closed by this process") : to_key(why, "close"));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* store_clone(PyObject* o, PyObject*) {
  TG_PY_TRY
  return wrap_store(hold(o)->clone());
  TG_PY_CATCH
}

PyObject* store_set_timeout_ms(PyObject* o, PyObject* ms) {
  TG_PY_TRY
  hold(o)->set_timeout(Milliseconds(to_int(ms, {"set_timeout", "timeout", 1})));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* store_timeout_ms(PyObject* o, void*) { return PyLong_FromLongLong(hold(o)->timeout().count()); }

const TcpStore& tcp_store(const std::shared_ptr<Store>& store) {
  const auto* tcp = dynamic_cast<const TcpStore*>(store.get());
  TG_CHECK(tcp != nullptr, Attribute, "_Store: only TCP stores have a host and a port");
  return *tcp;
}

PyObject* store_host(PyObject* o, void*) {
  TG_PY_TRY
  return PyUnicode_FromString(tcp_store(hold(o)).host().c_str());
  TG_PY_CATCH
}

PyObject* store_port(PyObject* o, void*) {
  TG_PY_TRY
  return PyLong_FromLong(tcp_store(hold(o)).port());
  TG_PY_CATCH
}

// clang-format off
PyMethodDef store_methods[] = {
    {"set", store_set, METH_VARARGS, nullptr},
    {"append", store_append, METH_VARARGS, nullptr},
    {"get", store_get, METH_VARARGS, nullptr},
    {"add", store_add, METH_VARARGS, nullptr},
    {"compare_set", store_compare_set, METH_VARARGS, nullptr},
    {"wait", store_wait, METH_VARARGS, nullptr},
    {"check", store_check, METH_O, nullptr},
    {"delete_key", store_delete_key, METH_O, nullptr},
    {"num_keys", store_num_keys, METH_NOARGS, nullptr},
    {"list_keys", store_list_keys, METH_NOARGS, nullptr},
    {"multi_get", store_multi_get, METH_O, nullptr},
    {"multi_set", store_multi_set, METH_VARARGS, nullptr},
    {"barrier", store_barrier, METH_VARARGS, nullptr},
    {"queue_push", store_queue_push, METH_VARARGS, nullptr},
    {"queue_pop", store_queue_pop, METH_VARARGS, nullptr},
    {"queue_len", store_queue_len, METH_O, nullptr},
    {"close", store_close, METH_VARARGS, nullptr},
    {"clone", store_clone, METH_NOARGS, nullptr},
    {"set_timeout_ms", store_set_timeout_ms, METH_O, nullptr},
    {},
};
PyGetSetDef store_getset[] = {
    {"timeout_ms", store_timeout_ms, nullptr, nullptr, nullptr},
    {"host", store_host, nullptr, nullptr, nullptr},
    {"port", store_port, nullptr, nullptr, nullptr},
    {},
};
PyType_Slot store_slots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(store_dealloc)},
    {Py_tp_methods, store_methods},
    {Py_tp_getset, store_getset},
    {0, nullptr},
};
// clang-format on
PyType_Spec store_spec = {"tapegrad._C._Store", sizeof(PyStore), 0,
                          Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, store_slots};

PyObject* hash_store(PyObject*, PyObject*) {
  TG_PY_TRY
  return wrap_store(distributed::make_hash_store());
  TG_PY_CATCH
}

PyObject* prefix_store(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject *prefix, *store;
  if (!PyArg_ParseTuple(args, "UO:_prefix_store", &prefix, &store)) return nullptr;
  return wrap_store(distributed::make_prefix_store(to_key(prefix, "PrefixStore"), store_of(store)));
  TG_PY_CATCH
}

PyObject* file_store(PyObject*, PyObject* args) {
  TG_PY_TRY
  PyObject* path;
  long long world_size = -1;
  if (!PyArg_ParseTuple(args, "O&|L:_file_store", PyUnicode_FSConverter, &path, &world_size)) return nullptr;
  const PyRef owned(path);
  return wrap_store(distributed::make_file_store(PyBytes_AS_STRING(path), world_size));
  TG_PY_CATCH
}

PyObject* tcp_store(PyObject*, PyObject* args, PyObject* kwargs) {
  TG_PY_TRY
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
  TG_PY_CATCH
}

PyMethodDef store_functions[] = {
    {"_hash_store", hash_store, METH_NOARGS, nullptr},
    {"_prefix_store", prefix_store, METH_VARARGS, nullptr},
    {"_file_store", file_store, METH_VARARGS, nullptr},
    {"_tcp_store",
     reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(static_cast<PyCFunctionWithKeywords>(tcp_store))),
     METH_VARARGS | METH_KEYWORDS, nullptr},
    {},
};

}  // namespace

const std::shared_ptr<Store>& store_of(PyObject* o) {
  TG_CHECK(Py_TYPE(o) == store_type, Type, "store: expected a store of tapegrad.distributed: got {}",
           Py_TYPE(o)->tp_name);
  return reinterpret_cast<PyStore*>(o)->store;
}

bool init_stores(PyObject* module) {
  store_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&store_spec));
  return store_type != nullptr &&
         PyModule_AddObjectRef(module, "_Store", reinterpret_cast<PyObject*>(store_type)) == 0 &&
         PyModule_AddFunctions(module, store_functions) == 0;
}

}  // namespace tapegrad::python
