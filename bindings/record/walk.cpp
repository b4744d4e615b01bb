// tapegrad._C._Walk and _Observer: how it is found what a recorded step reads of Python's state. Both are what
// tapegrad/record/_watch.py would be in Python alone, and leave to it what is rare: functions, modules, objects of the
// program, and native functions that are not known. Need the GIL.
//
//   with _Observer(sizes, effect_of, own_file, package, pure) as observer: ...
//   observer.codes, observer.reason          code that ran outside of the package, with its globals; a refusal
//   walk = _Walk(names, module_type, values, methods, most)
//   walk.add(value, path); walk.run(other)   visits what can be reached from it, once; other(value, path) what is rare
//   walk.watch()                             a _Watch over all of it
#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/aten/record/numbers/given.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/record/places.h"
#include "tapegrad/bindings/record/tree.h"
#include "tapegrad/bindings/record/watch.h"
#include "tapegrad/bindings/values/value_objects.h"

namespace tapegrad::python {

namespace {

bool starts_with(PyObject* text, std::string_view prefix) {
  Py_ssize_t n = 0;
  const char* utf8 = text != nullptr && PyUnicode_Check(text) ? PyUnicode_AsUTF8AndSize(text, &n) : nullptr;
  if (utf8 == nullptr) PyErr_Clear();
  return utf8 != nullptr && std::string_view(utf8, static_cast<size_t>(n)).starts_with(prefix);
}

// --- _Walk ---

struct Walk {
  // How a value was found: as an entry of a dictionary, an item of a list, a member of a set, or by Python, which says
  // it in `key`.
  enum class How : uint8_t { Path, Entry, Item, Member };
  struct Seen {
    PyRef value;
    int parent;
    How how;
    PyRef key;
    Py_ssize_t index;
  };
  PyRef names, module_type, values, methods;
  size_t most = 0;
  bool full = false;  // there are more than that
  std::shared_ptr<Watch> watch = std::make_shared<Watch>();
  std::vector<Seen> seen;
  std::unordered_set<PyObject*> known;
  std::unordered_set<PyTypeObject*> classes;         // kept alive by what is watched
  std::unordered_map<PyTypeObject*, bool> packages;  // whether a class is the package's; kept alive by an object of it
  size_t next = 0;
  int current = -1;  // which of the seen is visited

  bool is_module(PyObject* o) const {
    return PyType_IsSubtype(Py_TYPE(o), reinterpret_cast<PyTypeObject*>(module_type.get())) != 0;
  }

  void add(PyObject* value, How how, PyObject* key, Py_ssize_t index = 0) {
    if (value == nullptr || value == Py_None || PyLong_CheckExact(value) || PyFloat_CheckExact(value) ||
        PyUnicode_CheckExact(value) || known.contains(value))
      return;
    if (!PyDict_CheckExact(value) && !PyODict_CheckExact(value) && !PyList_CheckExact(value) && !is_tensor(value) &&
        !is_module(value)) {
      // Not by isinstance: the program's classes may have attributes, and a __class__ that runs code.
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(values.get()); ++i)
        if (as_object(Py_TYPE(value)) == PyTuple_GET_ITEM(values.get(), i)) return;
    }
    if (seen.size() >= most) {
      full = true;
      return;
    }
    known.insert(value);
    seen.push_back({PyRef::borrow(value), how == How::Path ? -1 : current, how, PyRef::borrow(key), index});
  }

  void add_dict(PyObject* dict, PyObject* wanted, bool may_grow) {
    for (const Watch::Entry& e : watch->add_dict(dict, wanted, may_grow)) add(e.value.get(), How::Entry, e.key.get());
  }

  // The class and those that it is made of, with what is named in them.
  void add_class(PyTypeObject* cls) {
    if (Py_TYPE(cls) != &PyType_Type) add_class(Py_TYPE(cls));
    PyObject* bases = cls->tp_mro;
    for (Py_ssize_t i = 0; bases != nullptr && i < PyTuple_GET_SIZE(bases); ++i) {
      auto* base = reinterpret_cast<PyTypeObject*>(PyTuple_GET_ITEM(bases, i));
      if (classes.contains(base)) continue;
      const PyRef module = own(PyObject_GetAttrString(as_object(base), "__module__"));
      if (PyUnicode_Check(module.get()) && PyUnicode_CompareWithASCIIString(module.get(), "builtins") == 0) continue;
      if (of_package(module.get())) continue;
      classes.insert(base);
      watch->add_type(as_object(base));
#if PY_VERSION_HEX >= 0x030C0000
      const PyRef variables = own(PyType_GetDict(base));
#else
      const PyRef variables = PyRef::borrow(base->tp_dict);
#endif
      PyObject *key, *value;
      std::vector<Watch::Entry> found;
      for (Py_ssize_t at = 0; PyDict_Next(variables.get(), &at, &key, &value);) {
        if (!PyUnicode_CheckExact(key)) continue;
        const int is_method = PySet_Contains(methods.get(), key);
        const int named = is_method != 0 || starts_with(key, "__") ? 0 : PySet_Contains(names.get(), key);
        check_status(is_method);
        check_status(named);
        if (is_method != 0 || named != 0) found.push_back({PyRef::borrow(key), PyRef::borrow(value)});
      }
      for (const Watch::Entry& e : found) add(e.value.get(), How::Entry, e.key.get());
    }
  }
  static bool of_package(PyObject* module) { return has_root(module, "tapegrad") || has_root(module, root_name()); }
  static bool has_root(PyObject* module, const std::string& root) {
    const auto size = static_cast<Py_ssize_t>(root.size());
    return starts_with(module, root.c_str()) &&
           (PyUnicode_GET_LENGTH(module) == size || PyUnicode_READ_CHAR(module, size) == '.');
  }

  // Then all that it is made of is, too, or is built in.
  bool is_of_package(PyTypeObject* cls) {
    auto [known, fresh] = packages.try_emplace(cls, false);
    if (fresh) known->second = of_package(own(PyObject_GetAttrString(as_object(cls), "__module__")).get());
    return known->second;
  }

  // What it was reached by, from the function on.
  std::string path(int at) const {
    std::vector<const Seen*> steps;
    for (; at >= 0; at = steps.back()->parent) steps.push_back(&seen[static_cast<size_t>(at)]);
    std::string made;
    for (; !steps.empty(); steps.pop_back()) {
      const Seen& s = *steps.back();
      const bool named = s.how == How::Path || (s.how == How::Entry && PyUnicode_Check(s.key.get()));
      std::string key;
      if (s.how == How::Path || s.how == How::Entry) {
        const PyRef text = named ? PyRef::borrow(s.key.get()) : own(PyObject_Repr(s.key.get()));
        const char* utf8 = PyUnicode_AsUTF8(text.get());
        if (utf8 == nullptr) throw_python_error();
        key = utf8;
      }
      if (named)
        made += made.empty() ? key : "." + key;
      else if (s.how == How::Member)
        made = "an item of " + made;
      else
        made += "[" + (s.how == How::Item ? std::to_string(s.index) : key) + "]";
    }
    return made;
  }

  void visit(PyObject* value, PyObject* other) {
    PyTypeObject* type = Py_TYPE(value);
    const bool is_container =
        PyDict_Check(value) || PyList_Check(value) || PyTuple_Check(value) || PyAnySet_Check(value);
    bool rest = false;
    if (is_tensor(value)) {
      watch->add_tensor(value);
      const bool of_packages = is_of_package(type);
      if (!of_packages) add_class(type);
      PyObject** const variables = _PyObject_GetDictPtr(value);  // makes none
      if (variables != nullptr && *variables != nullptr && PyDict_GET_SIZE(*variables) != 0)
        add_dict(PyRef::borrow(*variables).get(), names.get(), of_packages);
    } else if (PyType_Check(value)) {
      add_class(reinterpret_cast<PyTypeObject*>(value));
    } else if (PyDict_Check(value)) {
      add_dict(value, nullptr, false);
    } else if (PyList_Check(value)) {
      watch->add_list(value);
      for (Py_ssize_t i = 0; i < PyList_GET_SIZE(value); ++i) add(PyList_GET_ITEM(value, i), How::Item, nullptr, i);
    } else if (PyTuple_Check(value)) {
      for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(value); ++i) add(PyTuple_GET_ITEM(value, i), How::Item, nullptr, i);
    } else if (PyAnySet_Check(value)) {
      if (PySet_Check(value)) watch->add_list(value);
      const PyRef items = own(PyObject_GetIter(value));
      while (PyRef item{PyIter_Next(items.get())}) add(item.get(), How::Member, nullptr);
      if (PyErr_Occurred()) throw_python_error();
    } else if (is_module(value)) {
      watch->add_object(value);
      if (!is_of_package(type)) add_class(type);
      const PyRef variables = own(PyObject_GenericGetDict(value, nullptr));
      add_dict(variables.get(), nullptr, false);
    } else {
      rest = true;
    }
    // A container of the program's own class has attributes, too.
    if (rest || (is_container && !PyDict_CheckExact(value) && !PyODict_CheckExact(value) && !PyList_CheckExact(value) &&
                 !PyTuple_CheckExact(value) && !PyAnySet_CheckExact(value))) {
      const std::string at = path(current);
      own(PyObject_CallFunction(other, "Os", value, at.c_str()));
    }
  }

  void run(PyObject* other) {
    while (next < seen.size()) {
      current = static_cast<int>(next++);
      if (const PyRef value = PyRef::borrow(seen[static_cast<size_t>(current)].value.get())) visit(value.get(), other);
    }
    current = -1;
  }
};

}  // namespace

bool is_of_package(PyObject* module) { return Walk::of_package(module); }

namespace {

using PyWalk = Boxed<Walk>;
PyTypeObject *walk_type = nullptr, *observer_type = nullptr;

PyObject* walk_new(PyTypeObject* type, PyObject* args, PyObject*) {
  TG_PY_TRY
  PyObject *names, *module_type, *values, *methods;
  Py_ssize_t most;
  if (!PyArg_ParseTuple(args, "O!O!O!O!n:_Walk", &PySet_Type, &names, &PyType_Type, &module_type, &PyTuple_Type,
                        &values, &PyFrozenSet_Type, &methods, &most))
    return nullptr;
  Walk walk;
  walk.names = PyRef::borrow(names);
  walk.module_type = PyRef::borrow(module_type);
  walk.values = PyRef::borrow(values);
  walk.methods = PyRef::borrow(methods);
  walk.most = static_cast<size_t>(most);
  return box<Walk>(type, std::move(walk));
  TG_PY_CATCH
}

// add_dict(dict, path, names, may_grow): what is found is reached by the path.
PyObject* walk_add_dict(PyObject* self, PyObject* args) {
  TG_PY_TRY
  PyObject *dict, *path, *names = Py_None;
  int may_grow = 0;
  if (!PyArg_ParseTuple(args, "O!U|Op:add_dict", &PyDict_Type, &dict, &path, &names, &may_grow)) return nullptr;
  auto& walk = unbox<Walk>(self);
  TG_CHECK(names == Py_None || PyAnySet_Check(names), Type, "add_dict: expected a set of names");
  const int before = walk.current;
  walk.seen.push_back({PyRef(), -1, Walk::How::Path, PyRef::borrow(path), 0});  // for the paths alone
  walk.current = static_cast<int>(walk.seen.size()) - 1;
  walk.add_dict(dict, names == Py_None ? nullptr : names, may_grow != 0);
  walk.current = before;
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* walk_watch(PyObject* self, PyObject*) {
  TG_PY_TRY
  return new_watch(std::exchange(unbox<Walk>(self).watch, std::make_shared<Watch>()));
  TG_PY_CATCH
}

PyObject* walk_tensors(PyObject* self, void*) {
  TG_PY_TRY
  const auto& tensors = unbox<Walk>(self).watch->tensors();
  return new_list(tensors.size(), [&](size_t i) { return Py_NewRef(tensors[i].object.get()); }).release();
  TG_PY_CATCH
}

// clang-format off
PyMethodDef walk_methods[] = {
    method<"add", [](PyWalk& self, PyObject* value, PyObject* path) {
      TG_CHECK(PyUnicode_Check(path), Type, "add: expected a text");
      self.value.add(value, Walk::How::Path, path);
    }>(),
    {"add_dict", walk_add_dict, METH_VARARGS, "Watches a dictionary: all of it, or what has these names."},
    // What is in these entries is not visited.
    method<"watch_dict", [](PyWalk& self, PyObject* dict, PyObject* names) {
      TG_CHECK(PyDict_Check(dict) && PyAnySet_Check(names), Type, "watch_dict: expected a dictionary and a set");
      self.value.watch->add_dict(dict, names, false);
    }>(),
    method<"add_cell", [](PyWalk& self, PyObject* cell) {
      TG_CHECK(PyCell_Check(cell), Type, "add_cell: expected a cell");
      self.value.watch->add_cell(cell);
    }>(),
    // Its class, and not what is in it.
    method<"add_object", [](PyWalk& self, PyObject* object) { self.value.watch->add_object(object); }>(),
    method<"add_function", [](PyWalk& self, PyObject* function) {
      TG_CHECK(PyFunction_Check(function), Type, "add_function: expected a function");
      self.value.watch->add_function(function);
    }>(),
    method<"add_context", [](PyWalk& self, PyObject* variable) {
      TG_CHECK(PyContextVar_CheckExact(variable), Type, "add_context: expected a ContextVar");
      self.value.watch->add_context(variable);
    }>(),
    method<"add_class", [](PyWalk& self, PyObject* cls) {
      TG_CHECK(PyType_Check(cls), Type, "add_class: expected a class");
      self.value.add_class(reinterpret_cast<PyTypeObject*>(cls));
    }>(),
    // Whether that is all.
    method<"run", [](PyWalk& self, PyObject* other) { self.value.run(other); return !self.value.full; }>(),
    {"watch", walk_watch, METH_NOARGS, "What was found, as a _Watch."},
    {}};
// clang-format on
PyGetSetDef walk_properties[] = {{"tensors", walk_tensors, nullptr, "The tensors that were found.", nullptr}, {}};

// --- _Observer ---

// Whether a native function is one of the package's.
bool is_native(PyObject* function) {
  if (!PyCFunction_Check(function)) return false;
  PyObject* owner = PyCFunction_GET_SELF(function);
  if (owner != nullptr && is_tensor(owner)) return true;
  PyRef module = PyRef::borrow(reinterpret_cast<PyCFunctionObject*>(function)->m_module);
  if (owner != nullptr && PyModule_Check(owner) && !(module = PyRef(PyModule_GetNameObject(owner)))) PyErr_Clear();
  return module && Walk::of_package(module.get());
}

// A profile function of one thread. It rests while garbage is collected and parts of the package are loaded: what is
// called then is no part of the step.
struct Observer {
  PyRef sizes, effect_of, own_file, package, codes, reason;
  PyRef before_all, after_all;  // methods of this, while it runs
  bool pure = false, running = false;
  int rests = 0;
  unsigned long thread = 0;
  std::unordered_set<PyObject*> known;  // code, of the package too, and functions of modules that have no effect
  std::unordered_set<PyObject*> known_in_package;  // the same where the package calls them, which may use more
  std::vector<PyRef> kept;
  PyRef last_code;
  bool last_of_package = false;

  bool of_package(PyCodeObject* code) {
    auto* object = reinterpret_cast<PyObject*>(code);
    if (object == last_code.get()) return last_of_package;
    bool found = false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(package.get()) && !found; ++i) {
      const Py_ssize_t n = PyUnicode_GET_LENGTH(code->co_filename);
      const auto starts = PyUnicode_Tailmatch(code->co_filename, PyTuple_GET_ITEM(package.get(), i), 0, n, -1);
      check_status(static_cast<int>(starts));
      found = starts != 0;
    }
    last_code = PyRef::borrow(object);
    last_of_package = found;
    return found;
  }

  bool keep(PyObject* object) {
    if (!known.insert(object).second) return false;
    kept.push_back(PyRef::borrow(object));
    return true;
  }

  void called(PyFrameObject* frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const PyRef held(reinterpret_cast<PyObject*>(code));
    if (!keep(held.get()) || of_package(code)) return;
#if PY_VERSION_HEX >= 0x030B0000
    const PyRef globals = own(PyFrame_GetGlobals(frame));
#else
    const PyRef globals = PyRef::borrow(frame->f_globals);
#endif
    check_status(PyDict_SetItem(codes.get(), held.get(), globals.get()));
  }

  // What a step that follows sizes is told.
  void tell_sizes(PyFrameObject* frame, int what, PyObject* arg) {
    auto& places = unbox<Places>(sizes.get());
    if (what == PyTrace_RETURN) return places.returned(frame);
    if (what == PyTrace_C_RETURN || what == PyTrace_C_EXCEPTION) {
      record::NativeTrace* trace = record::NativeTrace::now();
      if (trace != nullptr && trace->has_given() && is_native(arg)) trace->pin_given();
    } else if (places.active() && what == PyTrace_C_CALL) {
      if (places.has(frame)) places.called(frame, is_native(arg));
    } else if (places.active() && what == PyTrace_CALL) {
      const PyRef back(reinterpret_cast<PyObject*>(PyFrame_GetBack(frame)));
      auto* caller = reinterpret_cast<PyFrameObject*>(back.get());
      if (!places.has(caller)) return;
      const PyRef code(reinterpret_cast<PyObject*>(PyFrame_GetCode(frame)));
      PyObject* file = reinterpret_cast<PyCodeObject*>(code.get())->co_filename;
      if (file != own_file.get() && PyUnicode_Compare(file, own_file.get()) != 0) places.called(caller, false);
    }
  }

  // The program, or the package, calls a native function: whether it may have an effect or read what changes.
  void calls(PyFrameObject* frame, PyObject* function) {
    if (pure || reason) return;
    PyObject* owner = nullptr;
    bool of_module = false;
    if (PyCFunction_Check(function)) {
      owner = PyCFunction_GET_SELF(function);
      if (owner != nullptr && is_tensor(owner)) return;
      if (owner != nullptr && (PyDict_CheckExact(owner) || PyODict_CheckExact(owner) || PyList_CheckExact(owner) ||
                               PyTuple_CheckExact(owner) || PyUnicode_CheckExact(owner)))
        return;  // as _watch.py finds, too
      of_module = owner == nullptr || PyModule_Check(owner);
      PyObject* module = reinterpret_cast<PyCFunctionObject*>(function)->m_module;
      if (of_module && module != nullptr && Walk::of_package(module)) return;
    }
    PyCodeObject* code = PyFrame_GetCode(frame);
    const PyRef held(reinterpret_cast<PyObject*>(code));
    const bool package_calls = of_package(code);
    if (of_module && (package_calls ? known_in_package : known).contains(function)) return;
    PyRef found = own(PyObject_CallFunctionObjArgs(effect_of.get(), frame, function, nullptr));
    if (found.get() != Py_None)
      reason = std::move(found);
    else if (of_module && (package_calls ? known_in_package : known).insert(function).second)
      kept.push_back(PyRef::borrow(function));
  }
};

using PyObserver = Boxed<Observer>;

int observe(PyObject* self, PyFrameObject* frame, int what, PyObject* arg) {
  try {
    auto& o = unbox<Observer>(self);
    record::settle_numbers();  // of a native function that has called none: no other one takes them
    if (o.rests == 0 || what == PyTrace_RETURN) o.tell_sizes(frame, what, arg);
    if (o.rests != 0) return 0;
    if (what == PyTrace_CALL) o.called(frame);
    if (what == PyTrace_C_CALL && !(PyCFunction_Check(arg) && PyCFunction_GET_SELF(arg) == self)) o.calls(frame, arg);
    return 0;
  } catch (...) {
    translate_exception();
    return -1;
  }
}

PyObject* observer_new(PyTypeObject* type, PyObject* args, PyObject*) {
  TG_PY_TRY
  PyObject *sizes, *effect_of, *own_file, *package;
  int pure;
  if (!PyArg_ParseTuple(args, "O!OUO!p:_Observer", sizes_type, &sizes, &effect_of, &own_file, &PyTuple_Type, &package,
                        &pure))
    return nullptr;
  PyRef self(box<Observer>(type, {}));
  auto& made = unbox<Observer>(self.get());
  PyObject* const given[] = {sizes, effect_of, own_file, package};
  PyRef* const kept[] = {&made.sizes, &made.effect_of, &made.own_file, &made.package};
  for (size_t i = 0; i < 4; ++i) *kept[i] = PyRef::borrow(given[i]);
  made.pure = pure != 0;
  made.codes = own(PyDict_New());
  return self.release();
  TG_PY_CATCH
}

bool is_thread_of(const PyObserver& o) { return o.value.running && PyThread_get_thread_ident() == o.value.thread; }

PyObject* observer_codes(PyObject* self, void*) { return Py_NewRef(unbox<Observer>(self).codes.get()); }
PyObject* observer_reason(PyObject* self, void*) {
  PyObject* reason = unbox<Observer>(self).reason.get();
  return reason != nullptr ? Py_NewRef(reason) : PyUnicode_FromString("");
}

PyRef callbacks_of_collector() {
  PyRef callbacks = own(PyObject_GetAttrString(own(PyImport_ImportModule("gc")).get(), "callbacks"));
  TG_CHECK(PyList_Check(callbacks.get()), Type, "gc.callbacks is no list");
  return callbacks;
}

// Both are native so that Ctrl-C comes before or after all of it.
PyObject* observer_enter(PyObject* self, PyObject*) {
  TG_PY_TRY
  auto& o = unbox<Observer>(self);
  const PyRef callbacks = callbacks_of_collector();
  o.before_all = own(PyObject_GetAttrString(self, "before_all"));
  o.after_all = own(PyObject_GetAttrString(self, "after_all"));
  check_status(PyList_Append(callbacks.get(), o.after_all.get()));
  check_status(PyList_Insert(callbacks.get(), 0, o.before_all.get()));
  o.thread = PyThread_get_thread_ident();
  o.running = true;
  PyEval_SetProfile(observe, self);
  return Py_NewRef(self);
  TG_PY_CATCH
}

PyObject* observer_exit(PyObject* self, PyObject*) {
  TG_PY_TRY
  auto& o = unbox<Observer>(self);
  o.running = false;
  const PyThreadState* state = PyThreadState_Get();
  if (state->c_profilefunc == observe && state->c_profileobj == self)
    PyEval_SetProfile(nullptr, nullptr);
  else if (!o.reason)
    o.reason = own(PyUnicode_FromString("it sets a profiler of Python"));
  const PyRef callbacks = callbacks_of_collector();
  for (const PyRef& method : {std::exchange(o.before_all, {}), std::exchange(o.after_all, {})})
    for (Py_ssize_t i = PyList_GET_SIZE(callbacks.get()); i-- > 0;)
      if (PyList_GET_ITEM(callbacks.get(), i) == method.get()) check_status(PySequence_DelItem(callbacks.get(), i));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

// clang-format off
PyMethodDef observer_methods[] = {
    {"__enter__", observer_enter, METH_NOARGS, "Observes this thread."},
    {"__exit__", observer_exit, METH_VARARGS, "The end of it."},
    method<"_rest_while_loading", [](PyObserver& self) { self.value.rests += is_thread_of(self) ? 1 : 0; }>(),
    method<"_go_on_after_loading", [](PyObserver& self) { self.value.rests -= is_thread_of(self) ? 1 : 0; }>(),
    // The first and the last of gc.callbacks.
    method<"before_all", [](PyObserver& self, std::string_view phase, PyObject*) {
      if (phase == "start" && is_thread_of(self)) ++self.value.rests;
    }>(),
    method<"after_all", [](PyObserver& self, std::string_view phase, PyObject*) {
      if (phase == "stop" && is_thread_of(self) && self.value.rests != 0) --self.value.rests;
    }>(),
    {}};
// clang-format on
PyGetSetDef observer_properties[] = {
    {"codes", observer_codes, nullptr, "Code that ran outside of the package, with its globals.", nullptr},
    {"reason", observer_reason, nullptr, "Why the step cannot be replayed, or an empty text.", nullptr},
    {}};

}  // namespace

bool init_walk(PyObject* module) {
  walk_type = add_type(module, "tapegrad._C._Walk", sizeof(PyWalk), 0,
                       {{Py_tp_new, walk_new},
                        {Py_tp_dealloc, dealloc_boxed<Walk>},
                        {Py_tp_methods, walk_methods},
                        {Py_tp_getset, walk_properties}});
  observer_type = add_type(module, "tapegrad._C._Observer", sizeof(PyObserver), 0,
                           {{Py_tp_new, observer_new},
                            {Py_tp_dealloc, dealloc_boxed<Observer>},
                            {Py_tp_methods, observer_methods},
                            {Py_tp_getset, observer_properties}});
  return walk_type != nullptr && observer_type != nullptr;
}

}  // namespace tapegrad::python
