#include "tapegrad/bindings/arguments/override.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/interpreter/errors.h"
#include "tapegrad/bindings/registry.h"
#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/memory/available_memory.h"
#include "tapegrad/c10/threads/stack.h"

namespace tapegrad::python {

int override_modes = 0;

namespace {

enum State : int { kOn, kSubclassesOff, kAllOff };

// The modes of this thread, the newest last (owned), and what is switched off: the functions that a mode or a type
// calls from its `__torch_function__` run with less.
std::vector<PyObject*>& modes() {
  static thread_local std::vector<PyObject*> mine;
  return mine;
}
constinit thread_local bool had_modes = false;
// Its model keeps all such variables of the bindings where every thread has them from its start: others are made when
// they are first used, and without memory for that the C library ends the process.
constinit thread_local int state_now __attribute__((tls_model("initial-exec"))) = kOn;

class StateGuard {
 public:
  explicit StateGuard(int state) noexcept : saved_(state_now) { state_now = state; }
  ~StateGuard() { state_now = saved_; }
  StateGuard(const StateGuard&) = delete;
  StateGuard& operator=(const StateGuard&) = delete;

 private:
  int saved_;
};

// Takes the newest mode away while it runs.
class ModeTaken {
 public:
  ModeTaken() : mode_(modes().back()) {
    modes().pop_back();
    --override_modes;
  }
  ~ModeTaken() {
    modes().push_back(mode_.release());  // its memory is reserved
    ++override_modes;
  }
  PyObject* get() const noexcept { return mode_.get(); }
  ModeTaken(const ModeTaken&) = delete;
  ModeTaken& operator=(const ModeTaken&) = delete;

 private:
  PyRef mode_;
};

PyObject* name_of_hook() {
  static PyObject* const name = PyUnicode_InternFromString("__torch_function__");
  return name;
}

PyObject* disabled_impl = nullptr;  // Parameter.__torch_function__, and that of types that disable overrides
PyObject* default_impl = nullptr;   // what subclasses of Tensor inherit

// A type's `__torch_function__`, borrowed; null if it does not override.
PyObject* hook_of(PyTypeObject* type) noexcept {
  if (type == tensor_type) return nullptr;
  PyObject* hook = _PyType_Lookup(type, name_of_hook());
  return hook == disabled_impl ? nullptr : hook;
}

// Types that are met often and never override.
bool never_overrides(PyTypeObject* type) noexcept {
  return type == &PyUnicode_Type || type == &PySlice_Type || type == &PyComplex_Type || type == &PyDict_Type ||
         type == &PyEllipsis_Type || type == tensor_type || type == parameter_type;
}

// `layout=` of a sparse one: what makes such a tensor is written in Python, and is called like an override.
bool is_sparse_layout(PyObject* o) noexcept {
  return Py_TYPE(o) == layout_type && reinterpret_cast<PyEnum*>(o)->value != static_cast<int>(Layout::Strided);
}

bool type_overrides(PyObject* o) noexcept { return !never_overrides(Py_TYPE(o)) && hook_of(Py_TYPE(o)) != nullptr; }

}  // namespace

bool mode_is_on() noexcept { return state_now != kAllOff && had_modes && !modes().empty(); }

bool overrides_slowly(PyObject* o) noexcept {
  if (is_sparse_layout(o)) return true;
  if (state_now != kOn || never_overrides(Py_TYPE(o))) return false;
  // The tensors of a list are arguments like any other.
  if (PyTuple_CheckExact(o)) {
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(o); ++i)
      if (type_overrides(PyTuple_GET_ITEM(o, i))) return true;
    return false;
  }
  if (PyList_CheckExact(o)) {
    for (Py_ssize_t i = 0; i < PyList_GET_SIZE(o); ++i)
      if (type_overrides(PyList_GET_ITEM(o, i))) return true;
    return false;
  }
  return hook_of(Py_TYPE(o)) != nullptr;
}

namespace {

// The overriding arguments: one of each type, subclasses before their bases, else from left to right.
class Relevant {
 public:
  void add(PyObject* o) {
    if (PyTuple_CheckExact(o) || PyList_CheckExact(o)) {
      for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) add_one(PySequence_Fast_GET_ITEM(o, i));
    } else {
      add_one(o);
    }
  }
  const std::vector<PyRef>& all() const noexcept { return all_; }
  PyRef types() const {
    PyRef result = own(PyTuple_New(static_cast<Py_ssize_t>(all_.size())));
    for (size_t i = 0; i < all_.size(); ++i)
      PyTuple_SET_ITEM(result.get(), static_cast<Py_ssize_t>(i),
                       Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(all_[i].get()))));
    return result;
  }

 private:
  void add_one(PyObject* o) {
    PyTypeObject* type = Py_TYPE(o);
    if (state_now != kOn || !type_overrides(o)) return;
    auto place = all_.end();
    for (auto it = all_.begin(); it != all_.end(); ++it) {
      if (Py_TYPE(it->get()) == type) return;
      if (place == all_.end() && PyType_IsSubtype(type, Py_TYPE(it->get()))) place = it;
    }
    all_.insert(place, PyRef::borrow(o));
  }

  std::vector<PyRef> all_;
};

PyRef call_hook(PyObject* object, PyObject* func, PyObject* types, PyObject* args, PyObject* kwargs) {
  const PyRef hook = own(PyObject_GetAttr(object, name_of_hook()));
  PyObject* given[] = {func, types, args, kwargs};
  return own(PyObject_Vectorcall(hook.get(), given, 4, nullptr));
}

// "torch.add" and "Tensor.add" as messages show them.
PyRef shown(PyObject* func) {
  PyRef name(PyObject_GetAttrString(func, "__qualname__"));
  if (name && PyUnicode_Check(name.get())) return name;
  PyErr_Clear();
  return own(PyObject_Repr(func));
}

[[noreturn]] void nobody_did_it(PyObject* func, const Relevant& relevant, PyObject* mode) {
  const PyRef name = shown(func);
  std::string text = fmt::format("no implementation found for '{}' on types that implement __torch_function__: [",
                                 PyUnicode_AsUTF8(name.get()));
  const char* separator = "";
  for (const PyRef& o : relevant.all()) {
    text += std::string(separator) + Py_TYPE(o.get())->tp_name;
    separator = ", ";
  }
  text += "]";
  if (mode) text += fmt::format(", nor in the mode {}", Py_TYPE(mode)->tp_name);
  TG_THROW(Type, "Multiple dispatch failed: {}\nall of them returned NotImplemented", text);
}

// The mode, then the types, until one answers.
PyRef ask(PyObject* func, const Relevant& relevant, PyObject* args, PyObject* kwargs) {
  check_stack("__torch_function__");
  const PyRef types = relevant.types();
  PyRef mode;
  if (mode_is_on()) {
    const ModeTaken taken;
    mode = PyRef::borrow(taken.get());
    PyRef result = call_hook(taken.get(), func, types.get(), args, kwargs);
    if (result.get() != Py_NotImplemented) return result;
  }
  if (state_now == kOn) {
    for (const PyRef& o : relevant.all()) {
      PyRef result = call_hook(o.get(), func, types.get(), args, kwargs);
      if (result.get() != Py_NotImplemented) return result;
    }
  }
  nobody_did_it(func, relevant, mode.get());
}

PyRef positional(PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  const Py_ssize_t first = self ? 1 : 0;
  PyRef result = own(PyTuple_New(nargs + first));
  if (self) PyTuple_SET_ITEM(result.get(), 0, Py_NewRef(self));
  for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(result.get(), i + first, Py_NewRef(args[i]));
  return result;
}

PyRef keywords(PyObject* const* values, PyObject* names) {
  PyRef result = own(PyDict_New());
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); ++i)
    check_status(PyDict_SetItem(result.get(), PyTuple_GET_ITEM(names, i), values[i]));
  return result;
}

// A tensor among the results becomes an instance of the class; so do those in a tuple or list.
PyRef converted(PyRef result, PyTypeObject* to) {
  if (to == tensor_type) return result;
  PyObject* o = result.get();
  if (is_tensor(o)) {
    if (PyType_IsSubtype(Py_TYPE(o), to)) return result;
    return call_method(o, "as_subclass", reinterpret_cast<PyObject*>(to));
  }
  if (!PyTuple_Check(o) && !PyList_Check(o)) return result;
  const PyRef items = own(PyList_New(0));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(o); ++i) {
    const PyRef item = converted(PyRef::borrow(PySequence_Fast_GET_ITEM(o, i)), to);
    check_status(PyList_Append(items.get(), item.get()));
  }
  return own(PyObject_CallOneArg(reinterpret_cast<PyObject*>(Py_TYPE(o)), items.get()));
}

// The only overriding type, if it is a subclass of Tensor that inherits `__torch_function__`: the operator then runs as
// usual, and its results become instances of the subclass. Null if a mode is active or any type has an implementation
// of its own.
PyTypeObject* only_default(const Relevant& relevant) noexcept {
  if (mode_is_on() || relevant.all().size() != 1) return nullptr;
  PyTypeObject* type = Py_TYPE(relevant.all()[0].get());
  return hook_of(type) == default_impl ? type : nullptr;
}

// --- which public function an entry of a table is ---

std::unordered_map<void*, PyObject*>& public_functions() {
  static auto* all = new std::unordered_map<void*, PyObject*>;
  return *all;
}

void* address_of(PyCFunction f) noexcept {
  void* p;
  static_assert(sizeof p == sizeof f);
  std::memcpy(&p, &f, sizeof p);
  return p;
}

// Functions by the C function that implements them: the first name counts, as aliases compare equal in Python.
void note_functions(PyObject* tables) {
  PyObject *module, *table, *name, *function;
  for (Py_ssize_t i = 0; PyDict_Next(tables, &i, &module, &table);)
    for (Py_ssize_t k = 0; PyDict_Next(table, &k, &name, &function);)
      if (PyCFunction_CheckExact(function))
        public_functions().emplace(address_of(PyCFunction_GET_FUNCTION(function)), Py_NewRef(function));
}

void note_methods() {
  PyObject *name, *value;
  for (Py_ssize_t i = 0; PyDict_Next(tensor_type->tp_dict, &i, &name, &value);)
    if (Py_IS_TYPE(value, &PyMethodDescr_Type)) {
      const PyMethodDef* def = reinterpret_cast<PyMethodDescrObject*>(value)->d_method;
      public_functions().emplace(address_of(def->ml_meth), Py_NewRef(value));
    }
  // Methods that a Python function has replaced, and calls.
  for (PyMethodDef* def : tensor_methods())
    for (; def->ml_name; ++def)
      if (!public_functions().contains(address_of(def->ml_meth)))
        public_functions().emplace(address_of(def->ml_meth), check(PyDescr_NewMethod(tensor_type, def)));
}

PyObject* public_function(PyCFunction entry) {
  auto& all = public_functions();
  if (all.empty()) {
    const PyRef module = own(PyImport_ImportModule("tapegrad._C"));
    const PyRef tables = own(PyObject_GetAttrString(module.get(), "_functions"));
    note_methods();
    note_functions(tables.get());
  }
  const auto found = all.find(address_of(entry));
  TG_CHECK(found != all.end(), Internal, "__torch_function__: an operator without a public name");
  return found->second;
}

}  // namespace

PyObject* call_overridden(PyCFunction entry, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                          PyObject* kwnames) noexcept {
  TG_PY_TRY
  Relevant relevant;
  if (self) relevant.add(self);
  const Py_ssize_t n = kwnames ? nargs + PyTuple_GET_SIZE(kwnames) : nargs;
  for (Py_ssize_t i = 0; i < n; ++i) relevant.add(args[i]);
  if (PyTypeObject* type = only_default(relevant)) {
    const StateGuard off(kSubclassesOff);
    const auto call = reinterpret_cast<FastCall>(reinterpret_cast<void (*)()>(entry));
    return converted(own(call(self, args, nargs, kwnames)), type).release();
  }
  const PyRef given = positional(self, args, nargs), named = keywords(args + nargs, kwnames);
  if (relevant.all().empty() && !mode_is_on()) {  // a layout
    const PyRef makers = own(PyImport_ImportModule("tapegrad._root.sparse")),
                made = own(PyObject_GetAttrString(makers.get(), "made"));
    const PyRef all = own(PyTuple_New(PyTuple_GET_SIZE(given.get()) + 1));
    PyTuple_SET_ITEM(all.get(), 0, Py_NewRef(public_function(entry)));
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given.get()); ++i)
      PyTuple_SET_ITEM(all.get(), i + 1, Py_NewRef(PyTuple_GET_ITEM(given.get(), i)));
    return own(PyObject_Call(made.get(), all.get(), named.get())).release();
  }
  return ask(public_function(entry), relevant, given.get(), named.get()).release();
  TG_PY_CATCH
}

namespace {

PyObject* call_overridden_object(PyObject* func, PyObject* self, PyObject* const* args, Py_ssize_t nargs) {
  Relevant relevant;
  relevant.add(self);
  for (Py_ssize_t i = 0; i < nargs; ++i) relevant.add(args[i]);
  const PyRef given = positional(self, args, nargs), named = keywords(nullptr, nullptr);
  return ask(func, relevant, given.get(), named.get()).release();
}

}  // namespace

PyObject* call_overridden_slot(const char* name, PyObject* self, PyObject* const* args, Py_ssize_t nargs) noexcept {
  TG_PY_TRY
  const PyRef func = own(PyObject_GetAttrString(reinterpret_cast<PyObject*>(tensor_type), name));
  return call_overridden_object(func.get(), self, args, nargs);
  TG_PY_CATCH
}

// --- hand-written methods and properties ---

namespace {

constexpr size_t kMostMethods = 128;
PyMethodDef originals[kMostMethods];
size_t num_originals = 0;

PyObject* wrong_count(const PyMethodDef& m, const char* expected, Py_ssize_t nargs, PyObject* kwnames) {
  if (kwnames && PyTuple_GET_SIZE(kwnames))
    return PyErr_Format(PyExc_TypeError, "Tensor.%s() takes no keyword arguments", m.ml_name);
  return PyErr_Format(PyExc_TypeError, "Tensor.%s() takes %s (%zd given)", m.ml_name, expected, nargs);
}

// As the interpreter calls a method of these flags.
PyObject* call_original(const PyMethodDef& m, PyObject* self, PyObject* const* args, Py_ssize_t nargs,
                        PyObject* kwnames) {
  const bool named = kwnames && PyTuple_GET_SIZE(kwnames) > 0;
  switch (m.ml_flags) {
    case METH_FASTCALL | METH_KEYWORDS:
      return reinterpret_cast<FastCall>(reinterpret_cast<void (*)()>(m.ml_meth))(self, args, nargs, kwnames);
    case METH_NOARGS:
      return nargs || named ? wrong_count(m, "no arguments", nargs, kwnames) : m.ml_meth(self, nullptr);
    case METH_O:
      return nargs != 1 || named ? wrong_count(m, "exactly one argument", nargs, kwnames) : m.ml_meth(self, args[0]);
    default: {
      if (named) return wrong_count(m, "", nargs, kwnames);
      PyRef all(PyTuple_New(nargs));
      if (!all) return nullptr;
      for (Py_ssize_t i = 0; i < nargs; ++i) PyTuple_SET_ITEM(all.get(), i, Py_NewRef(args[i]));
      return m.ml_meth(self, all.get());
    }
  }
}

template <size_t kAt>
PyObject* entry_of(PyObject* self, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  if (TG_UNLIKELY(overridden(self, args, nargs, kwnames)))
    return call_overridden(as_c_function(entry_of<kAt>), self, args, nargs, kwnames);
  return call_original(originals[kAt], self, args, nargs, kwnames);
}

template <size_t... kAt>
constexpr std::array<FastCall, sizeof...(kAt)> entries_of(std::index_sequence<kAt...>) {
  return {entry_of<kAt>...};
}
constexpr auto kEntries = entries_of(std::make_index_sequence<kMostMethods>());

// Methods that are not wrapped: they create subclasses themselves, or PyTorch does not override them either.
bool stays(const PyMethodDef& m) noexcept {
  if (m.ml_flags & (METH_STATIC | METH_CLASS)) return true;
  for (const char* name :
       {"as_subclass", "__torch_function__", "_shares_storage", "_storage_id", "_storage_nbytes", "_storage_address"})
    if (std::strcmp(m.ml_name, name) == 0) return true;
  return false;
}

}  // namespace

PyMethodDef overridable_method(const PyMethodDef& method) {
  if (stays(method) || num_originals == kMostMethods) return method;
  originals[num_originals] = method;
  PyMethodDef wrapped = method;
  wrapped.ml_meth = as_c_function(kEntries[num_originals++]);
  wrapped.ml_flags = METH_FASTCALL | METH_KEYWORDS;
  return wrapped;
}

namespace {

struct Property {
  PyGetSetDef original;
  bool keeps_tensors;  // results stay what they are: a gradient, the base of a view
};

PyObject* descriptor_call(const Property& p, const char* which) {
  PyObject* descriptor = PyDict_GetItemString(tensor_type->tp_dict, p.original.name);
  TG_CHECK(descriptor, Internal, "{}: a property without a descriptor", p.original.name);
  return check(PyObject_GetAttrString(descriptor, which));
}

TG_COLD PyObject* get_overridden(const Property& p, PyObject* self) noexcept {
  TG_PY_TRY
  Relevant relevant;
  relevant.add(self);
  if (PyTypeObject* type = only_default(relevant)) {
    const StateGuard off(kSubclassesOff);
    PyRef result = own(p.original.get(self, p.original.closure));
    return p.keeps_tensors ? result.release() : converted(std::move(result), type).release();
  }
  const PyRef func = own(descriptor_call(p, "__get__"));
  return call_overridden_object(func.get(), self, nullptr, 0);
  TG_PY_CATCH
}

PyObject* get_property(PyObject* self, void* closure) {
  const auto& p = *static_cast<const Property*>(closure);
  if (TG_UNLIKELY(overridden(self, nullptr, 0, nullptr))) return get_overridden(p, self);
  return p.original.get(self, p.original.closure);
}

TG_COLD int set_overridden(const Property& p, PyObject* self, PyObject* value) noexcept {
  TG_PY_TRY
  const PyRef func = own(descriptor_call(p, "__set__"));
  own(call_overridden_object(func.get(), self, &value, 1));
  return 0;
  TG_PY_CATCH_RETURN(-1)
}

int set_property(PyObject* self, PyObject* value, void* closure) {
  const auto& p = *static_cast<const Property*>(closure);
  if (value && TG_UNLIKELY(overridden(self, &value, 1, nullptr))) return set_overridden(p, self, value);
  return p.original.set(self, value, p.original.closure);
}

}  // namespace

PyGetSetDef* overridable_properties(PyGetSetDef* properties) {
  static auto* all = new std::vector<PyGetSetDef>;
  for (const PyGetSetDef* p = properties; p->name; ++p) {
    PyGetSetDef& made = all->emplace_back(*p);
    if (std::strcmp(p->name, "__dict__") == 0) continue;
    const bool keeps = std::strcmp(p->name, "grad") == 0 || std::strcmp(p->name, "_base") == 0;
    made.closure = new Property{*p, keeps};
    made.get = get_property;
    if (p->set) made.set = set_property;
  }
  all->push_back({});
  return all->data();
}

// --- what tapegrad.overrides is made of ---

namespace {

// Tensor.__torch_function__(func, types, args=(), kwargs=None)
PyObject* tensor_torch_function(PyObject* cls, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  static const char* const names[] = {"func", "types", "args", "kwargs"};
  PyObject* given[4] = {};
  TG_CHECK(nargs <= 4, Type, "__torch_function__: takes at most 4 arguments: got {}", nargs);
  std::copy_n(args, nargs, given);
  for (Py_ssize_t k = 0; kwnames && k < PyTuple_GET_SIZE(kwnames); ++k) {
    int at = 0;
    while (at < 4 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, k), names[at]) != 0) ++at;
    TG_CHECK(at < 4 && !given[at], Type, "__torch_function__: unexpected argument {}",
             PyUnicode_AsUTF8(PyTuple_GET_ITEM(kwnames, k)));
    given[at] = args[nargs + k];
  }
  TG_CHECK(given[0] && given[1], Type, "__torch_function__: func and types are needed");
  const PyRef types = own(PySequence_Fast(given[1], "__torch_function__: types must be a sequence"));
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(types.get()); ++i) {
    const int is = PyObject_IsSubclass(cls, PySequence_Fast_GET_ITEM(types.get(), i));
    check_status(is);
    if (!is) Py_RETURN_NOTIMPLEMENTED;
  }
  const PyRef call_args = given[2] ? own(PySequence_Tuple(given[2])) : own(PyTuple_New(0));
  PyObject* call_kwargs = given[3] && given[3] != Py_None ? given[3] : nullptr;
  const StateGuard off(std::max<int>(kSubclassesOff, state_now));
  PyRef result = own(PyObject_Call(given[0], call_args.get(), call_kwargs));
  for (const char* name : {"grad", "_base"}) {
    PyObject* descriptor = PyDict_GetItemString(tensor_type->tp_dict, name);
    const PyRef getter = own(PyObject_GetAttrString(descriptor, "__get__"));
    const int same = PyObject_RichCompareBool(getter.get(), given[0], Py_EQ);
    check_status(same);
    if (same) return result.release();
  }
  return converted(std::move(result), reinterpret_cast<PyTypeObject*>(cls)).release();
}

PyObject* disabled(PyObject*, PyObject* args) {
  // (func, types, args, kwargs), also with the class in front: runs the function without overrides
  const Py_ssize_t n = PyTuple_GET_SIZE(args);
  TG_CHECK(n >= 2 && n <= 4, Type, "_disabled_torch_function_impl: expected func, types, args and kwargs: got {}", n);
  const PyRef positional_args = n > 2 ? own(PySequence_Tuple(PyTuple_GET_ITEM(args, 2))) : own(PyTuple_New(0));
  PyObject* kwargs = n > 3 && PyTuple_GET_ITEM(args, 3) != Py_None ? PyTuple_GET_ITEM(args, 3) : nullptr;
  const StateGuard off(std::max<int>(kSubclassesOff, state_now));
  return PyObject_Call(PyTuple_GET_ITEM(args, 0), positional_args.get(), kwargs);
}

constinit thread_local bool unasked_once = false;

bool has_override(PyObject* const* args, Py_ssize_t n) noexcept {
  if (unasked_once) return unasked_once = false;
  if (override_modes != 0 && mode_is_on()) return true;
  if (state_now != kOn) return false;
  for (Py_ssize_t i = 0; i < n; ++i)
    if (type_overrides(args[i])) return true;
  return false;
}

PyObject* has_torch_function(PyObject*, PyObject* relevant) {
  const PyRef items = own(PySequence_Fast(relevant, "has_torch_function: expected a tuple of arguments"));
  return PyBool_FromLong(has_override(PySequence_Fast_ITEMS(items.get()), PySequence_Fast_GET_SIZE(items.get())));
}
PyObject* has_torch_function_unary(PyObject*, PyObject* o) { return PyBool_FromLong(has_override(&o, 1)); }
PyObject* has_torch_function_variadic(PyObject*, PyObject* const* args, Py_ssize_t n) {
  return PyBool_FromLong(has_override(args, n));
}

// handle_torch_function(public_api, relevant_args, *args, **kwargs)
PyObject* handle_torch_function(PyObject*, PyObject* const* args, Py_ssize_t nargs, PyObject* kwnames) {
  TG_CHECK(nargs >= 2, Type, "handle_torch_function: expected a function and its relevant arguments: got {} arguments",
           nargs);
  const PyRef items = own(PySequence_Fast(args[1], "handle_torch_function: expected a sequence of relevant arguments"));
  Relevant relevant;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    relevant.add(PySequence_Fast_GET_ITEM(items.get(), i));
  const PyRef given = positional(nullptr, args + 2, nargs - 2), named = keywords(args + nargs, kwnames);
  return ask(args[0], relevant, given.get(), named.get()).release();
}

PyObject* overloaded_args(PyObject*, PyObject* relevant_args) {
  const PyRef items = own(PySequence_Fast(relevant_args, "expected a sequence of arguments"));
  Relevant relevant;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(items.get()); ++i)
    relevant.add(PySequence_Fast_GET_ITEM(items.get(), i));
  const PyRef list = own(PyList_New(0));
  for (const PyRef& o : relevant.all()) check_status(PyList_Append(list.get(), o.get()));
  return Py_NewRef(list.get());
}

PyObject* push_mode(PyObject*, PyObject* mode) {
  require_thread_memory<StateGuard>();
  had_modes = true;
  auto& all = modes();
  all.reserve(all.size() + 1);
  all.push_back(Py_NewRef(mode));
  ++override_modes;
  Py_RETURN_NONE;
}

PyObject* pop_mode(PyObject*, PyObject*) {
  TG_CHECK(had_modes && !modes().empty(), Runtime, "TorchFunctionMode: no mode is on");
  auto& all = modes();
  PyObject* mode = all.back();
  all.pop_back();
  --override_modes;
  return mode;
}

PyObject* modes_on(PyObject*, PyObject*) {
  require_thread_memory<StateGuard>();
  const auto& all = modes();
  PyRef list = own(PyList_New(static_cast<Py_ssize_t>(all.size())));
  for (size_t i = 0; i < all.size(); ++i) PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), Py_NewRef(all[i]));
  return list.release();
}

// _call_unasked(func, args, kwargs): an operator runs; a Python function's first question is answered with no.
PyObject* call_unasked(PyObject*, PyObject* args) {
  PyObject *func, *given, *named;
  if (!PyArg_ParseTuple(args, "OO!O!:_call_unasked", &func, &PyTuple_Type, &given, &PyDict_Type, &named))
    return nullptr;
  if (!PyFunction_Check(func)) {
    const StateGuard off(kAllOff);
    return PyObject_Call(func, given, named);
  }
  unasked_once = true;
  PyObject* result = PyObject_Call(func, given, named);
  unasked_once = false;
  return result;
}

// _set_override_state(0: all enabled, 1: subclasses disabled, 2: all disabled): returns the previous state
PyObject* set_state(PyObject*, PyObject* state) {
  const long value = PyLong_AsLong(state);
  if (value == -1 && PyErr_Occurred()) return nullptr;
  if (value < kOn || value > kAllOff)
    return PyErr_Format(PyExc_ValueError, "_set_override_state: expected 0, 1 or 2: got %ld", value);
  return PyLong_FromLong(std::exchange(state_now, static_cast<int>(value)));
}

PyObject* get_state(PyObject*, PyObject*) { return PyLong_FromLong(state_now); }

PyMethodDef disabled_method = {"_disabled_torch_function_impl", guarded<disabled>, METH_VARARGS,
                               "As `__torch_function__` of a type: it is not asked."};

}  // namespace

PyMethodDef tensor_override_methods[] = {
    {"__torch_function__", as_c_function(guarded<tensor_torch_function>), METH_FASTCALL | METH_KEYWORDS | METH_CLASS,
     "__torch_function__(func, types, args=(), kwargs=None)\n\nRuns the function; tensors among its results become "
     "instances of this class. NotImplemented where another type takes part of which this is no subclass."},
    {},
};

PyMethodDef override_functions[] = {
    {"_has_torch_function", guarded<has_torch_function>, METH_O, nullptr},
    {"_has_torch_function_unary", has_torch_function_unary, METH_O, nullptr},
    {"_has_torch_function_variadic", as_c_function(has_torch_function_variadic), METH_FASTCALL, nullptr},
    {"_handle_torch_function", as_c_function(guarded<handle_torch_function>), METH_FASTCALL | METH_KEYWORDS, nullptr},
    {"_overloaded_args", guarded<overloaded_args>, METH_O, nullptr},
    {"_call_unasked", guarded<call_unasked>, METH_VARARGS, nullptr},
    {"_push_function_mode", guarded<push_mode>, METH_O, nullptr},
    {"_pop_function_mode", guarded<pop_mode>, METH_NOARGS, nullptr},
    {"_function_modes", guarded<modes_on>, METH_NOARGS, nullptr},
    {"_set_override_state", set_state, METH_O, nullptr},
    {"_get_override_state", get_state, METH_NOARGS, nullptr},
    {},
};

bool init_overrides(PyObject* module) {
  if (PyModule_AddFunctions(module, override_functions) < 0) return false;
  default_impl = PyDict_GetItemWithError(tensor_type->tp_dict, name_of_hook());
  disabled_impl = PyCFunction_NewEx(&disabled_method, nullptr, nullptr);
  return default_impl && disabled_impl &&
         PyModule_AddObjectRef(module, "_disabled_torch_function_impl", disabled_impl) == 0 &&
         PyObject_SetAttr(reinterpret_cast<PyObject*>(parameter_type), name_of_hook(), disabled_impl) == 0;
}

}  // namespace tapegrad::python
