// AutogradMeta: the tape's metadata of one tensor. Allocated when a tensor first takes part in a recording, is set to
// require a gradient, or is a view.
//
// Ownership: the TensorImpl owns its metadata, which owns the gradient and the node that made the tensor. A
// leaf does not own its accumulator (that one owns the leaf). Threads: `grad` of a leaf is written under
// `grad_mutex`; the rest follows the rules of the tensor itself, but grad_fn_of and accumulator_of may be
// called by several threads at once.
#pragma once

#include <mutex>

#include "tapegrad/autograd/engine/node.h"

namespace tapegrad::autograd {

// Hooks of a leaf; those of other tensors are with the node that made them.
struct LeafHooks {
  std::vector<std::pair<uint64_t, NodeHooks::Hook>> grad;
  std::vector<std::pair<uint64_t, std::function<void(const Tensor& leaf)>>> post_accumulate;
};

struct TG_API AutogradMeta : AutogradMetaBase {
  Tensor grad;
  intrusive_ptr<Node> grad_fn;
  // AccumulateGrad of a leaf; made on demand, owned by the graph. When no graph has it any more it is an empty object,
  // which is filled again when the next one asks for it.
  weak_intrusive_ptr<Node> accumulator;
  std::unique_ptr<LeafHooks> hooks;
  uint32_t output = 0;  // which output of grad_fn this is
  bool retains_grad = false;
  bool is_view = false;             // then this is a ViewMeta
  std::atomic<bool> locked{false};  // guards `accumulator`

  AutogradMeta() = default;
  ~AutogradMeta() override;
  LeafHooks& ensure_hooks() {
    if (!hooks) hooks = std::make_unique<LeafHooks>();
    return *hooks;
  }
  static void* operator new(size_t n);
  static void operator delete(void* p, size_t n) noexcept;
};

// How a view was created; for all but Ordinary, in-place writes to it cannot be recorded.
enum class ViewOrigin : uint8_t { Ordinary, MultiOutput, NoGrad, Inference, CustomFunction };

// The metadata of a view.
struct TG_API ViewMeta final : AutogradMeta {
  Tensor base;  // never itself a view
  // The base's node that grad_fn accounts for. When the base has another one, it was written to since and grad_fn is
  // recreated. An address only: where grad_fn is set, it keeps this node alive.
  const Node* base_fn = nullptr;
  ViewOrigin origin = ViewOrigin::Ordinary;
  bool requires_grad = false;  // set on the view itself, not taken over from its base

  bool stale() const noexcept;
  // A view of a tensor that needs a gradient counts as needing one itself, even if it is not on the tape, so that
  // writes to it are checked.
  bool view_needs_grad() const noexcept override { return base.impl()->needs_grad() || stale(); }
};

// The metadata, or null. `ensure_meta` allocates it.
inline AutogradMeta* meta(const Tensor& t) noexcept { return static_cast<AutogradMeta*>(t.impl()->autograd()); }
inline ViewMeta* view_meta(const Tensor& t) noexcept {
  AutogradMeta* m = meta(t);
  return m && m->is_view ? static_cast<ViewMeta*>(m) : nullptr;
}
TG_API AutogradMeta& ensure_meta(const Tensor& t);
// grad_fn, recreated for a view whose base was written to since.
TG_API intrusive_ptr<Node> grad_fn_of(const Tensor& t);
TG_API intrusive_ptr<Node> accumulator_of(const Tensor& leaf, uint32_t site);
inline intrusive_ptr<Node> accumulator_of(const Tensor& leaf) { return accumulator_of(leaf, current_site()); }
inline bool is_view(const Tensor& t) noexcept { return view_meta(t) != nullptr; }
// Guards `grad` of a leaf; one of a few mutexes shared by all tensors.
TG_API std::mutex& grad_mutex(const TensorImpl& leaf) noexcept;

// A hook that can be removed. Does not keep anything alive.
class TG_API HookHandle {
 public:
  HookHandle() = default;
  HookHandle(uint64_t id, const intrusive_ptr<Node>& node, const Tensor& leaf)
      : id_(id), node_(node), leaf_(leaf.ptr()) {}
  uint64_t id() const noexcept { return id_; }
  void remove();

 private:
  uint64_t id_ = 0;
  weak_intrusive_ptr<Node> node_;
  weak_intrusive_ptr<TensorImpl> leaf_;
};

// Hooks see the gradient of a tensor once it is complete and may replace it. Those of a leaf run before it is
// accumulated; post-accumulate hooks of a leaf see the leaf afterwards.
TG_API HookHandle add_tensor_hook(const Tensor& t, NodeHooks::Hook hook);
TG_API HookHandle add_post_accumulate_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook);
TG_API HookHandle add_node_prehook(Node& node, NodeHooks::Pre hook);
TG_API HookHandle add_node_hook(Node& node, NodeHooks::Post hook);

}  // namespace tapegrad::autograd

inline tapegrad::intrusive_ptr<tapegrad::autograd::Node> tapegrad::Tensor::grad_fn() const {
  return autograd::grad_fn_of(*this);
}
