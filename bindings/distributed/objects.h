// The Python types of process groups: stores (store_object.cpp), groups and works (group_object.cpp). Each owns its C++
// object; everything here needs the GIL.
#pragma once

#include <memory>

#include "tapegrad/bindings/interpreter/errors.h"
#include "tapegrad/distributed/group/group.h"

namespace tapegrad::python {

bool init_stores(PyObject* module);  // _C._Store and the functions that make stores
bool init_groups(PyObject* module);  // _C._Group, _C._Work

// The store of a _C._Store; Error(Type) for anything else.
const std::shared_ptr<distributed::Store>& store_of(PyObject* o);

}  // namespace tapegrad::python
