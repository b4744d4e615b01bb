// What Python's collector sees of the tape.
//
// C++ objects own each other by counts that the collector does not know. From a tensor or node object that it visits,
// this walk follows the tape as long as every owner of what it comes to lies on the way: a node or tensor is entered
// when as many references to it were found as it has owners. So nothing is reported that somebody outside keeps
// alive, and cycles through hooks, contexts, attributes and saved tensors are found. The walk is bounded: a cycle that
// runs through a longer piece of tape is freed when backward frees the tape.
#include <array>

#include "tapegrad/autograd/accumulate.h"
#include "tapegrad/autograd/view.h"
#include "tapegrad/bindings/autograd_types.h"
#include "tapegrad/bindings/tensor_type.h"

namespace tapegrad::python {

namespace {

class Walk {
 public:
  Walk(visitproc visit, void* arg) noexcept : visit_(visit), arg_(arg) {}

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
      node.visit_saved([this](const char*, const autograd::SavedTensor& saved) {
        reach(saved.held().impl());
        if (auto* packed = saved.packed(); packed && packed->use_count() == 1)
          object(static_cast<SharedObject*>(packed->get())->get());
      });
    }
    for (const autograd::Edge& e : node.edges) reach(e.node.get());
  }

  // Enters what the walk has reached completely.
  int finish() {
    for (size_t i = 0; i < num_ready_ && !result_; ++i) {
      if (ready_[i].node)
        node_contents(*ready_[i].node);
      else
        enter(*ready_[i].tensor);
    }
    return result_;
  }

 private:
  static constexpr size_t kMost = 64;
  struct Item {
    autograd::Node* node;
    TensorImpl* tensor;
    uint32_t found;
  };

  void enter(TensorImpl& impl) {
    if (impl.owns_python_object()) object(static_cast<PyObject*>(impl.python_object()));
    tensor_contents(impl);
  }

  void reach(autograd::Node* node) { reach_item({node, nullptr, 1}, node ? node->use_count() : 0); }
  void reach(TensorImpl* tensor) { reach_item({nullptr, tensor, 1}, tensor ? tensor->use_count() : 0); }
  void reach_item(Item item, uint32_t owners) {
    if (!item.node && !item.tensor) return;
    uint32_t found = 1;
    if (owners > 1) {
      size_t i = 0;
      while (i < num_partial_ && (partial_[i].node != item.node || partial_[i].tensor != item.tensor)) ++i;
      if (i == num_partial_) {
        if (num_partial_ == kMost) return;
        partial_[num_partial_++] = item;
      } else {
        found = ++partial_[i].found;
      }
    }
    if (found == owners && num_ready_ < kMost) ready_[num_ready_++] = item;
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
    if (o && !result_) result_ = visit_(o, arg_);
  }

  visitproc visit_;
  void* arg_;
  int result_ = 0;
  size_t num_ready_ = 0;
  size_t num_partial_ = 0;
  std::array<Item, kMost> ready_;
  std::array<Item, kMost> partial_;
};

int traverse_tensor(const Tensor& t, visitproc visit, void* arg) {
  Walk walk(visit, arg);
  walk.tensor_contents(*t.impl());
  return walk.finish();
}

void clear_tensor(const Tensor& t) noexcept {
  auto* m = autograd::meta(t);
  auto hooks = std::move(m->hooks);
  auto grad_fn = std::move(m->grad_fn);
  auto grad = std::move(m->grad);
}

}  // namespace

int node_traverse(PyObject* o, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(o));
  auto& node = reinterpret_cast<PyNode*>(o)->node;
  if (!node || node.use_count() != 1) return 0;
  Walk walk(visit, arg);
  walk.node_contents(*node);
  return walk.finish();
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
