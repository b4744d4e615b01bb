// Methods of tensors that concern the tape.
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/autograd/meta.h"
#include "tapegrad/bindings/arguments/keyword_method.h"
#include "tapegrad/bindings/arguments/nested_data.h"
#include "tapegrad/bindings/autograd/recorded_backward.h"
#include "tapegrad/bindings/tensor/tensor_type.h"

namespace tapegrad::python {

namespace {

// One tensor or a sequence of them, of which some may be None.
std::vector<Tensor> tensors_or_none(PyObject* o, const Ctx& ctx) {
  if (!o || o == Py_None) return {};
  if (is_tensor(o)) return {unwrap(o)};
  PyRef items = items_of(o);
  std::vector<Tensor> result;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(items.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(items.get(), i);
    result.push_back(item == Py_None ? Tensor() : to_tensor(item, ctx));
  }
  return result;
}

PyObject* backward(PyObject*, const ArgumentsBase& a) {
  autograd::BackwardOptions options;
  options.create_graph = a.boolean(3, false);
  options.retain_graph = a.optional_boolean(2).value_or(options.create_graph);
  std::vector<Tensor> inputs = tensors_or_none(a.object(4), {"backward", "inputs"});
  TG_CHECK(!a.has(4) || !inputs.empty(), Runtime, "backward: argument 'inputs' must not be empty");
  const Tensor roots[] = {a.tensor(0)};
  const Tensor grads[] = {a.optional_tensor(1)};
  backward_of_program(roots, grads, inputs, options);
  Py_RETURN_NONE;
}

PyObject* requires_grad_(PyObject* self, const ArgumentsBase& a) {
  a.tensor(0).set_requires_grad(a.boolean(1, true));
  return return_self(self);
}

// Detaches the tensor from the tape; it then requires no gradient.
PyObject* detach_(PyTensor& self) {
  const Tensor& t = self.tensor;
  if (autograd::AutogradMeta* meta = t.impl()->autograd() ? autograd::meta(t) : nullptr) {
    TG_CHECK(!meta->is_view, Runtime, "detach_: a view cannot be detached in place\nuse detach()");
    meta->grad_fn.reset();
    meta->output = 0;
  }
  t.impl()->set_needs_grad(false);
  return return_self(reinterpret_cast<PyObject*>(&self));
}

}  // namespace

// clang-format off
PyMethodDef tensor_tape_methods[] = {
    keyword_method<"backward", "(Tensor? gradient=None, bool? retain_graph=None, bool create_graph=False, inputs=None)", backward>("backward($self, gradient=None, retain_graph=None, create_graph=False, inputs=None)\n--\n\n"
     "Adds the gradient of this tensor to .grad of the leaves that it was computed from."),
    keyword_method<"requires_grad_", "(bool requires_grad=True)", requires_grad_>("requires_grad_($self, requires_grad=True)\n--\n\nAsks for a gradient; returns the tensor."),
    method<"retain_grad", [](PyTensor& self) { self.tensor.retain_grad(); }>("retain_grad($self)\n--\n\nKeeps .grad of a tensor that is not a leaf."),
    method<"detach", [](PyTensor& self) { return wrap(self.tensor.detach()); }>("detach($self)\n--\n\nThe same memory, not on the tape."),
    method<"detach_", detach_>("detach_($self)\n--\n\nTakes this tensor off the tape."),
    {},
};
// clang-format on

}  // namespace tapegrad::python
