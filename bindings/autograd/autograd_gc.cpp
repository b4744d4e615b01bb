// Traversal of the tape for Python's garbage collector.
//
// C++ objects own each other by reference counts that the collector cannot see. From a visited tensor or node object,
// this walk follows the tape as long as all owners of what it reaches are part of the walk: a node or tensor is entered
// when as many references to it were found as it has owners. So nothing is reported that is kept alive from outside,
// and cycles through hooks, contexts, attributes and saved tensors are found. The walk is bounded: a cycle that runs
// through a longer piece of tape is freed when backward frees the tape.
//
// A tensor that C++ owns as well (the tape keeps its leaves) reports what it keeps only if the walk from it returns to
// it through all these owners: then it is kept alive by itself alone. Its Python object may then be kept by the
// TensorImpl (tensor_object.h), and is reported, too.
#include <array>

#include "tapegrad/autograd/engine/accumulate.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/autograd/view.h"
#include "tapegrad/bindings/autograd/autograd_types.h"
#include "tapegrad/bindings/tensor/tensor_type.h"

namespace tapegrad::python {

namespace {

class Walk {
 public:
  // `known` references to the root come from Python.
  void from_tensor(TensorImpl& root, uint32_t known) {
    root_ = &root;
    root_found_ = known;
    tensor_contents(root);
    follow();
  }
  void from_node(autograd::Node& node) {
    node_contents(node);
    follow();
  }
  // Whether all owners of the root were met.
  bool complete() const noexcept { return root_ == nullptr || root_found_ == root_->use_count(); }

  int visit_all(visitproc visit, void* arg) const {
    for (size_t i = 0; i < num_objects_; ++i)
      if (int result = visit(objects_[i], arg)) return result;
    return 0;
  }

 private:
  static constexpr size_t kMost = 128;
  enum class Kind : uint8_t { Node, Tensor, Hooks };
  struct Item {
    Kind kind;
    uint32_t found;
    void* object;
  };

  void tensor_contents(const TensorImpl& impl) {
    auto* m = static_cast<autograd::AutogradMeta*>(impl.autograd());
    if (!m) return;
    if (m->hooks) {
      for (auto& [id, hook] : m->hooks->grad) callable<TensorHook>(hook);
      for (auto& [id, hook] : m->hooks->post_accumulate) callable<LeafHook>(hook);
    }
    reach(m->grad_fn.get());
    reach(m->grad.impl());
    if (m->is_view) reach(static_cast<autograd::ViewMeta*>(m)->base.impl());
  }

  void node_contents(autograd::Node& node) {
    if (auto* h = node.hooks.get()) {
      for (auto& hook : h->tensor) callable<TensorHook>(hook.hook);
      for (auto& [id, hook] : h->pre) callable<NodePreHook>(hook);
      for (auto& [id, hook] : h->post) callable<NodePostHook>(hook);
    }
    if (auto* m = static_cast<NodeDictionary*>(node.metadata.get())) shared(m->dict);
    if (node.is_accumulator) {
      reach(static_cast<autograd::AccumulateGrad&>(node).variable.impl());
      return;
    }
    if (auto* function = dynamic_cast<PyFunctionNode*>(&node)) object(function->ctx);
    if (auto* slices = dynamic_cast<autograd::CopySlices*>(&node)) {
      reach(slices->fn.get());
    } else {
      autograd::SpinGuard guard(node.locked);
      node.visit_saved([this](const char*, const autograd::SavedTensor& saved) { saved_contents(saved); });
    }
    for (const autograd::Edge& e : node.edges) reach(e.node.get());
  }

  void saved_contents(const autograd::SavedTensor& saved) {
    reach(saved.held().impl());
    const auto* packed = saved.packed();
    if (!packed) return;
    reach(packed->edge.node.get());
    reach_item(Kind::Hooks, packed->hooks.get(), static_cast<uint32_t>(packed->hooks.use_count()));
    if (packed->object.use_count() == 1) object(static_cast<SharedObject*>(packed->object.get())->get());
  }

  void follow() {
    for (size_t i = 0; i < num_ready_; ++i) {
      void* o = ready_[i].object;
      switch (ready_[i].kind) {
        case Kind::Node:
          node_contents(*static_cast<autograd::Node*>(o));
          break;
        case Kind::Tensor: {
          auto& impl = *static_cast<TensorImpl*>(o);
          if (impl.owns_python_object()) object(static_cast<PyObject*>(impl.python_object()));
          tensor_contents(impl);
          break;
        }
        case Kind::Hooks:
          if (auto* hooks = dynamic_cast<PythonSavedTensorHooks*>(static_cast<autograd::SavedTensorHooks*>(o))) {
            shared(hooks->pack_callable);
            shared(hooks->unpack_callable);
          }
          break;
      }
    }
  }

  void reach(autograd::Node* node) {
    if (node) reach_item(Kind::Node, node, node->use_count());
  }
  void reach(TensorImpl* tensor) {
    if (!tensor) return;
    if (tensor == root_)
      ++root_found_;
    else
      reach_item(Kind::Tensor, tensor, tensor->use_count());
  }
  void reach_item(Kind kind, void* o, uint32_t owners) {
    uint32_t found = 1;
    if (owners > 1) {
      size_t i = 0;
      while (i < num_partial_ && partial_[i].object != o) ++i;
      if (i == num_partial_) {
        if (num_partial_ == kMost) return;
        partial_[num_partial_++] = {kind, 1, o};
      } else {
        found = ++partial_[i].found;
      }
    }
    if (found == owners && num_ready_ < kMost) ready_[num_ready_++] = {kind, found, o};
  }

  template <class Hook, class Function>
  void callable(const Function& function) {
    if (const Hook* hook = function.template target<Hook>()) shared(hook->callable);
  }
  // A copy that is in use at this moment (a hook that runs) counts as an owner outside.
  void shared(const SharedObjectPtr& p) {
    if (p && p.use_count() == 1) object(p->get());
  }
  void object(PyObject* o) {
    if (o && num_objects_ < kMost) objects_[num_objects_++] = o;
  }

  TensorImpl* root_ = nullptr;
  uint32_t root_found_ = 0;
  size_t num_ready_ = 0;
  size_t num_partial_ = 0;
  size_t num_objects_ = 0;
  std::array<Item, kMost> ready_;
  std::array<Item, kMost> partial_;
  std::array<PyObject*, kMost> objects_;
};

// While a thread runs backward, without the GIL, it changes what a walk would read. None starts during a collection.
int traverse_tensor(const Tensor& t, visitproc visit, void* arg) {
  if (autograd::backward_running()) return 0;
  TensorImpl& impl = *t.impl();
  const bool owns = impl.owns_python_object();
  Walk walk;
  walk.from_tensor(impl, owns ? 0 : 1);
  if (!walk.complete()) return 0;
  if (owns)
    if (int result = visit(static_cast<PyObject*>(impl.python_object()), arg)) return result;
  return walk.visit_all(visit, arg);
}

void clear_tensor(const Tensor& t) noexcept {
  {  // What others own as well stays as it is.
    Walk walk;
    walk.from_tensor(*t.impl(), t.impl()->owns_python_object() ? 0 : 1);
    if (!walk.complete()) return;
  }
  intrusive_ptr<TensorImpl> alive = t.ptr();  // the last owner may be what is dropped here
  auto* m = autograd::meta(t);
  auto hooks = std::move(m->hooks);
  auto grad_fn = std::move(m->grad_fn);
  auto grad = std::move(m->grad);
}

}  // namespace

int node_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  auto& node = reinterpret_cast<PyNode*>(o)->node;
  if (!node || node.use_count() != 1 || autograd::backward_running()) return 0;
  Walk walk;
  walk.from_node(*node);
  return walk.visit_all(visit, arg);
}

int node_clear(PyObject* o) {
  auto& node = reinterpret_cast<PyNode*>(o)->node;
  if (!node || node.use_count() != 1) return 0;
  auto hooks = std::move(node->hooks);
  auto metadata = std::move(node->metadata);
  node->release_saved();
  return 0;
}

void init_collector() noexcept {
  traverse_tape = traverse_tensor;
  clear_tape = clear_tensor;
}

}  // namespace tapegrad::python
