#include "tapegrad/autograd/meta.h"

#include "tapegrad/autograd/engine/accumulate.h"
#include "tapegrad/autograd/view.h"
#include "tapegrad/c10/memory/object_pool.h"

namespace tapegrad::autograd {

AutogradMeta::~AutogradMeta() = default;
void* AutogradMeta::operator new(size_t n) { return pool_allocate(n); }
void AutogradMeta::operator delete(void* p, size_t n) noexcept { pool_free(p, n); }

AutogradMeta& ensure_meta(const Tensor& t) {
  TensorImpl* impl = t.impl();
  if (impl->autograd() == nullptr) impl->set_autograd(std::make_unique_for_overwrite<AutogradMeta>());
  return *static_cast<AutogradMeta*>(impl->autograd());
}

intrusive_ptr<Node> grad_fn_of(const Tensor& t) {
  AutogradMeta* m = t.defined() ? meta(t) : nullptr;
  if (m == nullptr) return {};
  if (m->is_view && static_cast<ViewMeta*>(m)->stale()) refresh_view(t);
  return m->grad_fn;
}

namespace {
// An owner anew of an object that nobody but the holder of this weak reference can reach; null if it is not one.
intrusive_ptr<Node> revive(const weak_intrusive_ptr<Node>& only) {
  Node* node = only.unsafe_get();
  if (node == nullptr || node->use_count() != 0 || node->weak_count() != 1) return {};
  weak_intrusive_ptr<Node>(only).release();  // the one that all owners hold together
  return intrusive_ptr<Node>::adopt_new(node);
}
}  // namespace

intrusive_ptr<Node> accumulator_of(const Tensor& leaf, uint32_t site) {
  AutogradMeta& m = ensure_meta(leaf);
  SpinGuard guard(m.locked);
  intrusive_ptr<Node> node = revive(m.accumulator);
  if (node) {
    static_cast<AccumulateGrad&>(*node).renew(leaf, site);
    return node;
  }
  node = m.accumulator.lock();
  // A leaf whose data was exchanged for another dtype's has gradients of that dtype from then on.
  if (!node || node->outputs[0].dtype != leaf.dtype() || node->outputs[0].device != leaf.device()) {
    node = make_intrusive<AccumulateGrad>(leaf, site);
    m.accumulator = weak_intrusive_ptr<Node>(node);
  }
  return node;
}

std::mutex& grad_mutex(const TensorImpl& leaf) noexcept {
  static std::mutex mutexes[64];
  return mutexes[(reinterpret_cast<uintptr_t>(&leaf) >> 6) % 64];
}

namespace {

uint64_t next_hook_id() noexcept {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

template <class List>
bool erase_hook(List& list, uint64_t id) {
  for (auto it = list.begin(); it != list.end(); ++it) {
    bool found;
    if constexpr (requires { it->first; })
      found = it->first == id;
    else
      found = it->id == id;
    if (found) {
      auto removed = std::move(*it);  // destroyed after the list is whole again: it may run user code
      list.erase(it);
      return true;
    }
  }
  return false;
}

}  // namespace

void HookHandle::remove() {
  if (auto node = node_.lock(); node && node->hooks) {
    NodeHooks& h = *node->hooks;
    erase_hook(h.tensor, id_) || erase_hook(h.pre, id_) || erase_hook(h.retain, id_) || erase_hook(h.post, id_);
  }
  if (auto leaf = leaf_.lock(); leaf && leaf->autograd()) {
    if (LeafHooks* h = static_cast<AutogradMeta*>(leaf->autograd())->hooks.get())
      erase_hook(h->grad, id_) || erase_hook(h->post_accumulate, id_);
  }
}

HookHandle add_tensor_hook(const Tensor& t, NodeHooks::Hook hook) {
  TG_CHECK(needs_grad(t), Runtime, "register_hook: cannot register a hook on a tensor that doesn't require gradient");
  uint64_t id = next_hook_id();
  if (auto node = grad_fn_of(t)) {
    node->ensure_hooks().tensor.push_back({id, meta(t)->output, std::move(hook)});
    return HookHandle(id, node, {});
  }
  ensure_meta(t).ensure_hooks().grad.emplace_back(id, std::move(hook));
  return HookHandle(id, {}, t);
}

HookHandle add_post_accumulate_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook) {
  TG_CHECK(needs_grad(leaf), Runtime,
           "register_post_accumulate_grad_hook: cannot register a hook on a tensor that doesn't require gradient");
  TG_CHECK(leaf.is_leaf(), Runtime,
           "register_post_accumulate_grad_hook: post accumulate grad hooks cannot be registered on non-leaf "
           "tensors");
  uint64_t id = next_hook_id();
  ensure_meta(leaf).ensure_hooks().post_accumulate.emplace_back(id, std::move(hook));
  return HookHandle(id, {}, leaf);
}

HookHandle add_node_prehook(Node& node, NodeHooks::Pre hook) {
  uint64_t id = next_hook_id();
  node.ensure_hooks().pre.emplace_back(id, std::move(hook));
  return HookHandle(id, intrusive_ptr<Node>(&node), {});
}

HookHandle add_node_hook(Node& node, NodeHooks::Post hook) {
  uint64_t id = next_hook_id();
  node.ensure_hooks().post.emplace_back(id, std::move(hook));
  return HookHandle(id, intrusive_ptr<Node>(&node), {});
}

}  // namespace tapegrad::autograd
