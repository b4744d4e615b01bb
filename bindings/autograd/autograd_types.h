// The tape seen from Python: nodes (`grad_fn`), hooks, custom functions and their context, grad modes.
//
// Ownership, so that Python's collector can follow it: a tensor's Python object owns the tensor, which owns its node; a
// node owns its hooks' callables, the context of a custom Function, and what it saved. The Python object of a node owns
// the node. None of these are Python references, so tensor and node objects report to the garbage collector what only
// they keep alive (autograd_gc.cpp).
#pragma once

#include <memory>
#include <vector>

#include "tapegrad/autograd/function.h"
#include "tapegrad/autograd/meta.h"
#include "tapegrad/bindings/interpreter/errors.h"
#include "tapegrad/bindings/tensor/tensor_object.h"

namespace tapegrad::python {

// A Python object kept by C++ that may be dropped on any thread, with or without the GIL.
class SharedObject {
 public:
  explicit SharedObject(PyObject* borrowed) noexcept : object_(borrowed) { Py_INCREF(borrowed); }
  ~SharedObject();
  SharedObject(const SharedObject&) = delete;
  SharedObject& operator=(const SharedObject&) = delete;
  PyObject* get() const noexcept { return object_; }

 private:
  PyObject* object_;
};
using SharedObjectPtr = std::shared_ptr<SharedObject>;
inline SharedObjectPtr share(PyObject* o) { return std::make_shared<SharedObject>(o); }

// Hooks as the tape calls them: without the GIL, which they take.
struct TensorHook {  // of a tensor: gradient -> gradient or None
  SharedObjectPtr callable;
  Tensor operator()(const Tensor& grad) const;
};
struct LeafHook {  // after accumulation
  SharedObjectPtr callable;
  void operator()(const Tensor& leaf) const;
};
struct NodePreHook {  // of a node: gradients of its outputs
  SharedObjectPtr callable;
  void operator()(autograd::GradList& grads) const;
};
struct NodePostHook {  // of a node: gradients of its inputs and outputs
  SharedObjectPtr callable;
  void operator()(autograd::GradList& inputs, const autograd::GradList& outputs) const;
};

// The handle of a hook in Python; `remove()` removes the hook.
PyObject* wrap_handle(autograd::HookHandle handle);

// The Python object of a node.
struct PyNode {
  PyObject_HEAD intrusive_ptr<autograd::Node> node;
};
// `node.metadata`, kept by the node.
struct NodeDictionary final : AutogradMetaBase {
  SharedObjectPtr dict;
};
PyObject* wrap_tape_node(intrusive_ptr<autograd::Node> node);
bool is_node(PyObject* o) noexcept;

// The context of a custom Function: what `ctx` is in forward and backward. The node owns it.
struct PyContext {
  PyObject_HEAD PyObject* dict;
  PyObject* weakrefs;
  autograd::FunctionNode* node;  // null when the node has gone
  PyObject* needs_input_grad;    // a tuple of bool, one per argument of forward
  PyObject* to_save;             // what save_for_backward was given, until forward returns
  PyObject* for_jvp;             // what save_for_forward was given, until jvp has run
  PyObject* dirty;
  PyObject* non_differentiable;
  bool materialize_grads;
};

// The node of a custom Function written in Python. Owns the context.
struct PyFunctionNode final : autograd::FunctionNode {
  explicit PyFunctionNode(PyObject* ctx);
  ~PyFunctionNode() override;
  const char* name() const override { return name_.c_str(); }
  autograd::GradList apply(autograd::GradList grads) override;
  void drop_contents() noexcept override;

  PyObject* ctx;                   // owned; a PyContext; null when the last owner of the node has gone
  std::vector<uint8_t> is_tensor;  // per argument of forward

 private:
  // For the program that kept `ctx` beyond its node: what it saved is read there from now on.
  void leave_saved_to_context() noexcept;
  std::string name_;
};

// Pack and unpack of tapegrad.autograd.graph.saved_tensors_hooks; what it keeps for a saved tensor is a SharedObject.
struct PythonSavedTensorHooks final : autograd::SavedTensorHooks {
  PythonSavedTensorHooks(PyObject* pack_function, PyObject* unpack_function)
      : pack_callable(share(pack_function)), unpack_callable(share(unpack_function)) {}
  std::shared_ptr<void> pack(const Tensor& t) override;
  Tensor unpack(const std::shared_ptr<void>& packed) override;

  SharedObjectPtr pack_callable;
  SharedObjectPtr unpack_callable;
};
std::shared_ptr<autograd::SavedTensorHooks> make_saved_tensor_hooks(PyObject* pack, PyObject* unpack);

// Parts of `tapegrad._C._autograd`, each adding to the module; false with an exception set.
bool init_nodes(PyObject* module);
bool init_handles(PyObject* module);
bool init_contexts(PyObject* module);
bool init_grad_modes(PyObject* module);
bool init_tape_functions(PyObject* module);
void init_collector() noexcept;
// All of them.
bool init_autograd(PyObject* module);

// Methods of tensors: register_hook, register_post_accumulate_grad_hook.
extern PyMethodDef tensor_hook_methods[];

}  // namespace tapegrad::python
