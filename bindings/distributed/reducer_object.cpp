// Buckets of gradients as nn/parallel/distributed.py uses them: a thin wrapper of distributed/reducer.h. The callables
// that it gets are owned and must not own the object.
#include "tapegrad/bindings/distributed/reducer_object.h"

#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/interpreter/program_scope.h"
#include "tapegrad/distributed/reducer.h"

namespace tapegrad::python {

namespace {

using distributed::Reducer;

struct PyReducer {
  PyObject_HEAD std::shared_ptr<Reducer> reducer;
};
PyTypeObject* reducer_type = nullptr;

Reducer& reducer_of(PyObject* o) { return *reinterpret_cast<PyReducer*>(o)->reducer; }

PyObject* list_of(const std::vector<size_t>& numbers) {
  PyRef list = own(PyList_New(static_cast<Py_ssize_t>(numbers.size())));
  for (size_t i = 0; i < numbers.size(); ++i)
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(i), check(PyLong_FromSize_t(numbers[i])));
  return list.release();
}

size_t to_index(PyObject* o) {
  const size_t i = PyLong_AsSize_t(o);
  if (PyErr_Occurred()) throw_python_error();
  return i;
}

// _Reducer(parameters, begin, ready, end)
PyObject* reducer_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
  TG_PY_TRY
  PyObject *params, *begin, *ready, *end;
  static const char* names[] = {"parameters", "begin", "ready", "end", nullptr};
  if (!PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO:_Reducer", const_cast<char**>(names), &params, &begin, &ready,
                                   &end))
    return nullptr;
  auto without_arguments = [](PyObject* f) {
    return [shared = share(f)] {
      const ProgramScope scope;
      own(PyObject_CallNoArgs(shared->get()));
    };
  };
  Reducer::Calls calls;
  calls.begin = without_arguments(begin);
  calls.end = without_arguments(end);
  calls.ready = [shared = share(ready)](size_t bucket) {
    const ProgramScope scope;
    PyRef number = own(PyLong_FromSize_t(bucket));
    own(PyObject_CallOneArg(shared->get(), number.get()));
  };
  std::shared_ptr<Reducer> reducer = Reducer::make(to_tensors(params, {"_Reducer", "parameters", 1}), std::move(calls));
  PyObject* o = check(type->tp_alloc(type, 0));
  new (&reinterpret_cast<PyReducer*>(o)->reducer) std::shared_ptr<Reducer>(std::move(reducer));
  return o;
  TG_PY_CATCH
}

void reducer_dealloc(PyObject* o) {
  PyTypeObject* type = Py_TYPE(o);
  auto& reducer = reinterpret_cast<PyReducer*>(o)->reducer;
  reducer->remove_hooks();
  reducer.~shared_ptr();
  type->tp_free(o);
  Py_DECREF(type);
}

// set_buckets([[parameter, ...], ...], [whether sparse, ...])
PyObject* set_buckets(PyObject* o, PyObject* args) {
  TG_PY_TRY
  PyObject *buckets, *sparse;
  if (!PyArg_ParseTuple(args, "O!O!:set_buckets", &PyList_Type, &buckets, &PyList_Type, &sparse)) return nullptr;
  TG_CHECK(PyList_GET_SIZE(buckets) == PyList_GET_SIZE(sparse), Value, "set_buckets: got {} buckets and {} flags",
           PyList_GET_SIZE(buckets), PyList_GET_SIZE(sparse));
  std::vector<Reducer::Plan> plans(static_cast<size_t>(PyList_GET_SIZE(buckets)));
  for (size_t b = 0; b < plans.size(); ++b) {
    for (int64_t i : to_ints(PyList_GET_ITEM(buckets, static_cast<Py_ssize_t>(b)), {"set_buckets", "buckets", 1}))
      plans[b].params.push_back(static_cast<size_t>(i));
    plans[b].sparse = to_bool(PyList_GET_ITEM(sparse, static_cast<Py_ssize_t>(b)), {"set_buckets", "sparse", 2});
  }
  reducer_of(o).set_buckets(std::move(plans));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* expect(PyObject* o, PyObject* yes) {
  TG_PY_TRY
  reducer_of(o).expect(yes == Py_True);
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* watch(PyObject* o, PyObject* outputs) {
  TG_PY_TRY
  return PyBool_FromLong(reducer_of(o).watch(to_tensors(outputs, {"watch", "outputs", 1})));
  TG_PY_CATCH
}

PyObject* learn(PyObject* o, PyObject*) {
  TG_PY_TRY
  reducer_of(o).learn();
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* remove_hooks(PyObject* o, PyObject*) {
  reducer_of(o).remove_hooks();
  Py_RETURN_NONE;
}

// buffer(bucket, with_flags=False)
PyObject* buffer(PyObject* o, PyObject* args) {
  TG_PY_TRY
  Py_ssize_t bucket;
  int with_flags = 0;
  if (!PyArg_ParseTuple(args, "n|p:buffer", &bucket, &with_flags)) return nullptr;
  return wrap(reducer_of(o).buffer(static_cast<size_t>(bucket), with_flags != 0));
  TG_PY_CATCH
}

PyObject* views(PyObject* o, PyObject* bucket) {
  TG_PY_TRY
  return wrap_list(reducer_of(o).views(to_index(bucket)));
  TG_PY_CATCH
}

PyObject* unused(PyObject* o, PyObject*) {
  TG_PY_TRY
  return list_of(reducer_of(o).unused());
  TG_PY_CATCH
}

PyObject* adopt(PyObject* o, PyObject* param) {
  TG_PY_TRY
  reducer_of(o).adopt(to_index(param));
  Py_RETURN_NONE;
  TG_PY_CATCH
}

PyObject* order(PyObject* o, PyObject*) {
  TG_PY_TRY
  return list_of(reducer_of(o).order());
  TG_PY_CATCH
}

PyMethodDef methods[] = {
    {"set_buckets", set_buckets, METH_VARARGS, nullptr},
    {"expect", expect, METH_O, nullptr},
    {"watch", watch, METH_O, nullptr},
    {"learn", learn, METH_NOARGS, nullptr},
    {"remove_hooks", remove_hooks, METH_NOARGS, nullptr},
    {"buffer", buffer, METH_VARARGS, nullptr},
    {"views", views, METH_O, nullptr},
    {"unused", unused, METH_NOARGS, nullptr},
    {"adopt", adopt, METH_O, nullptr},
    {"order", order, METH_NOARGS, nullptr},
    {},
};

}  // namespace

bool init_reducer(PyObject* module) {
  PyType_Slot slots[] = {
      {Py_tp_new, reinterpret_cast<void*>(reducer_new)},
      {Py_tp_dealloc, reinterpret_cast<void*>(reducer_dealloc)},
      {Py_tp_methods, methods},
      {0, nullptr},
  };
  PyType_Spec spec{"tapegrad._C._Reducer", sizeof(PyReducer), 0, Py_TPFLAGS_DEFAULT, slots};
  reducer_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
  return reducer_type && PyModule_AddObjectRef(module, "_Reducer", reinterpret_cast<PyObject*>(reducer_type)) == 0;
}

}  // namespace tapegrad::python
