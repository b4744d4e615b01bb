// The shape of a Python value with tensors in it: of the arguments of a recorded step, and of what it returns.
// Containers are exact tuples, lists and dictionaries, and named tuples; of results also what utils._pytree knows,
// which libraries register their classes with, and objects of the program with tensors in their attributes, made anew
// with the same ones. A tensor is told apart by its position alone, numbers, texts and the like by value, everything
// else by identity. Needs the GIL.
#pragma once

#include <unordered_map>
#include <vector>

#include "tapegrad/aten/record/recording.h"
#include "tapegrad/bindings/tensor/tensor_object.h"

namespace tapegrad::python {

class Tree {
 public:
  // What it is of: arguments, of which a tensor that needs a gradient is a value by identity; or results of a
  // recording. Of these, a tensor among `known`, the arguments, is given back itself; a number or list among `read`, a
  // list of tuples, the first of which it is, is read anew of the second, a tensor; what is there twice is one object
  // again.
  struct Results {
    const std::vector<PyObject*>& known;
    const record::Recorder& recorder;
    PyObject* read = nullptr;
    struct Place {
      size_t node;
      bool whole = false;  // else what is in it is being added
    };
    std::unordered_map<PyObject*, Place> seen = {};
    std::vector<PyRef> kept = {};  // what flattening has made: `seen` and the tensors are borrowed
  };
  // Appends the tensors in it (borrowed) to `tensors`.
  static Tree of(PyObject* value, std::vector<PyObject*>& tensors, Results* results = nullptr) {
    Tree tree;
    tree.add(value, tensors, results, 0);
    return tree;
  }

  Tree copy() const {
    Tree made;
    made.repeats_ = repeats_;
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
  enum class Kind : uint8_t { Tensor, Read, Known, Equal, Same, Tuple, List, Dict, Named, Registered, Object, Again };
  struct Node {
    Kind kind;
    size_t n;  // items; or which of the known tensors; of a Read whether it is a list
    // The value; of a Dict a tuple of its keys, of a Named its type, of a Registered a tuple of its type, what its
    // flattening said of it and the function that makes it, of an Object one of its type and the attributes' names.
    PyRef object;
  };
  void add(PyObject* value, std::vector<PyObject*>& tensors, Results* results, int depth);
  void add_new(PyObject* value, std::vector<PyObject*>& tensors, Results* results, int depth);
  bool add_object(PyObject* value, std::vector<PyObject*>& tensors, Results& results, int depth);
  bool match(size_t& at, PyObject* value, std::vector<PyObject*>& tensors) const;
  struct Building;
  PyRef build(Building& state) const;
  PyRef build_node(const Node& node, Building& state) const;
  std::vector<Node> nodes_;
  bool repeats_ = false;  // there is an Again
};

// Whether two values by value are the same: of one type, and equal; floats by bits.
bool same_value(PyObject* a, PyObject* b);
bool is_by_value(PyObject* o);
// Whether a module's name is one of the package's.
bool is_of_package(PyObject* module);

}  // namespace tapegrad::python
