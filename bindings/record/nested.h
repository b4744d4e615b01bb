// Code of the program as one call of a recorded step.
#pragma once

#include "tapegrad/aten/record/recording.h"
#include "tapegrad/bindings/interpreter/object.h"

namespace tapegrad::python {

// For Python's collector: what the calls of a recording hold.
int traverse_nested(const record::Recording& recording, visitproc visit, void* arg);

}  // namespace tapegrad::python
