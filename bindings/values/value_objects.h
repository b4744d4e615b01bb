// The small Python types around tensors: dtype, device, layout, memory_format, Size, Generator. Each is a plain
// native type; dtypes, layouts and memory formats are one object per value, so that `is` works.
#pragma once

#include <string>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/bindings/interpreter/errors.h"

namespace tapegrad::python {

struct PyDType {
  PyObject_HEAD DType value;
};
struct PyDevice {
  PyObject_HEAD Device value;
  bool has_index;  // "cuda" and "cuda:0" print differently
};
struct PyEnum {  // layout and memory_format
  PyObject_HEAD int value;
  const char* name;
};
struct PyGenerator {
  PyObject_HEAD GeneratorPtr value;
};

extern PyTypeObject* dtype_type;
extern PyTypeObject* device_type;
extern PyTypeObject* layout_type;
extern PyTypeObject* memory_format_type;
extern PyTypeObject* generator_type;
extern PyTypeObject* size_type;  // a tuple

inline bool is_dtype(PyObject* o) noexcept { return Py_TYPE(o) == dtype_type; }
inline DType unwrap_dtype(PyObject* o) noexcept { return reinterpret_cast<PyDType*>(o)->value; }
PyObject* dtype_object(DType t) noexcept;  // borrowed

enum class Layout : int { Strided, SparseCoo, SparseCsr, SparseCsc, SparseBsr, SparseBsc };
PyObject* layout_object(Layout layout) noexcept;               // borrowed
PyObject* memory_format_object(MemoryFormat format) noexcept;  // borrowed
PyObject* wrap_generator(GeneratorPtr generator) noexcept;

// The prefix of printed names ("tapegrad", or "torch" while tapegrad.compat is installed), and its setter for Python.
const std::string& root_name() noexcept;
PyObject* set_root_name(PyObject*, PyObject* name);

bool init_value_objects(PyObject* module);
bool init_device(PyObject* module);
bool init_size(PyObject* module);
bool init_generator(PyObject* module);

}  // namespace tapegrad::python
