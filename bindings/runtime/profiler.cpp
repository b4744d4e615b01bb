// Functions of tapegrad._C for tapegrad.profiler: a session's start and stop, annotations, the modules that were
// called.
#include <unordered_map>

#include "tapegrad/autograd/profiler/call_site.h"
#include "tapegrad/autograd/profiler/profiler.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"

namespace tapegrad::python {

namespace {

namespace profiler = autograd::profiler;

// Modules called during the session, by number; kept until it ends, as names are found then. Under the GIL.
std::unordered_map<PyObject*, uint32_t> module_numbers;
PyObject* modules = nullptr;  // a list; null where modules are not recorded

void start(bool shapes, bool memory, bool stack, bool with_modules) {
  PyRef list(with_modules ? check(PyList_New(0)) : nullptr);
  profiler::start({shapes, memory, stack, with_modules});
  profiler::attach();
  module_numbers.clear();
  Py_XSETREF(modules, list.release());
}

PyRef shapes_of(const std::vector<int64_t>& from, size_t& at) {
  if (from[at] == -2) {
    const auto n = static_cast<size_t>(from[at + 1]);
    at += 2;
    return new_list(n, [&](size_t) { return shapes_of(from, at).release(); });
  }
  if (from[at] == -3) {
    const auto n = static_cast<size_t>(from[at + 1]);
    at += 2 + n;
    return new_tuple(n, [&](size_t i) { return PyLong_FromLongLong(from[at - n + i]); });
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
  const auto ndim = static_cast<size_t>(from[at + 1]);
  at += 2 + ndim;
  const PyRef sizes = new_list(ndim, [&](size_t d) { return PyLong_FromLongLong(from[at - ndim + d]); });
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
    const auto n = static_cast<size_t>(record.inputs[at++]);
    detail = new_list(n, [&](size_t) { return shapes_of(record.inputs, at).release(); });
  } else {
    detail = own(PyLong_FromUnsignedLong(e.detail));
  }
  const long long parent = e.parent == profiler::kNone ? -1 : static_cast<long long>(e.parent);
  return own(Py_BuildValue("(iOLLLLLIIO)", static_cast<int>(e.kind), name.get(), static_cast<long long>(e.begin),
                           static_cast<long long>(e.end), static_cast<long long>(e.bytes),
                           static_cast<long long>(e.sequence), parent, e.site, e.stack, detail.get()));
}

// ([(thread, dropped, [event ...]) ...], [module ...])
PyObject* stop() {
  const auto records = profiler::stop();
  const PyRef threads = new_list(records.size(), [&](size_t k) {
    const profiler::ThreadRecord& record = *records[k];
    std::unordered_map<const char*, PyRef> names;
    PyRef events = new_list(record.events.size(),
                            [&](size_t i) { return event_tuple(record, record.events[i], names).release(); });
    return Py_BuildValue("(KKN)", static_cast<unsigned long long>(record.thread),
                         static_cast<unsigned long long>(record.dropped), events.release());
  });
  module_numbers.clear();
  PyRef kept(std::exchange(modules, nullptr));
  return PyTuple_Pack(2, threads.get(), kept ? kept.get() : Py_None);
}

uint32_t number_of(PyObject* o, const char* op, const char* what) {
  return static_cast<uint32_t>(to_int(o, {op, what, 1}));
}

void close_scope(PyObject* capsule) { delete static_cast<profiler::Scope*>(PyCapsule_GetPointer(capsule, nullptr)); }

// What _profiler_end takes; None when this thread is not profiled.
PyObject* begin(PyObject* name) {
  const std::string_view text = to_str(name, {"record_function", "name", 1});
  if (!(modes() & kModeProfile)) Py_RETURN_NONE;
  auto scope = std::make_unique<profiler::Scope>(profiler::Kind::Annotation, text, 0, profiler::kNone);
  PyObject* capsule = check(PyCapsule_New(scope.get(), nullptr, close_scope));
  scope.release();
  return capsule;
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

// clang-format off
PyMethodDef profiler_functions[] = {
    method<"_profiler_start", start>(),
    method<"_profiler_stop", stop>(),
    method<"_profiler_running", [] { return profiler::running(); }>(),
    method<"_profiler_attach", [] { profiler::attach(); }>(),
    method<"_profiler_site", [](PyObject* number) {  // (file:line, function)
      const uint32_t id = number_of(number, "_profiler_site", "site");
      return std::pair(autograd::describe_site(id), function_of_site(id));
    }>(),
    method<"_profiler_stack", [](PyObject* number) { return sites_of_stack(number_of(number, "_profiler_stack", "stack")); }>(),
    method<"_profiler_begin", begin>(),
    {"_profiler_end", end, METH_O, nullptr},
    {},
};
// clang-format on

}  // namespace tapegrad::python
