// Functions of `tapegrad._C._autograd`: backward and grad over several roots, saved-tensor hooks, anomaly mode.
// tapegrad/autograd/*.py gives them their public names and defaults.
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/autograd/engine/accumulate.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/autograd/saved_tensor.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/autograd/recorded_backward.h"
#include "tapegrad/bindings/interpreter/program_scope.h"
#include "tapegrad/bindings/tensor/tensor_type.h"

namespace tapegrad::python {

namespace {

// Tensors of a tuple, None as undefined.
std::vector<Tensor> tensors_of(TupleObject tuple, const Ctx& ctx) {
  std::vector<Tensor> list;
  for (Py_ssize_t i = 0; i < tuple.size(); ++i) {
    PyObject* item = PyTuple_GET_ITEM(tuple.object, i);
    list.push_back(item == Py_None ? Tensor() : to_tensor(item, ctx));
  }
  return list;
}

void run_backward(TupleObject tensors, TupleObject grads, TupleObject inputs, bool retain_graph, bool create_graph) {
  const auto roots = tensors_of(tensors, {"backward", "tensors", 1});
  const auto weights = tensors_of(grads, {"backward", "grad_tensors", 2});
  const auto leaves = tensors_of(inputs, {"backward", "inputs", 5});
  autograd::BackwardOptions options;
  options.retain_graph = retain_graph;
  options.create_graph = create_graph;
  backward_of_program(roots, weights, leaves, options);
}

// A tuple, None where unused.
PyRef gradients(TupleObject outputs, TupleObject inputs, TupleObject grads, bool retain_graph, bool create_graph,
                bool allow_unused) {
  const auto roots = tensors_of(outputs, {"grad", "outputs", 1});
  const auto wanted = tensors_of(inputs, {"grad", "inputs", 2});
  const auto weights = tensors_of(grads, {"grad", "grad_outputs", 3});
  std::vector<Tensor> result = grad_of_program(roots, wanted, weights, retain_graph, create_graph, allow_unused);
  return new_tuple(result.size(), [&](size_t i) { return wrap(std::move(result[i])); });
}

// A tensor that stands for an output of a node: it has its sizes and its place on the tape, and no contents.
Tensor tensor_of_edge(PyObject* object, int64_t output) {
  TG_CHECK(is_node(object), Type, "GradientEdge: expected a node of the graph: got {}", Py_TYPE(object)->tp_name);
  autograd::Node& node = *reinterpret_cast<PyNode*>(object)->node;
  TG_CHECK(output >= 0 && output < static_cast<int64_t>(node.outputs.size()), Index,
           "GradientEdge: {} has {} outputs: got number {}", node.name(), node.outputs.size(), output);
  if (node.is_accumulator) return static_cast<autograd::AccumulateGrad&>(node).variable;
  const autograd::OutputMeta& like = node.outputs[static_cast<size_t>(output)];
  const Tensor t = empty_tensor(TensorSpec{like.sizes, like.dtype, like.device, DimVector(like.sizes.size())});
  autograd::AutogradMeta& meta = autograd::ensure_meta(t);
  meta.grad_fn = intrusive_ptr<autograd::Node>(&node);
  meta.output = static_cast<uint32_t>(output);
  t.impl()->set_needs_grad(true);
  return t;
}

void set_versions(TupleObject tensors, TupleObject versions) {
  const auto list = tensors_of(tensors, {"_unsafe_set_version_counter", "tensors", 1});
  TG_CHECK(versions.size() == tensors.size(), Runtime, "_unsafe_set_version_counter: {} tensors and {} versions",
           tensors.size(), versions.size());
  for (Py_ssize_t i = 0; i < versions.size(); ++i) {
    const int64_t version =
        to_int(PyTuple_GET_ITEM(versions.object, i), {"_unsafe_set_version_counter", "versions", 2});
    TG_CHECK(version >= 0, Runtime, "_unsafe_set_version_counter: Cannot set a version to {}", version);
    list[static_cast<size_t>(i)].impl()->counter().version.store(static_cast<uint32_t>(version));
  }
}

void push_hooks(PyObject* pack, PyObject* unpack) {
  TG_CHECK(PyCallable_Check(pack) && PyCallable_Check(unpack), Type,
           "saved_tensors_hooks: both hooks must be callable: got {} and {}", Py_TYPE(pack)->tp_name,
           Py_TYPE(unpack)->tp_name);
  autograd::push_saved_tensor_hooks(make_saved_tensor_hooks(pack, unpack));
}

void queue_callback(PyObject* callback) {
  TG_CHECK(PyCallable_Check(callback), Type, "queue_callback: the callback must be callable: got {}",
           Py_TYPE(callback)->tp_name);
  autograd::queue_callback([shared = share(callback)] {
    const ProgramScope scope;
    own(PyObject_CallNoArgs(shared->get()));
  });
}

PyObject* current_node() {
  autograd::Node* node = autograd::current_node();
  if (!node) Py_RETURN_NONE;
  return wrap_tape_node(intrusive_ptr<autograd::Node>(node));
}

// clang-format off
PyMethodDef functions[] = {
    method<"run_backward", run_backward>(),
    method<"grad", gradients>(),
    method<"push_saved_tensors_hooks", push_hooks>(),
    method<"pop_saved_tensors_hooks", [] { autograd::pop_saved_tensor_hooks(); }>(),
    method<"set_anomaly", [](bool enabled, bool check_nan) { autograd::set_anomaly(enabled, check_nan); }>(),
    method<"is_anomaly_enabled", [] { return autograd::anomaly_enabled(); }>(),
    method<"is_anomaly_check_nan_enabled", [] { return autograd::anomaly_check_nan(); }>(),
    method<"queue_callback", queue_callback>(),
    method<"tensor_of_edge", tensor_of_edge>(),
    method<"bump_version", [](PyObject* t) { autograd::bump_version(to_tensor(t, {"increment_version", "tensor", 1}), "increment_version"); }>(),
    method<"_unsafe_set_version_counter", set_versions>(),
    method<"in_backward", [] { return autograd::in_backward(); }>(),
    method<"current_node", current_node>(),
    method<"_current_graph_task_id", [] { return autograd::current_pass(); }>(),
    {},
};
// clang-format on

}  // namespace

std::shared_ptr<void> PythonSavedTensorHooks::pack(const Tensor& t) {
  const ProgramScope scope;
  PyRef argument = own(wrap(t));
  PyRef packed = own(PyObject_CallOneArg(pack_callable->get(), argument.get()));
  return share(packed.get());
}

Tensor PythonSavedTensorHooks::unpack(const std::shared_ptr<void>& packed) {
  const ProgramScope scope;
  PyRef result = own(PyObject_CallOneArg(unpack_callable->get(), static_cast<SharedObject*>(packed.get())->get()));
  TG_CHECK(is_tensor(result.get()), Type,
           "saved_tensors_hooks: Output of saved tensor unpack_hook expected to be a Tensor: got {}",
           Py_TYPE(result.get())->tp_name);
  return unwrap(result.get());
}

std::shared_ptr<autograd::SavedTensorHooks> make_saved_tensor_hooks(PyObject* pack, PyObject* unpack) {
  return std::make_shared<PythonSavedTensorHooks>(pack, unpack);
}

bool init_tape_functions(PyObject* module) { return PyModule_AddFunctions(module, functions) == 0; }

bool init_autograd(PyObject* module) {
  PyRef tape(PyModule_New("tapegrad._C._autograd"));
  if (!tape || !init_nodes(tape.get()) || !init_handles(tape.get()) || !init_contexts(tape.get()) ||
      !init_grad_modes(tape.get()) || !init_tape_functions(tape.get()))
    return false;
  init_collector();
  return PyModule_AddObjectRef(module, "_autograd", tape.get()) == 0 &&
         PyDict_SetItemString(PyImport_GetModuleDict(), "tapegrad._C._autograd", tape.get()) == 0;
}

}  // namespace tapegrad::python
