// Custom Functions written in Python: their context, their node, and `Function.apply`.
#include <Python.h>
#include <structmember.h>

#include <algorithm>
#include <array>

#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/interpreter/program_scope.h"
#include "tapegrad/bindings/interpreter/type_object.h"
#include "tapegrad/bindings/tensor/tensor_type.h"
#include "tapegrad/c10/threads/stack.h"

namespace tapegrad::python {

namespace {

PyTypeObject* context_type = nullptr;

struct Names {
  PyObject* backward_cls = PyUnicode_InternFromString("_backward_cls");
  PyObject* forward_cls = PyUnicode_InternFromString("_forward_cls");
  PyObject* sets_context = PyUnicode_InternFromString("_sets_context");
  PyObject* forward = PyUnicode_InternFromString("forward");
  PyObject* backward = PyUnicode_InternFromString("backward");
  PyObject* setup_context = PyUnicode_InternFromString("setup_context");
};
const Names& names() {
  static const Names all;
  return all;
}

PyContext& context(PyObject* o) noexcept { return *reinterpret_cast<PyContext*>(o); }

PyObject* context_new(PyTypeObject* type, PyObject*, PyObject*) {
  PyObject* o = type->tp_alloc(type, 0);
  if (o) context(o).materialize_grads = true;
  return o;
}

std::array<PyObject**, 6> owned_by(PyContext& ctx) noexcept {
  return {&ctx.dict, &ctx.needs_input_grad, &ctx.to_save, &ctx.for_jvp, &ctx.dirty, &ctx.non_differentiable};
}

int context_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  for (PyObject** p : owned_by(context(o))) Py_VISIT(*p);
  return 0;
}

int context_clear(PyObject* o) {
  for (PyObject** p : owned_by(context(o))) Py_CLEAR(*p);
  return 0;
}

void context_dealloc(PyObject* o) {
  PyObject_GC_UnTrack(o);
  if (context(o).weakrefs) PyObject_ClearWeakRefs(o);
  context_clear(o);
  free_object(o);
}

void keep_tuple(PyObject*& slot, PyObject* args) { Py_XSETREF(slot, Py_NewRef(args)); }

PyObject* save_for_backward(PyObject* o, PyObject* args) {
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    PyObject* item = PyTuple_GET_ITEM(args, i);
    if (item != Py_None && !is_tensor(item))
      return PyErr_Format(PyExc_TypeError,
                          "save_for_backward: only tensors and None can be saved: argument %zd is of type %s\n"
                          "keep other values as attributes of ctx",
                          i, Py_TYPE(item)->tp_name);
  }
  keep_tuple(context(o).to_save, args);
  Py_RETURN_NONE;
}
PyObject* mark_dirty(PyObject* o, PyObject* args) {
  keep_tuple(context(o).dirty, args);
  Py_RETURN_NONE;
}
PyObject* mark_non_differentiable(PyObject* o, PyObject* args) {
  keep_tuple(context(o).non_differentiable, args);
  Py_RETURN_NONE;
}
PyObject* save_for_forward(PyObject* o, PyObject* args) {
  keep_tuple(context(o).for_jvp, args);
  Py_RETURN_NONE;
}
PyObject* set_materialize_grads(PyObject* o, PyObject* value) {
  context(o).materialize_grads = to_bool(value, {"set_materialize_grads", "value", 1});
  if (context(o).node) context(o).node->context.set_materialize_grads(context(o).materialize_grads);
  Py_RETURN_NONE;
}

PyObject* saved_tensors(PyObject* o, void*) {
  PyContext& ctx = context(o);
  if (ctx.to_save) return Py_NewRef(ctx.to_save);  // still in forward
  TG_CHECK(ctx.node, Runtime, "ctx.saved_tensors: the node of this context has been freed");
  intrusive_ptr<autograd::Node> alive(ctx.node);
  return wrap(ctx.node->context.saved_tensors());
}

PyObject* saved_variables(PyObject* o, void*) {
  warn_user(PyExc_DeprecationWarning, "'saved_variables' is deprecated; use 'saved_tensors'");
  return saved_tensors(o, nullptr);
}

PyObject* get_needs_input_grad(PyObject* o, void*) {
  PyObject* value = context(o).needs_input_grad;
  return Py_NewRef(value ? value : Py_None);
}
int set_needs_input_grad(PyObject* o, PyObject* value, void*) {
  Py_XSETREF(context(o).needs_input_grad, Py_XNewRef(value));
  return 0;
}

// Whether forward named the tensor in mark_dirty or mark_non_differentiable; until the call is over.
bool names_tensor(PyObject* marked, PyObject* tensor) {
  if (!marked || !is_tensor(tensor)) return false;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(marked); ++i) {
    PyObject* item = PyTuple_GET_ITEM(marked, i);
    if (is_tensor(item) && unwrap(item).is_same(unwrap(tensor))) return true;
  }
  return false;
}
PyObject* is_dirty(PyObject* o, PyObject* t) { return PyBool_FromLong(names_tensor(context(o).dirty, t)); }
PyObject* is_non_differentiable(PyObject* o, PyObject* t) {
  return PyBool_FromLong(names_tensor(context(o).non_differentiable, t));
}
PyObject* materializes(PyObject* o, void*) { return PyBool_FromLong(context(o).materialize_grads); }

PyMethodDef context_methods[] = {
    {"_is_dirty", is_dirty, METH_O, nullptr},
    {"_is_non_differentiable", is_non_differentiable, METH_O, nullptr},
    {"save_for_backward", save_for_backward, METH_VARARGS,
     "save_for_backward(*tensors)\n\nKeeps tensors for backward, where ctx.saved_tensors has them again. Inputs, "
     "outputs and None."},
    {"save_for_forward", save_for_forward, METH_VARARGS,
     "save_for_forward(*tensors)\n\nKeeps tensors for jvp, where ctx.saved_tensors has them again."},
    {"mark_dirty", mark_dirty, METH_VARARGS, "mark_dirty(*inputs)\n\nSays which inputs forward has written to."},
    {"mark_non_differentiable", mark_non_differentiable, METH_VARARGS,
     "mark_non_differentiable(*outputs)\n\nSays which outputs carry no gradient."},
    {"set_materialize_grads", guarded<set_materialize_grads>, METH_O,
     "set_materialize_grads(value)\n\nWhether absent gradients arrive in backward as zeros (default) or None."},
    {},
};
PyGetSetDef context_properties[] = {
    {"_materializes", materializes, nullptr, nullptr, nullptr},
    {"saved_tensors", guarded<saved_tensors>, nullptr, "What save_for_backward was given.", nullptr},
    {"saved_variables", guarded<saved_variables>, nullptr, "The old name of saved_tensors.", nullptr},
    {"needs_input_grad", get_needs_input_grad, set_needs_input_grad, "For each argument: is its gradient wanted?",
     nullptr},
    {},
};
PyMemberDef context_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(PyContext, weakrefs), READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(PyContext, dict), READONLY, nullptr},
    {},
};

// The tensors of a tuple that the user gave; None is undefined.
std::vector<Tensor> tensors_of(PyObject* tuple, const char* what) {
  std::vector<Tensor> list;
  if (!tuple) return list;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple, i);
    if (item == Py_None)
      list.emplace_back();
    else
      list.push_back(to_tensor(item, {what, "tensors", static_cast<int>(i) + 1}));
  }
  return list;
}

std::vector<Tensor> without_none(std::vector<Tensor> list) {
  std::erase_if(list, [](const Tensor& t) { return !t.defined(); });
  return list;
}

}  // namespace

PyFunctionNode::PyFunctionNode(PyObject* c) : ctx(Py_NewRef(c)) {
  const char* full = Py_TYPE(c)->tp_name;
  const char* dot = std::strrchr(full, '.');
  name_ = dot ? dot + 1 : full;
  python::context(c).node = this;
}

PyFunctionNode::~PyFunctionNode() { drop_contents(); }

void PyFunctionNode::drop_contents() noexcept {
  if (ctx) with_gil_while_it_lasts([this] { leave_saved_to_context(); });
  FunctionNode::drop_contents();
  PyObject* o = std::exchange(ctx, nullptr);
  if (!o) return;
  python::context(o).node = nullptr;
  with_gil_while_it_lasts([o] { Py_DECREF(o); });
}

void PyFunctionNode::leave_saved_to_context() noexcept {
  if (Py_REFCNT(ctx) == 1 || python::context(ctx).to_save) return;
  try {
    std::vector<Tensor> saved;
    bool whole = true;  // an output would lead back to this node, which ends
    visit_saved([&](const char*, const autograd::SavedTensor& s) {
      whole = whole && !s.is_output() && !s.packed();
      if (whole) saved.push_back(s.unpack(*this, true));
    });
    if (whole)
      python::context(ctx).to_save = new_tuple(saved.size(), [&](size_t i) { return wrap(saved[i]); }).release();
  } catch (...) {  // backward released them, or they were written to: ctx.saved_tensors goes on raising
    PyErr_Clear();
  }
}

autograd::GradList PyFunctionNode::apply(autograd::GradList grads) {
  const ProgramScope scope;
  PyRef alive = PyRef::borrow(ctx);
  autograd::TensorList list(grads.begin(), grads.end());
  grads.clear();
  materialize(list);
  PyRef args =
      new_tuple(list.size() + 1, [&](size_t i) { return i == 0 ? Py_NewRef(ctx) : wrap(std::move(list[i - 1])); });
  PyRef cls = own(PyObject_GetAttr(ctx, names().forward_cls));
  PyRef backward = own(PyObject_GetAttr(cls.get(), names().backward));
  PyRef result = own(PyObject_CallObject(backward.get(), args.get()));
  args = PyRef();
  if (!PyTuple_Check(result.get())) result = own(PyTuple_Pack(1, result.get()));

  const auto wanted = static_cast<Py_ssize_t>(is_tensor.size());
  Py_ssize_t got = PyTuple_GET_SIZE(result.get());
  while (got > wanted && PyTuple_GET_ITEM(result.get(), got - 1) == Py_None) --got;
  TG_CHECK(got == wanted, Runtime, "{}: function {} returned an incorrect number of gradients (expected {}, got {})",
           name_, name_, wanted, got);
  autograd::GradList input_grads;
  for (Py_ssize_t i = 0; i < wanted; ++i) {
    PyObject* item = PyTuple_GET_ITEM(result.get(), i);
    TG_CHECK(item == Py_None || python::is_tensor(item), Type,
             "{}: backward must return tensors or None: gradient {} is of type {}", name_, i, Py_TYPE(item)->tp_name);
    if (is_tensor[static_cast<size_t>(i)]) {
      input_grads.push_back(item == Py_None ? Tensor() : unwrap(item));
    } else {
      TG_CHECK(item == Py_None, Runtime,
               "{}: function {} returned a gradient different from None at position {}, but the corresponding forward "
               "input was not a tensor",
               name_, name_, i + 1);
    }
  }
  return input_grads;
}

namespace {

// forward's results and what of them are tensors.
struct Results {
  PyRef objects;  // a tuple
  bool single;
  std::vector<Tensor> tensors;  // undefined where the object is none
};

Results call_forward(PyObject* cls, PyObject* ctx, PyObject* const* args, Py_ssize_t nargs) {
  const ProgramScope scope;
  const NoGradGuard no_grad;
  PyRef forward = own(PyObject_GetAttr(cls, names().forward));
  PyRef sets_context = own(PyObject_GetAttr(cls, names().sets_context));
  PyRef result;
  if (sets_context.get() == Py_True) {
    result = own(PyObject_Vectorcall(forward.get(), args, static_cast<size_t>(nargs), nullptr));
    PyRef setup = own(PyObject_GetAttr(cls, names().setup_context));
    PyRef inputs = new_tuple(static_cast<size_t>(nargs), [&](size_t i) { return Py_NewRef(args[i]); });
    PyObject* setup_args[] = {ctx, inputs.get(), result.get()};
    own(PyObject_Vectorcall(setup.get(), setup_args, 3, nullptr));
  } else {
    std::vector<PyObject*> with_ctx{ctx};
    with_ctx.insert(with_ctx.end(), args, args + nargs);
    result = own(PyObject_Vectorcall(forward.get(), with_ctx.data(), with_ctx.size(), nullptr));
  }
  Results results;
  results.single = !PyTuple_Check(result.get());
  results.objects = results.single ? own(PyTuple_Pack(1, result.get())) : std::move(result);
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(results.objects.get()); ++i) {
    PyObject* item = PyTuple_GET_ITEM(results.objects.get(), i);
    results.tensors.push_back(is_tensor(item) ? unwrap(item) : Tensor());
  }
  return results;
}

// `then`, if given, is called with the context and the tuple of results, and gives the tuple that is returned.
PyRef apply_function_of(PyObject* cls, PyObject* const* args, Py_ssize_t nargs, PyObject* then) {
  check_stack("apply");
  TG_CHECK(PyType_Check(cls), Type, "apply: must be called on a class derived from Function");
  PyRef context_class = own(PyObject_GetAttr(cls, names().backward_cls));
  PyRef ctx = own(context_new(reinterpret_cast<PyTypeObject*>(context_class.get()), nullptr, nullptr));
  auto node = make_intrusive<PyFunctionNode>(ctx.get());

  std::vector<Tensor> inputs;
  PyRef needs = new_tuple(static_cast<size_t>(nargs), [&](size_t i) {
    const bool tensor = is_tensor(args[i]);
    node->is_tensor.push_back(tensor);
    if (tensor) inputs.push_back(unwrap(args[i]));
    return PyBool_FromLong(tensor && autograd::needs_grad(inputs.back()));
  });
  context(ctx.get()).needs_input_grad = needs.release();
  const bool recording = grad_enabled() && autograd::needs_grad(TensorSpan(inputs));
  if (recording)
    autograd::add_edges(*node, inputs);
  else
    node->edges.resize(inputs.size());

  Results results = call_forward(cls, ctx.get(), args, nargs);
  PyContext& c = context(ctx.get());
  node->context.mark_dirty(without_none(tensors_of(c.dirty, "mark_dirty")));
  node->context.mark_non_differentiable(without_none(tensors_of(c.non_differentiable, "mark_non_differentiable")));
  node->context.save_for_backward(tensors_of(c.to_save, "save_for_backward"));
  node->context.set_materialize_grads(c.materialize_grads);
  if (c.dict) {
    static PyObject* const name = PyUnicode_InternFromString("_materialize_non_diff_grads");
    node->context.set_materialize_non_differentiable(PyDict_GetItem(c.dict, name) != Py_False);
  }
  // An argument of a type of the program's that comes back as it is keeps its type.
  const auto keeps_type = [&](size_t i) {
    PyObject* item = PyTuple_GET_ITEM(results.objects.get(), static_cast<Py_ssize_t>(i));
    return std::find(args, args + nargs, item) != args + nargs && is_tensor(item) && !is_exact_tensor(item) &&
           !autograd::needs_grad(unwrap(item)) && !names_tensor(c.dirty, item);
  };
  node->wrap_outputs(results.tensors, inputs, recording);
  PyRef outputs = new_tuple(results.tensors.size(), [&](size_t i) {
    Tensor& t = results.tensors[i];
    if (t.defined() && keeps_type(i)) {
      PyObject* item = PyTuple_GET_ITEM(results.objects.get(), static_cast<Py_ssize_t>(i));
      return call_method(item, "view_as", item).release();
    }
    if (t.defined()) return wrap(std::move(t));
    return Py_NewRef(PyTuple_GET_ITEM(results.objects.get(), static_cast<Py_ssize_t>(i)));
  });
  if (then) {
    keep_tuple(c.to_save, c.for_jvp ? c.for_jvp : PyRef(PyTuple_New(0)).get());
    outputs = own(PyObject_CallFunctionObjArgs(then, ctx.get(), outputs.get(), nullptr));
  }
  Py_CLEAR(c.dirty);
  Py_CLEAR(c.non_differentiable);
  Py_CLEAR(c.to_save);
  Py_CLEAR(c.for_jvp);
  return results.single ? PyRef::borrow(PyTuple_GET_ITEM(outputs.get(), 0)) : std::move(outputs);
}

// `Function.apply`: bound to the class, which comes as the first argument.
PyObject* function_apply(PyObject*, PyObject* const* all, Py_ssize_t num_all) {
  TG_CHECK(num_all >= 1, Type, "apply: must be called on a class derived from Function");
  return apply_function_of(all[0], all + 1, num_all - 1, nullptr).release();
}

PyObject* function_apply_then(PyObject*, PyObject* const* all, Py_ssize_t num_all) {
  TG_CHECK(num_all >= 2, Type, "_apply_then: expected a function and a class derived from Function");
  return apply_function_of(all[1], all + 2, num_all - 2, all[0]).release();
}

PyMethodDef apply_functions[] = {
    {"apply", as_c_function(guarded<function_apply>), METH_FASTCALL,
     "apply(*args)\n\nRuns forward and records the call; takes what forward takes after ctx."},
    {"_apply_then", as_c_function(guarded<function_apply_then>), METH_FASTCALL,
     "_apply_then(then, cls, *args)\n\napply, where then(ctx, results) gives what is returned."},
    {},
};

}  // namespace

bool init_contexts(PyObject* module) {
  // clang-format off
  context_type = add_type(module, "tapegrad.autograd.function.FunctionCtx", sizeof(PyContext),
                          Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, {
      {Py_tp_new, context_new}, {Py_tp_dealloc, context_dealloc}, {Py_tp_traverse, context_traverse}, {Py_tp_clear, context_clear},
      {Py_tp_methods, context_methods}, {Py_tp_getset, context_properties}, {Py_tp_members, context_members},
      {Py_tp_doc, "The context of a call of a custom Function: `ctx` of forward and backward."}});
  // clang-format on
  if (!context_type) return false;
  return PyModule_AddFunctions(module, apply_functions) == 0;
}

}  // namespace tapegrad::python
