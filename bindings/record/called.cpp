// tapegrad._C._RecordedCall: the base of RecordedStep. A call of it is replayed where a plan fits, without any Python
// code, which would take as long as a small replay; else its method `_eager` gets the arguments.
#include <structmember.h>

#include "tapegrad/bindings/record/plans.h"

namespace tapegrad::python {

namespace {

struct PyRecordedCall {
  PyObject_HEAD PyObject* replays;
};

bool replaying = true;  // else all calls run eagerly, by compiler.set_stance

PyObject* called_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyRef self(type->tp_alloc(type, 0));
  if (!self) return nullptr;
  auto& own = *reinterpret_cast<PyRecordedCall*>(self.get());
  own.replays = PyObject_CallNoArgs(as_object(replays_type));
  return own.replays ? self.release() : nullptr;
}

int called_traverse(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(reinterpret_cast<PyRecordedCall*>(self)->replays);
  return 0;
}

void called_dealloc(PyObject* self) {
  PyObject_GC_UnTrack(self);
  Py_CLEAR(reinterpret_cast<PyRecordedCall*>(self)->replays);
  free_object(self);
}

PyObject* called_call(PyObject* self, PyObject* args, PyObject* kwargs) {
  static PyObject* const none = PyDict_New();  // nobody keeps or changes it
  static PyObject* const eager = PyUnicode_InternFromString("_eager");
  if (!none || !eager) return nullptr;
  if (TG_LIKELY(replaying)) {
    const PyRef call(PyTuple_Pack(2, args, kwargs ? kwargs : none));
    if (!call) return nullptr;
    const PyRef replays = PyRef::borrow(reinterpret_cast<PyRecordedCall*>(self)->replays);
    PyObject* result = run_replays(replays.get(), call.get());
    if (result != Py_NotImplemented) return result;
    Py_DECREF(result);
  }
  const PyRef named(kwargs ? Py_NewRef(kwargs) : PyDict_New());
  return named ? PyObject_CallMethodObjArgs(self, eager, args, named.get(), nullptr) : nullptr;
}

PyObject* set_replaying(PyObject*, PyObject* on) {
  replaying = on == Py_True;
  Py_RETURN_NONE;
}

PyMemberDef called_members[] = {
    {"_replays", T_OBJECT_EX, offsetof(PyRecordedCall, replays), READONLY, nullptr},
    {},
};
PyMethodDef called_methods[] = {
    {"_set_replaying", set_replaying, METH_O | METH_STATIC, "Whether calls are replayed."},
    {},
};

}  // namespace

bool init_called(PyObject* module) {
  return add_type(module, "tapegrad._C._RecordedCall", sizeof(PyRecordedCall), Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                  {{Py_tp_new, called_new},
                   {Py_tp_dealloc, called_dealloc},
                   {Py_tp_traverse, called_traverse},
                   {Py_tp_call, called_call},
                   {Py_tp_members, called_members},
                   {Py_tp_methods, called_methods}}) != nullptr;
}

}  // namespace tapegrad::python
