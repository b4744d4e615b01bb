// What Python values a recorded step has read, and whether they are still the same. Dictionaries are compared by their
// version where CPython has one (up to 3.11), by their entries where it moved; lists and sets by their items; tensors
// by storage and requires_grad; types by their version; objects by
// their class, functions by code and defaults, context variables by their values. A check takes about a nanosecond per
// object that did not change. Needs the GIL.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tapegrad/bindings/tensor/tensor_object.h"

namespace tapegrad::python {

class Watch {
 public:
  struct Entry {
    PyRef key, value;  // no value: absent
  };
  struct TensorWatch {
    PyRef object;
    Storage storage;
    bool needs_grad;
  };

  // Watches a dictionary: all of its entries and their order, or those whose names are in the set `names`, and where it
  // may not grow how many there are, else that none hides a builtin. Gives what it has found.
  const std::vector<Entry>& add_dict(PyObject* dict, PyObject* names, bool may_grow);
  void add_cell(PyObject* cell) { cells_.push_back({PyRef::borrow(cell), PyRef::borrow(PyCell_GET(cell))}); }
  void add_list(PyObject* list_or_set);
  void add_tensor(PyObject* tensor);
  void add_type(PyObject* type);
  void add_object(PyObject* object) { objects_.push_back({PyRef::borrow(object), PyRef::borrow(class_of(object))}); }
  void add_function(PyObject* function);
  void add_context(PyObject* variable);  // of contextvars
  const std::vector<TensorWatch>& tensors() const noexcept { return tensors_; }

  // What has changed, or "".
  std::string changed() { return find_change(false); }
  // Whether nothing has changed but plain values (bools, numbers, texts, None), which may be as before another time.
  bool only_values_changed() { return find_change(true).empty(); }
  // Whether one of the tensors lies on this storage.
  bool holds(const StorageImpl* storage) const;
  int traverse(visitproc visit, void* arg) const;

 private:
  struct DictWatch {
    PyRef dict;
    uint64_t version;
    Py_ssize_t size;  // -1: it may grow
    bool whole;
    std::vector<Entry> entries;
  };
  struct CellWatch {
    PyRef cell, value;
  };
  struct ListWatch {
    PyRef list;
    std::vector<PyRef> items;
  };
  struct TypeWatch {
    PyRef type;
    unsigned int version;
  };
  struct FunctionWatch {
    PyRef function, code, defaults, by_name;
    bool same() const {
      PyObject* f = function.get();
      return PyFunction_GetCode(f) == code.get() && PyFunction_GetDefaults(f) == defaults.get() &&
             PyFunction_GetKwDefaults(f) == by_name.get();
    }
  };
  static PyObject* class_of(PyObject* object) { return reinterpret_cast<PyObject*>(Py_TYPE(object)); }
  std::string find_change(bool but_values);
  static bool in_order(const DictWatch& watch, bool but_values);
  std::vector<DictWatch> dicts_;
  // A set with a copy, an object with its class, a context variable with its value or none.
  std::vector<CellWatch> cells_, sets_, objects_, contexts_;
  std::vector<ListWatch> lists_;
  std::vector<TensorWatch> tensors_;
  std::vector<TypeWatch> types_;
  std::vector<FunctionWatch> functions_;
};

extern PyTypeObject* watch_type;                    // tapegrad._C._Watch
PyObject* new_watch(std::shared_ptr<Watch> watch);  // one of it
bool init_watch(PyObject* module);

}  // namespace tapegrad::python
