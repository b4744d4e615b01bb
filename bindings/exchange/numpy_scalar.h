// NumPy's scalars as numbers. Kept apart from the rest because NumPy's C API is bound to one translation unit.
#pragma once

#include <optional>

#include "tapegrad/bindings/interpreter/object.h"
#include "tapegrad/c10/tensor/scalar.h"

namespace tapegrad::python {

// The value of a NumPy scalar (np.float32(2), np.int64(3), np.bool_(True)); nothing for any other object.
std::optional<Scalar> numpy_scalar(PyObject* o) noexcept;
bool is_numpy_scalar(PyObject* o) noexcept;
bool is_numpy_array(PyObject* o) noexcept;
bool init_numpy() noexcept;  // false with an exception set

}  // namespace tapegrad::python
