// Integers that a recorded step has computed from sizes, followed from where the program reads them to the functions
// that it gives them to (record::NativeTrace): objects of a type of their own, integers for all else.
#pragma once

#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/bindings/interpreter/object.h"

namespace tapegrad::python {

extern PyTypeObject* followed_type;  // null until the package tapegrad.record is there

// A function is given this object as an integer; or in another way, and then it must be the same for other sizes.
void note_followed(PyObject* o, bool as_integer);

// What the program reads of the sizes of a tensor (record::SizeAsked), where what it does with that is understood: a
// new reference, or null where it is read as anywhere.
PyObject* follow_sizes(const Tensor& t, const char* what, int which);

}  // namespace tapegrad::python
