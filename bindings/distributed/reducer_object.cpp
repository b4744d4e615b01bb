// Buckets of gradients as nn/parallel/distributed.py uses them: a thin wrapper of distributed/reducer.h. The callables
// that it gets are owned and must not own the object.
#include "tapegrad/bindings/distributed/reducer_object.h"

#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/interpreter/program_scope.h"
#include "tapegrad/distributed/reducer.h"

namespace tapegrad::python {

namespace {

using distributed::Reducer;

using PyReducer = Boxed<std::shared_ptr<Reducer>>;
PyTypeObject* reducer_type = nullptr;

struct Index {
  size_t value;
  static Index from(PyObject* o, const char*) {
    const size_t i = PyLong_AsSize_t(o);
    if (PyErr_Occurred()) throw_python_error();
    return {i};
  }
};

// _Reducer(parameters, begin, ready, end)
PyObject* reducer_new(PyTypeObject* type, PyObject* args, PyObject* kwargs) {
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
  return box(type, Reducer::make(to_tensors(params, {"_Reducer", "parameters", 1}), std::move(calls)));
}

void reducer_dealloc(PyObject* o) {
  unbox<std::shared_ptr<Reducer>>(o)->remove_hooks();
  dealloc_boxed<std::shared_ptr<Reducer>>(o);
}

// set_buckets([[parameter, ...], ...], [whether sparse, ...])
void set_buckets(PyReducer& r, ListObject buckets, ListObject sparse) {
  TG_CHECK(buckets.size() == sparse.size(), Value, "set_buckets: got {} buckets and {} flags", buckets.size(),
           sparse.size());
  std::vector<Reducer::Plan> plans(static_cast<size_t>(buckets.size()));
  for (size_t b = 0; b < plans.size(); ++b) {
    for (int64_t i :
         to_ints(PyList_GET_ITEM(buckets.object, static_cast<Py_ssize_t>(b)), {"set_buckets", "buckets", 1}))
      plans[b].params.push_back(static_cast<size_t>(i));
    plans[b].sparse = to_bool(PyList_GET_ITEM(sparse.object, static_cast<Py_ssize_t>(b)), {"set_buckets", "sparse", 2});
  }
  r.value->set_buckets(std::move(plans));
}

// clang-format off
PyMethodDef methods[] = {
    method<"set_buckets", set_buckets>(),
    method<"expect", [](PyReducer& r, PyObject* yes) { r.value->expect(yes == Py_True); }>(),
    method<"watch", [](PyReducer& r, PyObject* outputs) {
      return r.value->watch(to_tensors(outputs, {"watch", "outputs", 1}));
    }>(),
    method<"learn", [](PyReducer& r) { r.value->learn(); }>(),
    method<"remove_hooks", [](PyReducer& r) { r.value->remove_hooks(); }>(),
    method<"buffer", [](PyReducer& r, Index bucket, Or<false> with_flags) { return r.value->buffer(bucket.value, with_flags); }>(),
    method<"views", [](PyReducer& r, Index bucket) { return r.value->views(bucket.value); }>(),
    method<"unused", [](PyReducer& r) { return r.value->unused(); }>(),
    method<"adopt", [](PyReducer& r, Index param) { r.value->adopt(param.value); }>(),
    method<"order", [](PyReducer& r) { return r.value->order(); }>(),
    {},
};
// clang-format on

}  // namespace

bool init_reducer(PyObject* module) {
  reducer_type =
      add_type(module, "tapegrad._C._Reducer", sizeof(PyReducer), 0,
               {{Py_tp_new, guarded<reducer_new>}, {Py_tp_dealloc, reducer_dealloc}, {Py_tp_methods, methods}});
  return reducer_type != nullptr;
}

}  // namespace tapegrad::python
