// tapegrad._C._ModuleBase: the native base of nn.Module. It gives attribute look-up among parameters, buffers and child
// modules, registration on assignment, and calls that go straight to `forward` while no hook is in place. The state
// itself lives in the instance's dictionary (`_parameters`, `_modules`, ...), filled by nn.Module in Python.
#pragma once

#include "tapegrad/bindings/interpreter/object.h"

namespace tapegrad::python {

bool init_module_type(PyObject* module);

}  // namespace tapegrad::python
