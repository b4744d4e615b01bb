// What Python values a recorded step has read, and whether they are still the same. Dictionaries are compared by their
// version where CPython has one (up to 3.11), by their entries where it moved; lists and sets by their items; tensors
// by storage and requires_grad; types by their version. A check takes about a nanosecond per object that did not
// change. Needs the GIL.
#pragma once

#include <string>
#include <vector>

#include "tapegrad/bindings/tensor/tensor_object.h"

namespace tapegrad::python {

class Watch {
 public:
  // `dicts`: tuples of a dictionary, a tuple of keys, or None for all, and whether entries may be added; `cells`,
  // `lists`, `tensors`, `types`: objects.
  Watch() = default;  // of nothing
  Watch(PyObject* dicts, PyObject* cells, PyObject* lists, PyObject* tensors, PyObject* types);

  // What has changed, or "".
  std::string changed();
  // Whether one of the tensors lies on this storage.
  bool holds(const StorageImpl* storage) const;
  size_t size() const noexcept {
    return dicts_.size() + cells_.size() + lists_.size() + tensors_.size() + types_.size();
  }
  int traverse(visitproc visit, void* arg) const;

 private:
  struct Entry {
    PyRef key, value;  // no value: absent
  };
  struct DictWatch {
    PyRef dict;
    uint64_t version;
    Py_ssize_t size;  // -1: it may grow
    std::vector<Entry> entries;
  };
  struct CellWatch {
    PyRef cell, value;
  };
  struct ListWatch {
    PyRef list;
    std::vector<PyRef> items;
  };
  struct TensorWatch {
    PyRef object;
    Storage storage;
    bool needs_grad;
  };
  struct TypeWatch {
    PyRef type;
    unsigned int version;
  };
  std::vector<DictWatch> dicts_;
  std::vector<CellWatch> cells_, sets_;  // a set with a copy
  std::vector<ListWatch> lists_;
  std::vector<TensorWatch> tensors_;
  std::vector<TypeWatch> types_;
};

}  // namespace tapegrad::python
