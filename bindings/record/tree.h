// The shape of a Python value with tensors in it: of the arguments of a recorded step, and of what it returns.
// Containers are exact tuples, lists and dictionaries, and named tuples; a tensor is told apart by its position alone,
// numbers, texts and the like by value, everything else by identity. Needs the GIL.
#pragma once

#include <vector>

#include "tapegrad/bindings/tensor/tensor_object.h"

namespace tapegrad::python {

class Tree {
 public:
  // Appends the tensors in it (borrowed) to `tensors`. Of arguments (`known` is empty), a tensor that needs a gradient
  // is a value by identity. Of results, a tensor among `known`, the arguments, is given back itself;
  // a number or list among `read`, a list of tuples, the first of which it is, is read anew of the second, a tensor.
  static Tree of(PyObject* value, std::vector<PyObject*>& tensors, const std::vector<PyObject*>* known = nullptr,
                 PyObject* read = nullptr);

  Tree copy() const {
    Tree made;
    for (const Node& n : nodes_) made.nodes_.push_back({n.kind, n.n, PyRef::borrow(n.object.get())});
    return made;
  }
  // Whether another value has this shape; appends its tensors.
  bool matches(PyObject* value, std::vector<PyObject*>& tensors) const;
  bool operator==(const Tree& other) const;
  // A new value of this shape with these tensors; `known` are the arguments.
  PyRef build(const std::vector<PyRef>& tensors, const std::vector<PyObject*>& known) const;
  // What is told apart by identity: the state of these objects may matter.
  template <class F>
  void for_objects(F&& f) const {
    for (const Node& n : nodes_)
      if (n.kind == Kind::Same) f(n.object.get());
  }
  int traverse(visitproc visit, void* arg) const;

 private:
  enum class Kind : uint8_t { Tensor, Read, Known, Equal, Same, Tuple, List, Dict, Named };
  struct Node {
    Kind kind;
    size_t n;      // items; or which of the known tensors; of a Read whether it is a list
    PyRef object;  // the value; of a Dict a tuple of its keys, of a Named its type
  };
  void add(PyObject* value, std::vector<PyObject*>& tensors, const std::vector<PyObject*>* known, PyObject* read,
           int depth);
  bool match(size_t& at, PyObject* value, std::vector<PyObject*>& tensors) const;
  PyRef build(size_t& at, size_t& next, const std::vector<PyRef>& tensors, const std::vector<PyObject*>& known) const;
  std::vector<Node> nodes_;
};

// Whether two values by value are the same: of one type, and equal; floats by bits.
bool same_value(PyObject* a, PyObject* b);
bool is_by_value(PyObject* o);

}  // namespace tapegrad::python
