#include "tapegrad/bindings/record/tree.h"

#include <algorithm>
#include <cstring>

#include "tapegrad/bindings/interpreter/type_object.h"

namespace tapegrad::python {

namespace {

constexpr int kMaxDepth = 32;

bool has(PyObject* o, const char* name) {
  PyRef found(PyObject_GetAttrString(o, name));
  if (!found) PyErr_Clear();
  return static_cast<bool>(found);
}

// Of the program's code, but for Ctrl-C and the like.
void forgive_exception() {
  if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception)) throw_python_error();
  PyErr_Clear();
}

// One of collections.namedtuple, or a structure such as operators return.
bool is_named_tuple(PyObject* o) {
  if (!PyTuple_Check(o) || PyTuple_CheckExact(o)) return false;
  PyObject* type = as_object(Py_TYPE(o));
  return has(type, "_make") || has(type, "n_sequence_fields");
}

// What utils._pytree has registered for a type, a pair of functions, or null.
PyRef registered(PyTypeObject* type) {
  const PyRef kinds = own(PyObject_GetAttrString(own(PyImport_ImportModule("tapegrad.utils._pytree")).get(), "_KINDS"));
  PyObject* found = PyDict_GetItemWithError(kinds.get(), as_object(type));
  if (found == nullptr && PyErr_Occurred()) throw_python_error();
  return PyRef::borrow(found);
}

// The attributes of an object that is nothing but these: its class is written in Python, outside of the package,
// without slots and a way of its own to make objects.
PyRef attributes_of(PyObject* o) {
  PyTypeObject* const type = Py_TYPE(o);
  if (!PyType_HasFeature(type, Py_TPFLAGS_HEAPTYPE) || type->tp_new != PyBaseObject_Type.tp_new || PyType_Check(o) ||
      PyIter_Check(o) || has(as_object(type), "__del__"))
    return {};
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(type->tp_mro); ++i) {
    PyObject* base = PyTuple_GET_ITEM(type->tp_mro, i);
    if (base == as_object(&PyBaseObject_Type) || !has(base, "__slots__")) continue;
    const int any = PyObject_IsTrue(own(PyObject_GetAttrString(base, "__slots__")).get());
    check_status(any);
    if (any != 0) return {};
  }
  const PyRef module = own(PyObject_GetAttrString(as_object(type), "__module__"));
  if (!PyUnicode_Check(module.get()) || is_of_package(module.get())) return {};
  PyRef attributes(PyObject_GenericGetDict(o, nullptr));
  if (!attributes) PyErr_Clear();
  return attributes;
}

}  // namespace

bool is_by_value(PyObject* o) {
  return o == Py_None || PyBool_Check(o) || PyLong_CheckExact(o) || PyFloat_CheckExact(o) || PyComplex_CheckExact(o) ||
         PyUnicode_CheckExact(o) || PyBytes_CheckExact(o);
}

bool same_value(PyObject* a, PyObject* b) {
  if (a == b) return true;
  if (Py_TYPE(a) != Py_TYPE(b)) return false;
  if (PyFloat_CheckExact(a)) {
    const double x = PyFloat_AS_DOUBLE(a), y = PyFloat_AS_DOUBLE(b);
    return std::memcmp(&x, &y, sizeof x) == 0;
  }
  if (!is_by_value(a)) return false;
  const int equal = PyObject_RichCompareBool(a, b, Py_EQ);
  check_status(equal);
  return equal != 0;
}

void Tree::add(PyObject* value, std::vector<PyObject*>& tensors, Results* results, int depth) {
  PyObject* const read = results != nullptr ? results->read : nullptr;
  for (Py_ssize_t i = 0; read != nullptr && i < PyList_GET_SIZE(read); ++i)
    if (PyObject* pair = PyList_GET_ITEM(read, i); PyTuple_GET_ITEM(pair, 0) == value) {
      nodes_.push_back({Kind::Read, PyList_Check(value) ? size_t{1} : size_t{0}, {}});
      tensors.push_back(PyTuple_GET_ITEM(pair, 1));
      return;
    }
  if (is_by_value(value)) {
    nodes_.push_back({Kind::Equal, 0, PyRef::borrow(value)});
    return;
  }
  if (results == nullptr) return add_new(value, tensors, results, depth);
  const std::vector<PyObject*>& known = results->known;
  if (auto found = std::find(known.begin(), known.end(), value); found != known.end()) {
    nodes_.push_back({Kind::Known, static_cast<size_t>(found - known.begin()), {}});
    return;
  }
  const auto [found, fresh] = results->seen.try_emplace(value, Results::Place{nodes_.size()});
  if (fresh) {
    add_new(value, tensors, results, depth);
    results->seen.at(value).whole = true;
  } else if (found->second.whole) {
    repeats_ = true;
    nodes_.push_back({Kind::Again, found->second.node, {}});
  } else {
    nodes_.push_back({Kind::Same, 0, PyRef::borrow(value)});  // it holds itself, which no replay does
  }
}

void Tree::add_new(PyObject* value, std::vector<PyObject*>& tensors, Results* results, int depth) {
  if (is_tensor(value)) {
    if (results == nullptr && unwrap(value).requires_grad()) {
      nodes_.push_back({Kind::Same, 0, PyRef::borrow(value)});
      return;
    }
    nodes_.push_back({Kind::Tensor, 0, {}});
    tensors.push_back(value);
    return;
  }
  const bool named = is_named_tuple(value);
  if (depth < kMaxDepth && (named || PyTuple_CheckExact(value) || PyList_CheckExact(value))) {
    const auto n = static_cast<size_t>(PySequence_Fast_GET_SIZE(value));
    nodes_.push_back({named                       ? Kind::Named
                      : PyTuple_CheckExact(value) ? Kind::Tuple
                                                  : Kind::List,
                      n, named ? PyRef::borrow(as_object(Py_TYPE(value))) : PyRef()});
    for (size_t i = 0; i < n; ++i)
      add(PySequence_Fast_GET_ITEM(value, static_cast<Py_ssize_t>(i)), tensors, results, depth + 1);
  } else if (depth < kMaxDepth && PyDict_CheckExact(value)) {
    const auto n = static_cast<size_t>(PyDict_GET_SIZE(value));
    PyRef keys = own(PyList_AsTuple(own(PyDict_Keys(value)).get()));
    PyObject* names = keys.get();
    nodes_.push_back({Kind::Dict, n, std::move(keys)});
    for (size_t i = 0; i < n; ++i)
      add(check(PyDict_GetItemWithError(value, PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)))), tensors, results,
          depth + 1);
  } else if (results == nullptr || depth >= kMaxDepth || !add_object(value, tensors, *results, depth)) {
    nodes_.push_back({Kind::Same, 0, PyRef::borrow(value)});
  }
}

bool Tree::add_object(PyObject* value, std::vector<PyObject*>& tensors, Results& results, int depth) {
  PyTypeObject* const type = Py_TYPE(value);
  Kind kind = Kind::Registered;
  PyRef items, object;
  if (const PyRef pair = registered(type)) {
    // Both are code of the program: where they fail, or give something else, it is as if there were none.
    const PyRef make = own(PyObject_GetAttrString(pair.get(), "unflatten"));
    const PyRef parts(PyObject_CallOneArg(own(PyObject_GetAttrString(pair.get(), "flatten")).get(), value));
    const bool right = parts && PyTuple_Check(parts.get()) && PyTuple_GET_SIZE(parts.get()) >= 2;
    if (right) items = PyRef(PySequence_List(PyTuple_GET_ITEM(parts.get(), 0)));
    PyRef again;
    if (items)
      again = PyRef(PyObject_CallFunctionObjArgs(make.get(), items.get(), PyTuple_GET_ITEM(parts.get(), 1), nullptr));
    forgive_exception();
    if (!again || Py_TYPE(again.get()) != type) return false;
    object = own(PyTuple_Pack(3, type, PyTuple_GET_ITEM(parts.get(), 1), make.get()));
  } else if (const PyRef attributes = attributes_of(value)) {
    kind = Kind::Object;
    items = own(PyDict_Values(attributes.get()));
    object = own(PyTuple_Pack(2, type, own(PyList_AsTuple(own(PyDict_Keys(attributes.get())).get())).get()));
  } else {
    return false;
  }
  const auto n = static_cast<size_t>(PyList_GET_SIZE(items.get()));
  const size_t nodes = nodes_.size(), before = tensors.size();
  nodes_.push_back({kind, n, std::move(object)});
  for (size_t i = 0; i < n; ++i)
    add(PyList_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i)), tensors, &results, depth + 1);
  const bool fresh = std::any_of(tensors.begin() + static_cast<std::ptrdiff_t>(before), tensors.end(),
                                 [&](PyObject* t) { return results.recorder.made(unwrap(t)); });
  results.kept.push_back(std::move(items));
  if (kind == Kind::Registered || fresh) return true;
  // Without a tensor that the step made it may well have been there before.
  nodes_.resize(nodes);
  tensors.resize(before);
  std::erase_if(results.seen, [&](const auto& entry) { return entry.second.node > nodes; });
  return false;
}

bool Tree::matches(PyObject* value, std::vector<PyObject*>& tensors) const {
  size_t at = 0;
  return match(at, value, tensors);
}

bool Tree::match(size_t& at, PyObject* value, std::vector<PyObject*>& tensors) const {
  const Node& node = nodes_[at++];
  switch (node.kind) {
    case Kind::Tensor:
      if (!is_tensor(value) || unwrap(value).requires_grad()) return false;
      tensors.push_back(value);
      return true;
    case Kind::Equal:
      return same_value(node.object.get(), value);
    case Kind::Same:
      return node.object.get() == value;
    case Kind::Known:
    case Kind::Read:
    case Kind::Registered:
    case Kind::Object:
    case Kind::Again:
      return false;
    case Kind::Tuple:
    case Kind::List:
    case Kind::Named: {
      const bool right = node.kind == Kind::Tuple  ? PyTuple_CheckExact(value)
                         : node.kind == Kind::List ? PyList_CheckExact(value)
                                                   : as_object(Py_TYPE(value)) == node.object.get();
      if (!right || static_cast<size_t>(PySequence_Fast_GET_SIZE(value)) != node.n) return false;
      for (size_t i = 0; i < node.n; ++i)
        if (!match(at, PySequence_Fast_GET_ITEM(value, static_cast<Py_ssize_t>(i)), tensors)) return false;
      return true;
    }
    case Kind::Dict: {
      if (!PyDict_CheckExact(value) || static_cast<size_t>(PyDict_GET_SIZE(value)) != node.n) return false;
      for (size_t i = 0; i < node.n; ++i) {
        PyObject* item =
            PyDict_GetItemWithError(value, PyTuple_GET_ITEM(node.object.get(), static_cast<Py_ssize_t>(i)));
        if (item == nullptr && PyErr_Occurred()) throw_python_error();
        if (item == nullptr || !match(at, item, tensors)) return false;
      }
      return true;
    }
  }
  return false;
}

bool Tree::operator==(const Tree& other) const {
  if (nodes_.size() != other.nodes_.size()) return false;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    const Node &a = nodes_[i], &b = other.nodes_[i];
    if (a.kind != b.kind || a.n != b.n) return false;
    PyObject *x = a.object.get(), *y = b.object.get();
    const bool compared = a.kind == Kind::Dict || a.kind == Kind::Registered || a.kind == Kind::Object;
    if (a.kind == Kind::Equal ? !same_value(x, y) : !compared && x != y) return false;
    if (compared) {
      const int equal = PyObject_RichCompareBool(x, y, Py_EQ);
      if (equal < 0) forgive_exception();  // of what is no bool, such as two tensors
      if (equal != 1) return false;
    }
  }
  return true;
}

struct Tree::Building {
  const std::vector<PyRef>& tensors;
  const std::vector<PyObject*>& known;
  size_t at = 0, next = 0;
  std::vector<PyRef> made = {};  // by each node, where there is an Again
};

PyRef Tree::build(const std::vector<PyRef>& tensors, const std::vector<PyObject*>& known) const {
  Building state{tensors, known};
  if (repeats_) state.made.resize(nodes_.size());
  return build(state);
}

PyRef Tree::build(Building& state) const {
  const size_t at = state.at++;
  PyRef made = build_node(nodes_[at], state);
  if (repeats_) state.made[at] = PyRef::borrow(made.get());
  return made;
}

PyRef Tree::build_node(const Node& node, Building& state) const {
  auto item = [&] { return build(state).release(); };
  switch (node.kind) {
    case Kind::Tensor:
      return PyRef::borrow(state.tensors[state.next++].get());
    case Kind::Read:
      return own(PyObject_CallMethod(state.tensors[state.next++].get(), node.n != 0 ? "tolist" : "item", nullptr));
    case Kind::Known:
      return PyRef::borrow(state.known[node.n]);
    case Kind::Again:
      return PyRef::borrow(state.made[node.n].get());
    case Kind::List:
      return new_list(node.n, [&](size_t) { return item(); });
    case Kind::Tuple:
      return new_tuple(node.n, [&](size_t) { return item(); });
    case Kind::Named: {
      const PyRef items = new_tuple(node.n, [&](size_t) { return item(); });
      PyObject* type = node.object.get();
      return own(has(type, "_make") ? PyObject_CallMethod(type, "_make", "(O)", items.get())
                                    : PyObject_CallFunction(type, "(O)", items.get()));
    }
    case Kind::Dict: {
      PyRef dict = own(PyDict_New());
      for (size_t i = 0; i < node.n; ++i) {
        const PyRef value(item());
        check_status(
            PyDict_SetItem(dict.get(), PyTuple_GET_ITEM(node.object.get(), static_cast<Py_ssize_t>(i)), value.get()));
      }
      return dict;
    }
    case Kind::Registered: {
      const PyRef items = new_list(node.n, [&](size_t) { return item(); });
      PyObject* parts = node.object.get();
      return own(
          PyObject_CallFunctionObjArgs(PyTuple_GET_ITEM(parts, 2), items.get(), PyTuple_GET_ITEM(parts, 1), nullptr));
    }
    case Kind::Object: {
      PyObject *type = PyTuple_GET_ITEM(node.object.get(), 0), *names = PyTuple_GET_ITEM(node.object.get(), 1);
      PyRef made = own(PyObject_CallMethod(as_object(&PyBaseObject_Type), "__new__", "(O)", type));
      const PyRef variables = own(PyObject_GenericGetDict(made.get(), nullptr));
      for (size_t i = 0; i < node.n; ++i)
        check_status(
            PyDict_SetItem(variables.get(), PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)), PyRef(item()).get()));
      return made;
    }
    default:
      return PyRef::borrow(node.object.get());
  }
}

int Tree::traverse(visitproc visit, void* arg) const {
  for (const Node& n : nodes_) Py_VISIT(n.object.get());
  return 0;
}

}  // namespace tapegrad::python
