// Python callables as hooks of the tape, and the handles that remove them.
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/interpreter/program_scope.h"
#include "tapegrad/bindings/tensor/tensor_type.h"

namespace tapegrad::python {

SharedObject::~SharedObject() {
  with_gil_while_it_lasts([this] { Py_DECREF(object_); });
}

namespace {

// A tuple of gradients; absent ones are None.
PyRef tuple_of(const autograd::GradList& grads) {
  return new_tuple(grads.size(), [&](size_t i) { return wrap(grads[i]); });
}

Tensor replacement(PyObject* o, const char* what) {
  if (o == Py_None) return {};
  if (!is_tensor(o)) TG_THROW(Type, "{}: a hook must return None or a Tensor: got {}", what, Py_TYPE(o)->tp_name);
  return unwrap(o);
}

// Takes over what a hook on a list of gradients returned.
void replace(autograd::GradList& grads, PyObject* result, const char* what) {
  if (result == Py_None) return;
  if (is_tensor(result) && grads.size() == 1) {
    grads[0] = unwrap(result);
    return;
  }
  TG_CHECK(PyTuple_Check(result) || PyList_Check(result), Type, "{}: a hook must return None or a tuple: got {}", what,
           Py_TYPE(result)->tp_name);
  PyRef items = own(PySequence_Tuple(result));
  const auto n = static_cast<size_t>(PyTuple_GET_SIZE(items.get()));
  TG_CHECK(n == grads.size(), Runtime, "{}: a hook has returned an incorrect number of values: got {}, but expected {}",
           what, n, grads.size());
  for (size_t i = 0; i < n; ++i)
    grads[i] = replacement(PyTuple_GET_ITEM(items.get(), static_cast<Py_ssize_t>(i)), what);
}

}  // namespace

Tensor TensorHook::operator()(const Tensor& grad) const {
  const ProgramScope scope;
  PyRef argument = own(wrap(grad));
  PyRef result = own(PyObject_CallOneArg(callable->get(), argument.get()));
  Tensor replaced = replacement(result.get(), "register_hook");
  TG_CHECK(!replaced.defined() || grad.defined(), Runtime,
           "register_hook: can't replace a None gradient with a non-None value");
  TG_CHECK(!replaced.defined() || replaced.sizes() == grad.sizes(), Runtime,
           "register_hook: the hook has changed the size of the gradient from {} to {}", format_ints(grad.sizes()),
           format_ints(replaced.sizes()));
  return replaced;
}

void LeafHook::operator()(const Tensor& leaf) const {
  const ProgramScope scope;
  PyRef argument = own(wrap(leaf));
  PyRef result = own(PyObject_CallOneArg(callable->get(), argument.get()));
  TG_CHECK(result.get() == Py_None, Runtime, "register_post_accumulate_grad_hook: hooks should return None: got {}",
           Py_TYPE(result.get())->tp_name);
}

void NodePreHook::operator()(autograd::GradList& grads) const {
  const ProgramScope scope;
  PyRef argument = tuple_of(grads);
  PyRef result = own(PyObject_CallOneArg(callable->get(), argument.get()));
  replace(grads, result.get(), "register_prehook");
}

void NodePostHook::operator()(autograd::GradList& inputs, const autograd::GradList& outputs) const {
  const ProgramScope scope;
  PyRef a = tuple_of(inputs);
  PyRef b = tuple_of(outputs);
  PyObject* args[] = {a.get(), b.get()};
  PyRef result = own(PyObject_Vectorcall(callable->get(), args, 2, nullptr));
  replace(inputs, result.get(), "register_hook");
}

namespace {

// --- handles ---

using PyHandle = Boxed<autograd::HookHandle>;
PyTypeObject* handle_type = nullptr;

void handle_remove(PyHandle& handle) { handle.value.remove(); }
PyObject* handle_enter(PyHandle& handle) { return Py_NewRef(reinterpret_cast<PyObject*>(&handle)); }
void handle_exit(PyHandle& handle, OrNull, OrNull, OrNull) { handle.value.remove(); }
PyObject* handle_id(PyObject* o, void*) { return PyLong_FromUnsignedLongLong(unbox<autograd::HookHandle>(o).id()); }

PyMethodDef handle_methods[] = {
    method<"remove", handle_remove>("Takes the hook off."),
    method<"__enter__", handle_enter>(),
    method<"__exit__", handle_exit>(),
    {},
};
PyGetSetDef handle_properties[] = {{"id", handle_id, nullptr, nullptr, nullptr}, {}};

void check_callable(PyObject* o, const char* what) {
  TG_CHECK(PyCallable_Check(o), Type, "{}: the hook must be callable: got {}", what, Py_TYPE(o)->tp_name);
}

PyObject* register_hook(PyTensor& self, PyObject* hook) {
  check_callable(hook, "register_hook");
  return wrap_handle(autograd::add_tensor_hook(self.tensor, TensorHook{share(hook)}));
}

// (id, callable) of each hook on the gradient that is there.
PyRef hooks_of(PyTensor& self) {
  PyRef found = own(PyList_New(0));
  const auto add = [&](uint64_t id, const autograd::NodeHooks::Hook& hook) {
    const auto* of = hook.target<TensorHook>();
    if (of == nullptr) return;
    const PyRef pair = own(Py_BuildValue("KO", static_cast<unsigned long long>(id), of->callable->get()));
    check_status(PyList_Append(found.get(), pair.get()));
  };
  const auto* known = autograd::meta(self.tensor);
  if (const auto node = autograd::grad_fn_of(self.tensor)) {
    if (node->hooks)
      for (const auto& h : node->hooks->tensor)
        if (h.output == known->output) add(h.id, h.hook);
  } else if (known && known->hooks) {
    for (const auto& [id, hook] : known->hooks->grad) add(id, hook);
  }
  return found;
}

PyObject* register_post_accumulate(PyTensor& self, PyObject* hook) {
  check_callable(hook, "register_post_accumulate_grad_hook");
  return wrap_handle(autograd::add_post_accumulate_hook(self.tensor, LeafHook{share(hook)}));
}

}  // namespace

PyObject* wrap_handle(autograd::HookHandle handle) { return box(handle_type, std::move(handle)); }

PyMethodDef tensor_hook_methods[] = {
    method<"register_hook", register_hook>(
        "register_hook($self, hook)\n--\n\nCalls hook(grad) when the gradient of this tensor is complete; what it "
        "returns, if not None, takes the gradient's place. Returns a handle whose remove() takes the hook off."),
    method<"_hooks", hooks_of>("_hooks($self)\n--\n\n(id, hook) of those that register_hook has put on."),
    method<"register_post_accumulate_grad_hook", register_post_accumulate>(
        "register_post_accumulate_grad_hook($self, hook)\n--\n\nCalls hook(tensor) after the gradient has been "
        "added to .grad."),
    {},
};

bool init_handles(PyObject* module) {
  handle_type =
      add_type(module, "tapegrad.utils.hooks.RemovableHandle", sizeof(PyHandle), Py_TPFLAGS_DISALLOW_INSTANTIATION,
               {{Py_tp_dealloc, dealloc_boxed<autograd::HookHandle>},
                {Py_tp_methods, handle_methods},
                {Py_tp_getset, handle_properties},
                {Py_tp_doc, "A registered hook; remove() takes it off."}});
  return handle_type != nullptr;
}

}  // namespace tapegrad::python
