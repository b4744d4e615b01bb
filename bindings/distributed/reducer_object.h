// The Python type of buckets of gradients, tapegrad._C._Reducer. Needs the GIL.
#pragma once

#include "tapegrad/bindings/interpreter/object.h"

namespace tapegrad::python {

bool init_reducer(PyObject* module);

}  // namespace tapegrad::python
