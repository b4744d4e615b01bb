#include "tapegrad/bindings/tensor/tensor_type.h"
#include "tapegrad/bindings/autograd/autograd_types.h"

#include <structmember.h>

#include <cstring>

#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/override.h"
#include "tapegrad/bindings/registry.h"

namespace tapegrad::python {

namespace {

PyMemberDef members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PyTensor, weakrefs), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(PyTensor, dict), READONLY, nullptr},
    {},
};

Py_hash_t tensor_hash(PyObject* o) { return _Py_HashPointer(o); }

// Hand-written methods first: where the table has a row of the same name, the hand-written one is the public one and
// calls the row.
std::vector<PyMethodDef>& all_methods() {
  static std::vector<PyMethodDef> methods = [] {
    std::vector<PyMethodDef> result;
    auto append = [&](const PyMethodDef* table, bool generated) {
      for (; table->ml_name; ++table) {
        bool known = false;
        for (const PyMethodDef& m : result) known |= std::strcmp(m.ml_name, table->ml_name) == 0;
        if (!known) result.push_back(generated ? *table : overridable_method(*table));
      }
    };
    for (PyMethodDef* table :
         {tensor_basic_methods, tensor_convert_methods, tensor_new_methods, tensor_exchange_methods,
          tensor_tape_methods, tensor_hook_methods, tensor_override_methods})
      append(table, false);
    for (PyMethodDef* table : tensor_methods()) append(table, true);
    result.push_back({});
    return result;
  }();
  return methods;
}

PyObject* mark_of_parameters() {
  static PyObject* const name = PyUnicode_InternFromString("_is_param");
  return name;
}

// A parameter of the subclass that `data` belongs to: what its detach() gives, with the mark by which isinstance knows
// it.
PyRef marked_parameter(PyObject* data, bool requires_grad) {
  PyRef detached = call_method(data, "detach");
  PyRef result = call_method(detached.get(), "requires_grad_", requires_grad ? Py_True : Py_False);
  TG_CHECK(
      Py_TYPE(result.get()) == Py_TYPE(data), Runtime,
      "Creating a Parameter from an instance of type {} requires that detach() returns an instance of the same type, "
      "but return type {} was found instead",
      Py_TYPE(data)->tp_name, Py_TYPE(result.get())->tp_name);
  if (PyObject_SetAttr(result.get(), mark_of_parameters(), Py_True) < 0) throw PythonError();
  return result;
}

// isinstance(object, Parameter), and of its subclasses.
PyObject* is_instance(PyObject* cls, PyObject* object) {
  if (cls == as_object(parameter_type) && is_tensor(object)) {
    if (PyType_IsSubtype(Py_TYPE(object), parameter_type)) Py_RETURN_TRUE;
    PyObject* dict = reinterpret_cast<PyTensor*>(object)->dict;
    PyObject* mark = dict ? PyDict_GetItemWithError(dict, mark_of_parameters()) : nullptr;
    if (!mark && PyErr_Occurred()) return nullptr;
    return PyBool_FromLong(mark == Py_True);
  }
  return call_method(as_object(&PyType_Type), "__instancecheck__", cls, object).release();
}

PyMethodDef parameter_class_methods[] = {{"__instancecheck__", guarded<is_instance>, METH_O, nullptr}, {}};

// Parameter(data=None, requires_grad=True): a tensor over the same memory that requires a gradient.
PyObject* parameter_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  static const char* names[] = {"data", "requires_grad", nullptr};
  PyObject* data = nullptr;
  int requires_grad = 1;
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|Op:Parameter", const_cast<char**>(names), &data, &requires_grad))
    return nullptr;
  if (data && Py_TYPE(data) != tensor_type && Py_TYPE(data) != parameter_type && type == parameter_type &&
      is_tensor(data)) {
    // A subclass whose objects are more than their memory makes its parameters itself (distributed.tensor).
    static PyObject* const own_way = PyUnicode_InternFromString("_as_parameter");
    if (_PyType_Lookup(Py_TYPE(data), own_way))
      return call_method(data, "_as_parameter", requires_grad ? Py_True : Py_False).release();
    // One that answers operators is still asked for what its parameters do.
    static PyObject* const answer = PyUnicode_InternFromString("__torch_function__");
    if (!PyType_IsSubtype(Py_TYPE(data), parameter_type) &&
        _PyType_Lookup(Py_TYPE(data), answer) != _PyType_Lookup(parameter_type, answer))
      return marked_parameter(data, requires_grad != 0).release();
  }
  Tensor tensor;
  if (!data || data == Py_None)
    tensor = empty_tensor(DimVector{0}, default_dtype(), default_device());
  else
    tensor = to_tensor(data, {"Parameter", "data", 1}).detach();
  PyRef result = own(wrap_as(type, tensor));
  if (requires_grad) tensor.set_requires_grad(true);
  return result.release();
}

bool init_parameter(PyObject* module) {
  // clang-format off
  parameter_type = add_type(module, "tapegrad.nn.Parameter", sizeof(PyTensor), Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, {
      {Py_tp_new, guarded<parameter_new>}, {Py_tp_dealloc, tensor_dealloc}, {Py_tp_finalize, tensor_finalize},
      {Py_tp_traverse, tensor_traverse}, {Py_tp_clear, tensor_clear},
      {Py_tp_doc, "Parameter(data=None, requires_grad=True)\n--\n\nA tensor that a module registers as one of its parameters."},
      }, tensor_type);
  // clang-format on
  if (!parameter_type) return false;
  PyType_Slot slots[] = {{Py_tp_methods, parameter_class_methods}, {Py_tp_base, &PyType_Type}, {0, nullptr}};
  PyType_Spec spec = {"tapegrad.nn.parameter._ParameterMeta", 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
  PyObject* kind =
      PyType_FromSpec(&spec);  // the class of the class; PyType_FromMetaclass is there from CPython 3.12 on
  if (!kind) return false;
  Py_SET_TYPE(as_object(parameter_type), reinterpret_cast<PyTypeObject*>(kind));
  return true;
}

}  // namespace

FastCall find_method(const char* name) noexcept {
  for (PyMethodDef* table : tensor_methods())
    for (; table->ml_name; ++table)
      if (std::strcmp(table->ml_name, name) == 0)
        return reinterpret_cast<FastCall>(reinterpret_cast<void (*)()>(table->ml_meth));
  return nullptr;
}

bool init_tensor_type(PyObject* module) {
  install_release_hook();
  // clang-format off
  std::vector<Slot> slots = {
      {Py_tp_new, guarded<tensor_new>}, {Py_tp_dealloc, tensor_dealloc}, {Py_tp_finalize, tensor_finalize},
      {Py_tp_traverse, tensor_traverse}, {Py_tp_clear, tensor_clear}, {Py_tp_hash, tensor_hash}, {Py_tp_members, members},
      {Py_tp_methods, all_methods().data()}, {Py_tp_getset, overridable_properties(tensor_properties)},
      {Py_tp_doc, "Tensor(*data, device=None)\n--\n\nA rectangular array of numbers of one dtype on one device."}};
  // clang-format on
  add_number_slots(slots);
  add_index_slots(slots);
  add_buffer_slots(slots);
  tensor_type =
      add_type(module, "tapegrad.Tensor", sizeof(PyTensor), Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, std::move(slots));
  return tensor_type && init_parameter(module);
}

}  // namespace tapegrad::python
