#include "tapegrad/bindings/interpreter/type_object.h"

#include <cstring>

namespace tapegrad::python {

PyTypeObject* add_type(PyObject* module, const char* name, size_t size, unsigned long flags, std::vector<Slot> slots,
                       PyTypeObject* base) {
  slots.emplace_back(0, static_cast<void*>(nullptr));
  PyType_Spec spec{name, static_cast<int>(size), 0, static_cast<unsigned>(Py_TPFLAGS_DEFAULT | flags), slots.data()};
  PyRef bases(base ? PyTuple_Pack(1, base) : nullptr);
  if (base && !bases) return nullptr;
  PyRef type(PyType_FromSpecWithBases(&spec, bases.get()));
  if (!type || (module && PyModule_AddObjectRef(module, std::strrchr(name, '.') + 1, type.get()) < 0)) return nullptr;
  return reinterpret_cast<PyTypeObject*>(type.release());
}

}  // namespace tapegrad::python
