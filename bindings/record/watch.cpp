#include "tapegrad/bindings/record/watch.h"

#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/interpreter/dict_version.h"
#include "tapegrad/bindings/interpreter/errors.h"
#include "tapegrad/bindings/record/plans.h"

namespace tapegrad::python {

namespace {

// A type's version, valid as long as it and its bases are not changed; 0: it has none now. A look-up gives it one.
unsigned int version_of_type(PyObject* type) {
  auto* t = reinterpret_cast<PyTypeObject*>(type);
#if PY_VERSION_HEX >= 0x030D0000  // there is no flag any more: 0 is no version
  if (t->tp_version_tag == 0) PyUnstable_Type_AssignVersionTag(t);
  return t->tp_version_tag;
#else
  if (!(t->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG)) {
    static PyObject* any = PyUnicode_InternFromString("__init__");
    _PyType_Lookup(t, any);
  }
  return t->tp_flags & Py_TPFLAGS_VALID_VERSION_TAG ? t->tp_version_tag : 0;
#endif
}

PyObject* lookup(PyObject* dict, PyObject* key) {
  PyObject* value = PyDict_GetItemWithError(dict, key);
  if (value == nullptr && PyErr_Occurred()) throw_python_error();
  return value;
}

bool is_plain(PyObject* o) {
  return o != nullptr && (o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) ||
                          PyUnicode_CheckExact(o) || PyBytes_CheckExact(o));
}

bool same(PyObject* a, PyObject* b, bool but_values = false) {
  return a == b || (a != nullptr && b != nullptr && ((but_values && is_plain(a) && is_plain(b)) || same_value(a, b)));
}

std::string text_of(PyObject* o) {
  PyRef text(PyObject_Str(o));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (utf8 == nullptr) PyErr_Clear();
  return utf8 ? utf8 : "?";
}

}  // namespace

const std::vector<Watch::Entry>& Watch::add_dict(PyObject* dict, PyObject* names, bool may_grow) {
  DictWatch& w = dicts_.emplace_back(DictWatch{PyRef::borrow(dict),
                                               dict_version(dict),
                                               may_grow ? -1 : PyDict_GET_SIZE(dict),
                                               names == nullptr && !may_grow,
                                               {}});
  PyObject *key, *value;
  for (Py_ssize_t at = 0; PyDict_Next(dict, &at, &key, &value);) {
    if (names != nullptr) {
      // What is compared by code of the program is no name.
      const int wanted = PyUnicode_CheckExact(key) ? PySet_Contains(names, key) : 0;
      check_status(wanted);
      if (wanted == 0) continue;
    }
    w.entries.push_back({PyRef::borrow(key), PyRef::borrow(value)});
  }
  if (names != nullptr && may_grow) {
    const PyRef iterator = own(PyObject_GetIter(names));
    while (PyRef name{PyIter_Next(iterator.get())})
      if (lookup(PyEval_GetBuiltins(), name.get()) != nullptr && lookup(dict, name.get()) == nullptr)
        w.entries.push_back({std::move(name), PyRef()});
    if (PyErr_Occurred()) throw_python_error();
  }
  return w.entries;
}

void Watch::add_list(PyObject* list) {
  if (PyAnySet_Check(list)) {
    sets_.push_back({PyRef::borrow(list), own(PyFrozenSet_New(list))});
    return;
  }
  ListWatch& w = lists_.emplace_back(ListWatch{PyRef::borrow(list), {}});
  for (Py_ssize_t i = 0; i < PyList_GET_SIZE(list); ++i) w.items.push_back(PyRef::borrow(PyList_GET_ITEM(list, i)));
}

void Watch::add_tensor(PyObject* o) {
  const Tensor& t = unwrap(o);
  tensors_.push_back({PyRef::borrow(o), t.impl()->storage(), t.requires_grad()});
}

void Watch::add_type(PyObject* type) { types_.push_back({PyRef::borrow(type), version_of_type(type)}); }

void Watch::add_function(PyObject* f) {
  functions_.push_back({PyRef::borrow(f), PyRef::borrow(PyFunction_GetCode(f)),
                        PyRef::borrow(PyFunction_GetDefaults(f)), PyRef::borrow(PyFunction_GetKwDefaults(f))});
}

namespace {
PyRef value_of_context(PyObject* variable) {
  PyObject* value = nullptr;
  check_status(PyContextVar_Get(variable, nullptr, &value));
  return PyRef(value);
}
}  // namespace

void Watch::add_context(PyObject* variable) {
  contexts_.push_back({PyRef::borrow(variable), value_of_context(variable)});
}

bool Watch::in_order(const DictWatch& w, bool but_values) {
  PyObject *key, *value;
  size_t i = 0;
  for (Py_ssize_t at = 0; PyDict_Next(w.dict.get(), &at, &key, &value); ++i)
    if (i == w.entries.size() || !same(w.entries[i].key.get(), key) ||
        !same(w.entries[i].value.get(), value, but_values))
      return false;
  return i == w.entries.size();
}

// `but_values`: other than from one plain value to another.
std::string Watch::find_change(bool but_values) {
  for (DictWatch& w : dicts_) {
    const uint64_t version = dict_version(w.dict.get());
    if (version != 0 && version == w.version) continue;
    const bool whole = w.whole && in_order(w, but_values);
    for (size_t i = 0; !whole && i < w.entries.size(); ++i) {
      PyObject* key = w.entries[i].key.get();
      if (!same(w.entries[i].value.get(), lookup(w.dict.get(), key), but_values)) return text_of(key);
    }
    if (w.size >= 0 && PyDict_GET_SIZE(w.dict.get()) != w.size) return "the number of entries of a dictionary";
    if (w.whole && !whole) return "the order of a dictionary's entries";
    if (!but_values) w.version = version;
  }
  for (const CellWatch& w : cells_)
    if (!same(w.value.get(), PyCell_GET(w.cell.get()), but_values)) return "a variable of an enclosing function";
  for (const ListWatch& w : lists_) {
    PyObject* list = w.list.get();
    bool equal = static_cast<size_t>(PyList_GET_SIZE(list)) == w.items.size();
    for (size_t i = 0; equal && i < w.items.size(); ++i)
      equal = same(w.items[i].get(), PyList_GET_ITEM(list, static_cast<Py_ssize_t>(i)), but_values);
    if (!equal) return "a list's items";
  }
  for (const CellWatch& w : sets_) {
    if (PySet_GET_SIZE(w.cell.get()) == 0 && PySet_GET_SIZE(w.value.get()) == 0) continue;
    const int equal = PyObject_RichCompareBool(w.cell.get(), w.value.get(), Py_EQ);
    check_status(equal);
    if (equal == 0) return "a set's items";
  }
  for (const TensorWatch& w : tensors_) {
    const Tensor& t = unwrap(w.object.get());
    if (t.impl()->storage() != w.storage) return "the memory of a tensor";
    if (t.requires_grad() != w.needs_grad) return "requires_grad of a tensor";
  }
  for (const CellWatch& w : objects_)
    if (class_of(w.cell.get()) != w.value.get()) return "the class of an object";
  for (const CellWatch& w : contexts_)
    if (!same(w.value.get(), value_of_context(w.cell.get()).get(), but_values))
      return "the context variable " + text_of(own(PyObject_GetAttrString(w.cell.get(), "name")).get());
  for (const FunctionWatch& w : functions_)
    if (!w.same())
      return "the function " + text_of(own(PyObject_GetAttrString(w.function.get(), "__qualname__")).get());
  for (TypeWatch& w : types_)
    if (const unsigned int version = version_of_type(w.type.get()); version == 0 || version != w.version)
      return "the class " + std::string(reinterpret_cast<PyTypeObject*>(w.type.get())->tp_name);
  return {};
}

bool Watch::holds(const StorageImpl* storage) const {
  for (const TensorWatch& w : tensors_)
    if (w.storage.get() == storage) return true;
  return false;
}

int Watch::traverse(visitproc visit, void* arg) const {
  for (const DictWatch& w : dicts_) {
    Py_VISIT(w.dict.get());
    for (const Entry& e : w.entries) {
      Py_VISIT(e.key.get());
      Py_VISIT(e.value.get());
    }
  }
  for (const auto* pairs : {&cells_, &sets_, &objects_, &contexts_})
    for (const CellWatch& w : *pairs) {
      Py_VISIT(w.cell.get());
      Py_VISIT(w.value.get());
    }
  for (const ListWatch& w : lists_) {
    Py_VISIT(w.list.get());
    for (const PyRef& item : w.items) Py_VISIT(item.get());
  }
  for (const TensorWatch& w : tensors_) Py_VISIT(w.object.get());
  for (const TypeWatch& w : types_) Py_VISIT(w.type.get());
  for (const FunctionWatch& w : functions_)
    for (const PyRef* part : {&w.function, &w.code, &w.defaults, &w.by_name}) Py_VISIT(part->get());
  return 0;
}

// --- tapegrad._C._Watch ---

PyTypeObject* watch_type = nullptr;

PyObject* new_watch(std::shared_ptr<Watch> watch) { return box<std::shared_ptr<Watch>>(watch_type, std::move(watch)); }

namespace {

using PyWatch = Boxed<std::shared_ptr<Watch>>;

int watch_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  const auto& watch = unbox<std::shared_ptr<Watch>>(self);
  return watch && watch.use_count() == 1 ? watch->traverse(visit, arg) : 0;  // else a plan has it, too
}
int watch_drop(PyObject* self) {
  unbox<std::shared_ptr<Watch>>(self) = std::make_shared<Watch>();
  return 0;
}

// Whether an argument of the recording shares memory with a tensor that is watched.
bool holds_argument(PyWatch& self, PyObject* recording) {
  for (const record::Slot& slot : recording_of(recording).recording->slots)
    if (slot.kind == record::Slot::Kind::Feed && self.value->holds(slot.fed)) return true;
  return false;
}

// clang-format off
PyMethodDef watch_methods[] = {
    method<"changed", [](PyWatch& self) { return self.value->changed(); }>("What has changed, or an empty text."),
    method<"only_values_changed", [](PyWatch& self) { return self.value->only_values_changed(); }>("Whether nothing has but plain values, which may come back."),
    method<"holds", holds_argument>("Whether an argument of the recording shares memory with a tensor that is watched."),
    {}};
// clang-format on

}  // namespace

bool init_watch(PyObject* module) {
  watch_type =
      add_type(module, "tapegrad._C._Watch", sizeof(PyWatch), Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_HAVE_GC,
               {{Py_tp_dealloc, dealloc_tracked<std::shared_ptr<Watch>>},
                {Py_tp_traverse, watch_traverse},
                {Py_tp_clear, watch_drop},
                {Py_tp_methods, watch_methods}});
  return watch_type != nullptr;
}

}  // namespace tapegrad::python
