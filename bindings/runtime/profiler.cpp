// Functions of tapegrad._C for tapegrad.profiler: a session's start and stop, annotations, the modules that were
// called.
#include <unordered_map>

#include "tapegrad/autograd/call_site.h"
#include "tapegrad/autograd/profiler.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/functions.h"

namespace tapegrad::python {

namespace {

namespace profiler = autograd::profiler;

// Modules called during the session, by number; kept until it ends, as names are found then. Under the GIL.
std::unordered_map<PyObject*, uint32_t> module_numbers;
PyObject* modules = nullptr;  // a list; null where modules are not recorded

// _profiler_start(shapes, memory, stack, modules)
PyObject* start(PyObject*, PyObject* args) {
  TG_PY_TRY
  int shapes, memory, stack, with_modules;
  if (!PyArg_ParseTuple(args, "pppp:_profiler_start", &shapes, &memory, &stack, &with_modules)) return nullptr;
  PyRef list(with_modules ? check(PyList_New(0)) : nullptr);
  profiler::start({shapes != 0, memory != 0, stack != 0, with_modules != 0});
  profiler::attach();
  module_numbers.clear();
  Py_XSETREF(modules, list.release());
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyRef shapes_of(const std::vector<int64_t>& from, size_t& at) {
  if (from[at] == -2) {
    const int64_t n = from[at + 1];
    at += 2;
    PyRef list = own(PyList_New(0));
    for (int64_t i = 0; i < n; ++i) {
      PyRef one = shapes_of(from, at);
      if (PyList_Append(list.get(), one.get()) < 0) throw PythonError();
    }
    return list;
  }
  if (from[at] == -3) {
    const int64_t n = from[at + 1];
    PyRef numbers = own(PyTuple_New(n));
    for (int64_t i = 0; i < n; ++i)
      PyTuple_SET_ITEM(numbers.get(), i, check(PyLong_FromLongLong(from[at + 2 + static_cast<size_t>(i)])));
    at += 2 + static_cast<size_t>(n);
    return numbers;
  }
  if (from[at] == -4) {
    at += 2;
    return own(PyLong_FromLongLong(from[at - 1]));
  }
  if (from[at] == -1) {
    ++at;
    return PyRef::borrow(Py_None);
  }
  const auto dtype = static_cast<DType>(from[at]);
  const int64_t ndim = from[at + 1];
  PyRef sizes = own(PyList_New(ndim));
  for (int64_t d = 0; d < ndim; ++d)
    PyList_SET_ITEM(sizes.get(), d, check(PyLong_FromLongLong(from[at + 2 + static_cast<size_t>(d)])));
  at += 2 + static_cast<size_t>(ndim);
  return own(PyTuple_Pack(2, own(wrap(dtype)).get(), sizes.get()));
}

// (kind, name, begin, end, bytes, sequence, parent, site, stack, detail); detail: per argument (dtype, [sizes]), a
// list of such, an int, a tuple of ints or None; or a module's number
PyRef event_tuple(const profiler::ThreadRecord& record, const profiler::Event& e,
                  std::unordered_map<const char*, PyRef>& names) {
  PyRef& name = names[e.name];
  if (!name) name = own(PyUnicode_FromString(e.name));
  PyRef detail;
  if (e.detail == profiler::kNone) {
    detail = PyRef::borrow(Py_None);
  } else if (e.kind == profiler::Kind::Operator) {
    size_t at = e.detail;
    const int64_t n = record.inputs[at++];
    detail = own(PyList_New(n));
    for (int64_t i = 0; i < n; ++i) PyList_SET_ITEM(detail.get(), i, shapes_of(record.inputs, at).release());
  } else {
    detail = own(PyLong_FromUnsignedLong(e.detail));
  }
  const long long parent = e.parent == profiler::kNone ? -1 : static_cast<long long>(e.parent);
  return own(Py_BuildValue("(iOLLLLLIIO)", static_cast<int>(e.kind), name.get(), static_cast<long long>(e.begin),
                           static_cast<long long>(e.end), static_cast<long long>(e.bytes),
                           static_cast<long long>(e.sequence), parent, e.site, e.stack, detail.get()));
}

// _profiler_stop(): ([(thread, dropped, [event ...]) ...], [module ...])
PyObject* stop(PyObject*, PyObject*) {
  TG_PY_TRY
  const auto records = profiler::stop();
  PyRef threads = own(PyList_New(0));
  for (const auto& record : records) {
    std::unordered_map<const char*, PyRef> names;
    PyRef events = own(PyList_New(static_cast<Py_ssize_t>(record->events.size())));
    Py_ssize_t i = 0;
    for (const profiler::Event& e : record->events)
      PyList_SET_ITEM(events.get(), i++, event_tuple(*record, e, names).release());
    PyRef entry = own(Py_BuildValue("(KKO)", static_cast<unsigned long long>(record->thread),
                                    static_cast<unsigned long long>(record->dropped), events.get()));
    if (PyList_Append(threads.get(), entry.get()) < 0) return nullptr;
  }
  module_numbers.clear();
  PyRef kept(std::exchange(modules, nullptr));
  return check(PyTuple_Pack(2, threads.get(), kept ? kept.get() : Py_None));
  TG_PY_CATCH
}

PyObject* running(PyObject*, PyObject*) { return PyBool_FromLong(profiler::running()); }

PyObject* attach(PyObject*, PyObject*) {
  TG_PY_TRY
  profiler::attach();
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// _profiler_site(number): (file:line, function)
PyObject* site(PyObject*, PyObject* number) {
  TG_PY_TRY
  const auto id = static_cast<uint32_t>(to_int(number, {"_profiler_site", "site", 1}));
  return Py_BuildValue("(ss)", autograd::describe_site(id).c_str(), function_of_site(id).c_str());
  TG_PY_CATCH
}

// _profiler_stack(number): the sites of a stack
PyObject* stack(PyObject*, PyObject* number) {
  TG_PY_TRY
  const auto sites = sites_of_stack(static_cast<uint32_t>(to_int(number, {"_profiler_stack", "stack", 1})));
  PyRef list = own(PyList_New(static_cast<Py_ssize_t>(sites.size())));
  for (size_t i = 0; i < sites.size(); ++i)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), check(PyLong_FromUnsignedLong(sites[i])));
  return list.release();
  TG_PY_CATCH
}

void close_scope(PyObject* capsule) { delete static_cast<profiler::Scope*>(PyCapsule_GetPointer(capsule, nullptr)); }

// _profiler_begin(name): what _profiler_end takes; None when this thread is not profiled.
PyObject* begin(PyObject*, PyObject* name) {
  TG_PY_TRY
  const std::string_view text = to_str(name, {"record_function", "name", 1});
  if (!(modes() & kModeProfile)) Py_RETURN_NONE;
  auto scope = std::make_unique<profiler::Scope>(profiler::Kind::Annotation, text, 0, profiler::kNone);
  PyObject* capsule = check(PyCapsule_New(scope.get(), nullptr, close_scope));
  scope.release();
  return capsule;
  TG_PY_CATCH
}

PyObject* end(PyObject*, PyObject* capsule) {
  if (PyCapsule_CheckExact(capsule)) static_cast<profiler::Scope*>(PyCapsule_GetPointer(capsule, nullptr))->close();
  Py_RETURN_NONE;
}

}  // namespace

void profile_module(profiler::Scope& scope, PyObject* module) noexcept {
  try {
    if (!modules) return;
    auto [entry, fresh] = module_numbers.emplace(module, static_cast<uint32_t>(module_numbers.size()));
    if (fresh && PyList_Append(modules, module) < 0) {
      PyErr_Clear();
      module_numbers.erase(entry);
      return;
    }
    const std::string_view name = Py_TYPE(module)->tp_name;
    scope.open(profiler::Kind::Module, name.substr(name.rfind('.') + 1), 0, entry->second);
  } catch (...) {  // out of memory: the call goes unrecorded
  }
}

PyMethodDef profiler_functions[] = {
    {"_profiler_start", start, METH_VARARGS, nullptr},
    {"_profiler_stop", stop, METH_NOARGS, nullptr},
    {"_profiler_running", running, METH_NOARGS, nullptr},
    {"_profiler_attach", attach, METH_NOARGS, nullptr},
    {"_profiler_site", site, METH_O, nullptr},
    {"_profiler_stack", stack, METH_O, nullptr},
    {"_profiler_begin", begin, METH_O, nullptr},
    {"_profiler_end", end, METH_O, nullptr},
    {},
};

}  // namespace tapegrad::python
