// x[...], x[...] = y, len(x).
#include "tapegrad/bindings/args.h"
#include "tapegrad/bindings/tensor_type.h"

namespace tapegrad::python {

namespace {

Py_ssize_t length(PyObject* o) {
  TG_PY_TRY
  TG_CHECK(unwrap(o).ndim() > 0, Type, "len() of a 0-d tensor");
  return unwrap(o).impl()->size(0);
  TG_PY_CATCH_RETURN(-1)
}

}  // namespace

void add_index_slots(std::vector<PyType_Slot>& slots) {
  slots.push_back({Py_mp_length, reinterpret_cast<void*>(length)});
}

}  // namespace tapegrad::python
