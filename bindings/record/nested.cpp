// tapegrad._C._nested_call and _is_of_step: control flow in recorded steps.
#include "tapegrad/bindings/record/nested.h"

#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/interpreter/program_scope.h"
#include "tapegrad/bindings/tensor/tensor_object.h"

namespace tapegrad::python {

namespace {

// Calls function([input]), which returns a list of tensors, without gradients.
struct PyNested final : record::Nested {
  PyNested(PyObject* f, PyObject* kept) : function(PyRef::borrow(f)), keys(PyRef::borrow(kept)) {}
  ~PyNested() override {
    with_gil_while_it_lasts([this] {
      function = {};
      keys = {};
    });
    (void)function.release();  // where there is no interpreter any more
    (void)keys.release();
  }
  std::vector<Tensor> run(TensorSpan inputs) override {
    const ProgramScope scope;
    const NoGradGuard no_grad;
    const PyRef given = new_list(inputs.size(), [&](size_t i) { return wrap(inputs[i]); });
    const PyRef made = own(PyObject_CallOneArg(function.get(), given.get()));
    return to_tensors(made.get(), {"control flow", "result"});
  }
  PyRef function, keys;
};

// clang-format off
PyMethodDef nested_functions[] = {
    // (name, what tells such calls apart (by identity), [input], function): the results, made by one call of the step.
    method<"_nested_call", [](std::string_view name, TupleObject keys, ListObject inputs, PyObject* function) {
      std::vector<const void*> key;
      for (Py_ssize_t i = 0; i < keys.size(); ++i) key.push_back(PyTuple_GET_ITEM(keys.object, i));
      const std::vector<Tensor> given = to_tensors(inputs.object, {"_nested_call", "inputs"});
      std::vector<Tensor> made = record::nested_call(std::string(name), std::move(key), given,
                                                     std::make_unique<PyNested>(function, keys.object));
      std::vector<PyRef> wrapped;
      for (Tensor& t : made) wrapped.push_back(own(wrap(std::move(t))));
      return wrapped;
    }>(),
    method<"_decide", [](std::string_view what, PyObject* pred) {
      return record::decide(what, to_tensor(pred, {"_decide", "pred"}));
    }>(),
    method<"_is_of_step", [](PyObject* tensor) {
      return record::is_of_step(to_tensor(tensor, {"_is_of_step", "tensor"}));
    }>(),
    {}};
// clang-format on

}  // namespace

int traverse_nested(const record::Recording& recording, visitproc visit, void* arg) {
  for (const record::Call& call : recording.calls)
    if (const auto* nested = dynamic_cast<const PyNested*>(call.nested.get())) {
      Py_VISIT(nested->function.get());
      Py_VISIT(nested->keys.get());
    }
  return 0;
}

bool init_nested(PyObject* module) { return PyModule_AddFunctions(module, nested_functions) == 0; }

}  // namespace tapegrad::python
