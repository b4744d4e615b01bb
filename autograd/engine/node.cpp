#include "tapegrad/autograd/engine/node.h"

#include <cctype>
#include <thread>

#include "tapegrad/autograd/meta.h"
#include "tapegrad/c10/memory/object_pool.h"

namespace tapegrad::autograd {

namespace detail {
constinit thread_local uint64_t node_sequence __attribute__((tls_model("initial-exec"))) = 0;
constinit thread_local WantedEdges wanted_edges __attribute__((tls_model("initial-exec"))) = {nullptr, 0};
}  // namespace detail

Node::~Node() = default;
void* Node::operator new(size_t n) { return pool_allocate(n); }
void Node::operator delete(void* p, size_t n) noexcept { pool_free(p, n); }

// Note "Releasing a chain": the tape can be millions of nodes deep, and a node is released when the next newer one is.
// The first node released on a thread drops what it owns and then drains a queue. Nodes whose last owner disappears
// meanwhile (through an edge, a saved tensor, or anything that destructors drop) only take a weak reference to
// themselves, which defers their deletion, and join the queue, from which they are deleted one by one. The stack stays
// flat, and nothing is allocated. A node with another weak reference (a leaf's to its accumulator, a handle's to the
// node of its hook) remains as an empty object: its members are released without waiting for the holder of that
// reference, which it may own. An accumulator drops its leaf at once: it has no edges, and what the leaf leads to joins
// the queue.
namespace {
struct DyingNodes {
  Node* first;
  bool busy;
};
constinit thread_local DyingNodes dying __attribute__((tls_model("initial-exec"))) = {nullptr, false};
}  // namespace

void Node::drop() noexcept {
  edges.clear();
  drop_contents();
  hooks.reset();
  metadata.reset();
}

void Node::release_resources() noexcept {
  if (is_accumulator) return drop();
  if (dying.busy) {
    auto self = intrusive_ptr<Node>::reclaim(this);
    weak_intrusive_ptr<Node>(self).release();
    self.release();
    next_dying_ = dying.first;
    dying.first = this;
    return;
  }
  dying.busy = true;
  drop();
  while (Node* next = dying.first) {
    dying.first = next->next_dying_;
    if (next->weak_count() > 1) next->drop();
    weak_intrusive_ptr<Node>::reclaim(next).reset();  // deletes it, unless there is another weak reference
  }
  dying.busy = false;
}

void SpinGuard::wait() noexcept {
  for (int spins = 0; locked_.exchange(true, std::memory_order_acquire); ++spins) {
    if (spins > 64) std::this_thread::yield();
  }
}

std::string operator_of(const Node& node) {
  std::string_view name = node.name();
  if (auto at = name.find("Backward"); at != std::string_view::npos && at > 0) {
    const bool is_function = at + std::string_view("Backward").size() == name.size();  // those of rows end in a digit
    name = name.substr(0, at);
    if (is_function) return std::string(name);
  }
  std::string text;
  for (size_t i = 0; i < name.size(); ++i) {
    bool upper = std::isupper(static_cast<unsigned char>(name[i])) != 0;
    if (upper && i > 0) text += '_';
    text += static_cast<char>(std::tolower(static_cast<unsigned char>(name[i])));
  }
  return text;
}

namespace {
// `by`: the node whose call site a new accumulator takes over; null: the present one.
Edge edge_to(const Tensor& t, const Node* by) {
  if (!needs_grad(t)) return {};
  AutogradMeta* m = meta(t);
  if (TG_UNLIKELY(m->is_view && static_cast<ViewMeta*>(m)->stale())) grad_fn_of(t);
  if (m->grad_fn) return {m->grad_fn, m->output};
  if (m->is_view && !static_cast<ViewMeta*>(m)->requires_grad) return {};  // only its base needs one
  return {accumulator_of(t, by ? by->site : current_site()), 0};
}
}  // namespace

Edge edge_of(const Tensor& t) { return edge_to(t, nullptr); }

void add_edge(Node& node, const Tensor& t) {
  if (!needs_grad(t)) {
    node.edges.emplace_back();
    return;
  }
  node.edges.push_back(edge_to(t, &node));
}

void add_edges(Node& node, TensorSpan tensors) {
  node.edges.reserve(node.edges.size() + tensors.size());
  for (const Tensor& t : tensors) add_edge(node, t);
}

void set_history(const Tensor& t, intrusive_ptr<Node>&& node) {
  auto output = static_cast<uint32_t>(node->outputs.size());
  if (!t.defined() || !is_differentiable(t.dtype())) {
    t.defined() ? node->outputs.emplace_back(t) : node->outputs.emplace_back();
    return;
  }
  node->outputs.emplace_back(t.sizes(), t.dtype(), t.device());
  AutogradMeta& m = ensure_meta(t);
  m.grad_fn = std::move(node);
  m.output = output;
  t.impl()->set_needs_grad(true);
}

void set_history(TensorSpan tensors, const intrusive_ptr<Node>& node) {
  node->outputs.reserve(tensors.size());
  for (const Tensor& t : tensors) set_history(t, node);
}

bool needs_grad(TensorSpan tensors) noexcept {
  for (const Tensor& t : tensors)
    if (needs_grad(t)) return true;
  return false;
}

}  // namespace tapegrad::autograd
