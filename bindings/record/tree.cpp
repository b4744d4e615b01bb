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

// One of collections.namedtuple, or a structure such as operators return.
bool is_named_tuple(PyObject* o) {
  if (!PyTuple_Check(o) || PyTuple_CheckExact(o)) return false;
  PyObject* type = as_object(Py_TYPE(o));
  return has(type, "_make") || has(type, "n_sequence_fields");
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

Tree Tree::of(PyObject* value, std::vector<PyObject*>& tensors, const std::vector<PyObject*>* known, PyObject* read) {
  Tree tree;
  tree.add(value, tensors, known, read, 0);
  return tree;
}

void Tree::add(PyObject* value, std::vector<PyObject*>& tensors, const std::vector<PyObject*>* known, PyObject* read,
               int depth) {
  for (Py_ssize_t i = 0; read != nullptr && i < PyList_GET_SIZE(read); ++i)
    if (PyObject* pair = PyList_GET_ITEM(read, i); PyTuple_GET_ITEM(pair, 0) == value) {
      nodes_.push_back({Kind::Read, PyList_Check(value) ? size_t{1} : size_t{0}, {}});
      tensors.push_back(PyTuple_GET_ITEM(pair, 1));
      return;
    }
  if (is_tensor(value)) {
    if (known != nullptr)
      if (auto found = std::find(known->begin(), known->end(), value); found != known->end()) {
        nodes_.push_back({Kind::Known, static_cast<size_t>(found - known->begin()), {}});
        return;
      }
    if (known == nullptr && unwrap(value).requires_grad()) {
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
      add(PySequence_Fast_GET_ITEM(value, static_cast<Py_ssize_t>(i)), tensors, known, read, depth + 1);
  } else if (depth < kMaxDepth && PyDict_CheckExact(value)) {
    const auto n = static_cast<size_t>(PyDict_GET_SIZE(value));
    PyRef keys = own(PyList_AsTuple(own(PyDict_Keys(value)).get()));
    PyObject* names = keys.get();
    nodes_.push_back({Kind::Dict, n, std::move(keys)});
    for (size_t i = 0; i < n; ++i)
      add(check(PyDict_GetItemWithError(value, PyTuple_GET_ITEM(names, static_cast<Py_ssize_t>(i)))), tensors, known,
          read, depth + 1);
  } else {
    nodes_.push_back({is_by_value(value) ? Kind::Equal : Kind::Same, 0, PyRef::borrow(value)});
  }
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
    if (a.kind == Kind::Equal ? !same_value(x, y) : a.kind != Kind::Dict && x != y) return false;
    if (a.kind == Kind::Dict) {
      const int equal = PyObject_RichCompareBool(x, y, Py_EQ);
      check_status(equal);
      if (equal == 0) return false;
    }
  }
  return true;
}

PyRef Tree::build(const std::vector<PyRef>& tensors, const std::vector<PyObject*>& known) const {
  size_t at = 0, next = 0;
  return build(at, next, tensors, known);
}

PyRef Tree::build(size_t& at, size_t& next, const std::vector<PyRef>& tensors,
                  const std::vector<PyObject*>& known) const {
  const Node& node = nodes_[at++];
  auto item = [&] { return build(at, next, tensors, known).release(); };
  switch (node.kind) {
    case Kind::Tensor:
      return PyRef::borrow(tensors[next++].get());
    case Kind::Read:
      return own(PyObject_CallMethod(tensors[next++].get(), node.n != 0 ? "tolist" : "item", nullptr));
    case Kind::Known:
      return PyRef::borrow(known[node.n]);
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
    default:
      return PyRef::borrow(node.object.get());
  }
}

int Tree::traverse(visitproc visit, void* arg) const {
  for (const Node& n : nodes_) Py_VISIT(n.object.get());
  return 0;
}

}  // namespace tapegrad::python
