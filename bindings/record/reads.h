// Numbers that a recorded step reads of tensors: what the program does with them decides whether a replay reads them
// anew, compares them, or they are no more than the values that were recorded.
#pragma once

#include "tapegrad/aten/record/recording.h"
#include "tapegrad/bindings/interpreter/object.h"

namespace tapegrad::python {

// Makes an object the reader of this thread, or none; returns the former one, or null.
PyRef exchange_reader(PyRef next) noexcept;

// What a reader (tapegrad.record._reads) gives for what the program calls as `what` now: a new reference, or null where
// it is read as anywhere. Raises what the reader raises.
PyObject* read_by_reader(PyObject* tensor, const char* what);
inline PyObject* read_by_program(PyObject* tensor, const char* what) {
  return TG_UNLIKELY(record::active()) ? read_by_reader(tensor, what) : nullptr;
}

}  // namespace tapegrad::python
