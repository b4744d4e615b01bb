// Nodes of the tape in Python. Each kind of node has a type of its own, created on demand, so that
// `type(x.grad_fn).__name__` and repr name the operator. A node of a custom Function shows the attributes of its ctx.
#include <Python.h>
#include <structmember.h>

#include <cstring>
#include <unordered_map>

#include "tapegrad/autograd/engine/accumulate.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/interpreter/type_object.h"
#include "tapegrad/bindings/tensor/tensor_type.h"

namespace tapegrad::python {

int node_traverse(PyObject* o, visitproc visit, void* arg);  // autograd_gc.cpp
int node_clear(PyObject* o);

namespace {

PyTypeObject* node_type = nullptr;

autograd::Node& node_of(PyObject* o) { return *reinterpret_cast<PyNode*>(o)->node; }

void node_dealloc(PyObject* o) {
  auto* self = reinterpret_cast<PyNode*>(o);
  PyObject_GC_UnTrack(o);
  if (self->node && self->node->python == o) self->node->python = nullptr;
  self->node.~intrusive_ptr();
  free_object(o);
}

PyObject* node_name(PyObject* o, PyObject*) { return PyUnicode_FromString(node_of(o).name()); }

PyObject* node_repr(PyObject* o) { return PyUnicode_FromFormat("<%s object at %p>", node_of(o).name(), o); }

PyObject* next_functions(PyObject* o, void*) {
  const auto& edges = node_of(o).edges;
  auto edge = [&](size_t i) {
    return Py_BuildValue("(NI)", edges[i].defined() ? wrap_tape_node(edges[i].node) : Py_NewRef(Py_None),
                         edges[i].input);
  };
  return new_tuple(edges.size(), edge).release();
}

PyObject* metadata(PyObject* o, void*) {
  auto& slot = node_of(o).metadata;
  if (!slot) {
    auto fresh = std::make_unique<NodeDictionary>();
    fresh->dict = share(own(PyDict_New()).get());
    slot = std::move(fresh);
  }
  return Py_NewRef(static_cast<NodeDictionary*>(slot.get())->dict->get());
}

PyObject* variable(PyObject* o, void*) {
  autograd::Node& node = node_of(o);
  TG_CHECK(node.is_accumulator, Attribute, "{}: only AccumulateGrad has a variable", node.name());
  return wrap(static_cast<autograd::AccumulateGrad&>(node).variable);
}

PyObject* sequence_number(PyObject* o, PyObject*) { return PyLong_FromUnsignedLongLong(node_of(o).sequence); }

// "train.py:31", where the forward call was; None when unknown.
PyObject* site(PyObject* o, void*) {
  std::string text = autograd::describe_site(node_of(o).site);
  if (text.empty()) Py_RETURN_NONE;
  return PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()));
}

PyObject* register_hook(PyObject& o, PyObject* hook) {
  return wrap_handle(autograd::add_node_hook(node_of(&o), NodePostHook{share(hook)}));
}

PyObject* register_prehook(PyObject& o, PyObject* hook) {
  TG_CHECK(PyCallable_Check(hook), Type, "register_prehook: the hook must be callable: got {}", Py_TYPE(hook)->tp_name);
  return wrap_handle(autograd::add_node_prehook(node_of(&o), NodePreHook{share(hook)}));
}

// node(*grads): runs the gradient formula.
PyObject* node_call(PyObject* o, PyObject* args, PyObject*) {
  autograd::GradList grads;
  for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(args); ++i) {
    PyObject* item = PyTuple_GET_ITEM(args, i);
    grads.push_back(item == Py_None ? Tensor() : to_tensor(item, {"grad_fn", "grad", static_cast<int>(i) + 1}));
  }
  autograd::Node& node = node_of(o);
  TG_CHECK(grads.size() == node.outputs.size(), Type, "{}: expected {} arguments, got {} instead", node.name(),
           node.outputs.size(), grads.size());
  autograd::GradList result;
  {
    ComputeRelease released;
    result = node.apply(std::move(grads));
  }
  std::vector<Tensor> list(result.begin(), result.end());
  if (list.size() == 1) return wrap(list[0]);
  return wrap(std::move(list));
}

// The places of a node where it keeps tensors, in order.
std::vector<std::pair<const char*, const autograd::SavedTensor*>> places_of(const autograd::Node& node) {
  std::vector<std::pair<const char*, const autograd::SavedTensor*>> places;
  node.visit_saved([&](const char* n, const autograd::SavedTensor& s) { places.emplace_back(n, &s); });
  return places;
}

// tapegrad.autograd.graph.SavedTensor of a place.
PyRef saved_object(PyObject* node, size_t place) {
  static PyObject* const make = [] {
    PyRef module = own(PyImport_ImportModule("tapegrad.autograd.graph"));
    return own(PyObject_GetAttrString(module.get(), "_saved_tensor")).release();
  }();
  return own(PyObject_CallFunction(make, "On", node, static_cast<Py_ssize_t>(place)));
}

// What ctx saved; raises what reading it does when it has been freed.
PyObject* raw_saved_tensors(PyObject* o) {
  const autograd::Node& node = node_of(o);
  own(PyObject_GetAttrString(o, "saved_tensors"));
  return new_tuple(places_of(node).size(), [&](size_t i) { return saved_object(o, i).release(); }).release();
}

// _hook_saved(node, place, pack, unpack): the tensor there is packed now, and unpacked when it is read.
void hook_saved(PyObject* o, int place, PyObject* pack, PyObject* unpack) {
  TG_CHECK(is_node(o), Type, "register_hooks: expected a node of the tape");
  autograd::Node& node = node_of(o);
  const auto places = places_of(node);
  TG_CHECK(place >= 0 && static_cast<size_t>(place) < places.size(), Index, "register_hooks: no saved tensor {}",
           place);
  // visit_saved shows what is the node's own, which no other code reads before this returns.
  auto& saved = const_cast<autograd::SavedTensor&>(*places[static_cast<size_t>(place)].second);
  const Tensor t = saved.unpack(node, true);
  TG_CHECK(t.defined(), Runtime,
           "register_hooks: Calling register_hooks on a saved tensor with value None is forbidden");
  TG_CHECK(!saved.packed(), Runtime, "register_hooks: the hooks of this saved tensor have already been set");
  autograd::push_saved_tensor_hooks(make_saved_tensor_hooks(pack, unpack));
  struct Pop {
    ~Pop() { autograd::pop_saved_tensor_hooks(); }
  } pop;
  saved = autograd::SavedTensor(t, saved.is_output());
}

// `_saved_NAME` of operators' nodes; everything that ctx has of custom Functions'.
// Their `__class__` is that of ctx, the Function's `_backward_cls`.
PyObject* node_getattr(PyObject* o, PyObject* name) {
  if (PyUnicode_CompareWithASCIIString(name, "__class__") == 0)
    if (auto* function = dynamic_cast<PyFunctionNode*>(&node_of(o)); function && function->ctx)
      return Py_NewRef(reinterpret_cast<PyObject*>(Py_TYPE(function->ctx)));
  PyObject* found = PyObject_GenericGetAttr(o, name);
  if (found || !PyErr_ExceptionMatches(PyExc_AttributeError)) return found;
  TG_PY_TRY
  autograd::Node& node = node_of(o);
  if (auto* function = dynamic_cast<PyFunctionNode*>(&node)) {
    PyErr_Clear();
    if (PyUnicode_CompareWithASCIIString(name, "_raw_saved_tensors") == 0) return raw_saved_tensors(o);
    return PyObject_GetAttr(function->ctx, name);
  }
  const char* text = PyUnicode_AsUTF8(name);
  const bool raw = text && std::strncmp(text, "_raw", 4) == 0;
  if (raw) text += 4;
  if (!text || std::strncmp(text, "_saved_", 7) != 0) return nullptr;
  const std::string_view wanted = std::strcmp(text + 7, "self") == 0 ? "input" : text + 7;  // rows call it input
  const auto places = places_of(node);
  for (size_t i = 0; i < places.size(); ++i) {
    if (places[i].first != wanted) continue;
    PyErr_Clear();
    return raw ? saved_object(o, i).release() : wrap(places[i].second->unpack(node, true));
  }
  return nullptr;
  TG_PY_CATCH
}

int node_setattr(PyObject* o, PyObject* name, PyObject* value) {
  if (auto* function = dynamic_cast<PyFunctionNode*>(&node_of(o)))
    if (!PyObject_HasAttr(reinterpret_cast<PyObject*>(Py_TYPE(o)), name))
      return PyObject_SetAttr(function->ctx, name, value);
  return PyObject_GenericSetAttr(o, name, value);
}

PyMethodDef node_methods[] = {
    {"name", node_name, METH_NOARGS, "The name of the operator's gradient."},
    method<"register_hook", register_hook>("register_hook(fn)\n\nCalls fn(grad_inputs, grad_outputs) after the node "
                                           "has run; may return other grad_inputs."),
    method<"register_prehook", register_prehook>(
        "register_prehook(fn)\n\nCalls fn(grad_outputs) before the node runs; may return other grad_outputs."),
    {"_sequence_nr", sequence_number, METH_NOARGS, nullptr},
    {},
};
PyGetSetDef node_properties[] = {
    {"next_functions", guarded<next_functions>, nullptr, "The nodes of the inputs, each with an output number.",
     nullptr},
    {"metadata", guarded<metadata>, nullptr, "A dictionary for whatever belongs to this node.", nullptr},
    {"variable", guarded<variable>, nullptr, "Of AccumulateGrad: the leaf.", nullptr},
    {"_site", guarded<site>, nullptr, "Where the forward call was: file:line.", nullptr},
    {},
};

// Types by node name. Never freed: there are as many as kinds of nodes, and user classes of the same name share one.
PyTypeObject* type_for(const char* name) {
  static std::unordered_map<std::string, PyTypeObject*> types;
  auto& type = types[name];
  if (type) return type;
  auto* full_name = new std::string(std::string("tapegrad.autograd.") + name);
  type =
      add_type(nullptr, full_name->c_str(), sizeof(PyNode), Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
               {{Py_tp_dealloc, node_dealloc}, {Py_tp_traverse, node_traverse}, {Py_tp_clear, node_clear}}, node_type);
  if (!type) throw_python_error();
  return type;
}

}  // namespace

bool is_node(PyObject* o) noexcept { return PyObject_TypeCheck(o, node_type); }

PyObject* wrap_tape_node(intrusive_ptr<autograd::Node> node) {
  TG_PY_TRY
  if (node->python) return Py_NewRef(static_cast<PyObject*>(node->python));
  PyTypeObject* type = type_for(node->name());
  auto* self = reinterpret_cast<PyNode*>(check(type->tp_alloc(type, 0)));
  node->python = self;
  new (&self->node) intrusive_ptr<autograd::Node>(std::move(node));
  return reinterpret_cast<PyObject*>(self);
  TG_PY_CATCH
}

bool init_nodes(PyObject* module) {
  // clang-format off
  node_type = add_type(module, "tapegrad.autograd.graph.Node", sizeof(PyNode),
                       Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, {
      {Py_tp_dealloc, node_dealloc}, {Py_tp_traverse, node_traverse}, {Py_tp_clear, node_clear},
      {Py_tp_repr, node_repr}, {Py_tp_call, guarded<node_call>}, {Py_tp_getattro, node_getattr}, {Py_tp_setattro, node_setattr},
      {Py_tp_methods, node_methods}, {Py_tp_getset, node_properties},
      {Py_tp_doc, "A recorded operator of the tape."}});
  // clang-format on
  static PyMethodDef functions[] = {method<"_hook_saved", hook_saved>(), {}};
  if (!node_type || PyModule_AddFunctions(module, functions) < 0) return false;
  wrap_node = wrap_tape_node;
  return true;
}

}  // namespace tapegrad::python
