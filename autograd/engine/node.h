// Node: one recorded operator of the tape. It refers to the nodes that made its inputs (`edges`) and computes the
// gradients of its inputs from those of its outputs. The tape is this graph of nodes; there is no other record.
//
// Ownership: a tensor owns the node that made it, a node owns the nodes of its inputs and what it saved.
// Saved outputs are stored without their node (saved_tensor.h), so there is no cycle. Releasing a long chain
// does not recurse: a node that dies while another one is dying waits in a thread-local list (node.cpp).
// Threads: a node is immutable after the forward pass but for what it saved and its hooks; both are guarded
// by the node's lock, which is held for a few instructions only (never while an operator or a hook runs).
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/autograd/profiler/call_site.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/inline_vector.h"

namespace tapegrad::autograd {

struct Node;
class SavedTensor;
using SavedVisitor = std::function<void(const char* name, const SavedTensor& saved)>;

struct Edge {
  intrusive_ptr<Node> node;  // null: no gradient wanted
  uint32_t input = 0;        // which of the node's outputs (inputs of its backward) this tensor is
  bool defined() const noexcept { return static_cast<bool>(node); }
};

// A list of gradients: entries may be undefined (no gradient).
using GradList = InlineVector<Tensor, 4>;

// Hooks of a node and of the tensors it made. `tensor`, `retain` and `pre` see and may replace the gradients
// that arrive, in this order; `post` those that leave.
struct NodeHooks {
  using Pre = std::function<void(GradList& grads)>;
  using Post = std::function<void(GradList& input_grads, const GradList& output_grads)>;
  using Hook = std::function<Tensor(const Tensor& grad)>;  // an undefined result keeps the gradient
  struct TensorHook {
    uint64_t id;
    uint32_t output;
    Hook hook;
  };
  std::vector<TensorHook> tensor;
  std::vector<std::pair<uint64_t, Pre>> pre;
  std::vector<TensorHook> retain;  // retain_grad
  std::vector<std::pair<uint64_t, Post>> post;
};

// The metadata of an output, with which its gradient is checked and zeros are created for it.
struct OutputMeta {
  DimVector sizes;
  DType dtype = DType::float32;
  Device device;

  OutputMeta() = default;
  OutputMeta(IntSpan s, DType t, Device d) : sizes(s), dtype(t), device(d) {}
  explicit OutputMeta(const Tensor& t) : OutputMeta(t.sizes(), t.dtype(), t.device()) {}
  bool matches(const Tensor& t) const noexcept {
    return t.dtype() == dtype && t.device() == device && t.sizes() == IntSpan(sizes);
  }
};

namespace detail {
// Nodes made by this thread so far.
TG_API extern constinit thread_local uint64_t node_sequence __attribute__((tls_model("initial-exec")));
// The edges of the node that runs in this thread whose gradients are asked for, where these are not all.
struct WantedEdges {
  const Node* node;
  uint64_t edges;  // bit i: the edge i; those from 64 on are always wanted
};
TG_API extern constinit thread_local WantedEdges wanted_edges __attribute__((tls_model("initial-exec")));
}  // namespace detail

struct TG_API Node : intrusive_ptr_target {
  Node() noexcept : sequence(++detail::node_sequence), site(current_site()) {}
  ~Node() override;

  virtual const char* name() const = 0;
  // grads.size() == outputs.size(); returns one entry per edge. Runs under the grad mode that the engine sets
  // (enabled for create_graph). Not called when no gradient arrived, unless `runs_without_grads`.
  virtual GradList apply(GradList grads) = 0;
  // Drops what was saved; `apply` then raises through SavedTensor::unpack. Called with the lock held.
  virtual void release_saved() noexcept {}
  // Drops everything it owns but edges and hooks; called once, when the last owner has gone.
  virtual void drop_contents() noexcept { release_saved(); }
  // Visits the saved tensors by name: for Python's garbage collector and for `grad_fn._saved_NAME`.
  virtual void visit_saved(const SavedVisitor&) const {}

  // Whether a gradient of input i is asked for: by the forward pass, and while this runs also by the backward pass
  // (autograd.grad asks for those of some inputs only).
  bool needs(size_t i) const noexcept {
    return edges[i].defined() &&
           (TG_LIKELY(detail::wanted_edges.node != this) || i >= 64 || (detail::wanted_edges.edges >> i & 1) != 0);
  }
  NodeHooks& ensure_hooks() {
    if (!hooks) hooks = std::make_unique<NodeHooks>();
    return *hooks;
  }

  InlineVector<Edge, 2> edges;              // one per differentiable input
  InlineVector<OutputMeta, 1> outputs;      // one per differentiable output
  uint64_t sequence;                        // larger is newer (within a thread); the engine runs newest first
  uint32_t site;                            // call-site id of the forward call (call_site.h); 0: unknown
  mutable std::atomic<bool> locked{false};  // see SpinGuard
  bool is_accumulator = false;              // AccumulateGrad: runs as soon as its gradient is complete
  bool runs_without_grads = false;
  std::unique_ptr<NodeHooks> hooks;
  Node* copy_slices = nullptr;                 // the CopySlices node that owns this one: an in-place write to a view
  void* python = nullptr;                      // the wrapper object that Python sees, borrowed; owned by the bindings
  std::unique_ptr<AutogradMetaBase> metadata;  // Python's node.metadata dictionary

  static void* operator new(size_t n);
  static void operator delete(void* p, size_t n) noexcept;

 protected:
  void release_resources() noexcept override;

 private:
  void drop() noexcept;
  Node* next_dying_ = nullptr;
};

// Holds a lock byte for a scope. Only for a few instructions, since waiting threads spin.
class SpinGuard {
 public:
  explicit SpinGuard(std::atomic<bool>& locked) noexcept : locked_(locked) {
    if (TG_UNLIKELY(locked_.exchange(true, std::memory_order_acquire))) wait();
  }
  ~SpinGuard() { locked_.store(false, std::memory_order_release); }
  SpinGuard(const SpinGuard&) = delete;
  SpinGuard& operator=(const SpinGuard&) = delete;

 private:
  TG_API TG_COLD void wait() noexcept;
  std::atomic<bool>& locked_;
};

// The name of a node in messages: "exp" for ExpBackward0.
TG_API std::string operator_of(const Node& node);

// Appends the edge of an input of a node: its node, its accumulator (a leaf that requires a gradient), or none. For an
// in-place operator the first edge is that of the target.
TG_API Edge edge_of(const Tensor& t);
TG_API void add_edge(Node& node, const Tensor& t);
TG_API void add_edges(Node& node, TensorSpan tensors);

// Makes `t` an output of `node`: sets grad_fn and output number. The tensor must be fresh. A tensor that
// cannot carry a gradient (integers) takes an output number and stays outside the tape.
TG_API void set_history(const Tensor& t, intrusive_ptr<Node>&& node);
inline void set_history(const Tensor& t, const intrusive_ptr<Node>& node) { set_history(t, intrusive_ptr<Node>(node)); }
template <class T>
void set_history(const Tensor& t, const intrusive_ptr<T>& node) {
  set_history(t, intrusive_ptr<Node>(node));
}
// The same for every tensor of a list.
TG_API void set_history(TensorSpan tensors, const intrusive_ptr<Node>& node);

// In-place operators. `check_inplace` raises before anything is written: a leaf that requires grad, a view of such a
// leaf, a view from a multi-output operator, an inference tensor, internal overlap. `rebase_history` makes `self` an
// output of `node`; when self is a view, its base is rebased through a CopySlices node and the views' nodes are
// recreated on demand.
TG_API TG_COLD void check_inplace_slow(const Tensor& self, const char* op, bool recording);
inline void check_inplace(const Tensor& self, const char* op, bool recording) {
  const TensorImpl* impl = self.impl();
  if (TG_LIKELY(impl && !recording && impl->is_contiguous() && !impl->is_inference())) return;
  check_inplace_slow(self, op, recording);
}
TG_API void rebase_history(const Tensor& self, const intrusive_ptr<Node>& node);
// Records a write that is not tracked otherwise: bumps the version with the operator's name and the call site.
inline void bump_version(const Tensor& self, const char* op) { self.impl()->bump_version(op, current_site()); }

// Makes `view` a differentiable view of `base` (view rows do so through the generated wrapper).
// `node` is null when nothing is recorded; the relation is kept all the same, since the base may come to
// require grad later and since in-place operators on the view have to find the base.
TG_API void set_view(const Tensor& view, const Tensor& base, intrusive_ptr<Node> node, bool multi_output = false);

inline bool needs_grad(const Tensor& t) noexcept { return t.defined() && t.impl()->needs_grad(); }
inline bool needs_grad(const Operand& t) noexcept { return needs_grad(t.tensor()); }
TG_API bool needs_grad(TensorSpan tensors) noexcept;

// Helpers that generated gradient code uses.
// Sums a gradient over the dimensions that broadcasting added, and casts it to the dtype of the input.
TG_API TG_COLD Tensor reduce_to_slow(const Tensor& grad, const OutputMeta& meta);
inline Tensor reduce_to(Tensor grad, const OutputMeta& meta) {
  if (TG_LIKELY(!grad.defined() || meta.matches(grad))) return grad;
  return reduce_to_slow(grad, meta);
}
inline OutputMeta meta_of(const Tensor& t) { return OutputMeta(t); }
// `grad`, or zeros of the output's shape when it is undefined.
TG_API Tensor grad_or_zeros(const Tensor& grad, const OutputMeta& meta);

}  // namespace tapegrad::autograd
