// Node: one recorded operator of the tape. It knows the nodes that made its inputs (`edges`) and turns the
// gradients of its outputs into those of its inputs. The tape is this graph of nodes; nothing else is kept.
//
// Ownership: a tensor owns the node that made it, a node owns the nodes of its inputs and what it saved.
// Saved outputs are stored without their node (saved_tensor.h), so there is no cycle. Releasing a long chain
// does not recurse: `release_resources` hands the edges to a thread-local work list.
// Threads: a node is immutable after the forward pass but for `release_saved`, hooks and the grad accumulator,
// each of which takes `mutex`.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd {

struct Node;
class SavedTensor;
using SavedVisitor = std::function<void(const char* name, const SavedTensor& saved)>;

struct Edge {
  intrusive_ptr<Node> node;  // null: no gradient wanted
  uint32_t input = 0;        // which of the node's outputs (inputs of its backward) this tensor is
  bool defined() const noexcept { return static_cast<bool>(node); }
};

// Gradients travel in this: entries may be undefined (no gradient).
using GradList = std::vector<Tensor>;

// Hooks of a node or tensor. `pre` see and may replace the gradients that arrive, `post` those that leave.
struct NodeHooks {
  using Pre = std::function<void(GradList& grads)>;
  using Post = std::function<void(GradList& inputs_grads, const GradList& outputs_grads)>;
  std::vector<std::pair<uint64_t, Pre>> tensor_pre;  // from Tensor.register_hook; run before the others
  std::vector<std::pair<uint64_t, Pre>> pre;
  std::vector<std::pair<uint64_t, Post>> post;
  std::vector<std::pair<uint64_t, Pre>> retain;      // retain_grad; run last of the pre hooks
};

// What a result looked like, so that its gradient can be checked and zeros made for it.
struct OutputMeta {
  DimVector sizes;
  DType dtype = DType::float32;
  Device device;
};

struct TG_API Node : intrusive_ptr_target {
  Node();  // takes the sequence number and the call site
  ~Node() override;

  virtual const char* name() const = 0;
  // grads.size() == outputs.size(); returns one entry per edge. Runs under the grad mode that the engine sets
  // (enabled for create_graph).
  virtual GradList apply(GradList grads) = 0;
  // Drops what was saved; `apply` then raises through SavedTensor::unpack.
  virtual void release_saved() noexcept {}
  // Shows what is saved, by name: for Python's collector and for `grad_fn._saved_NAME`.
  virtual void visit_saved(const SavedVisitor&) const {}
  // AccumulateGrad: runs in any case and after all others.
  virtual bool is_accumulator() const noexcept { return false; }

  bool needs(size_t i) const noexcept { return edges[i].defined(); }

  std::vector<Edge> edges;          // one per differentiable input
  std::vector<OutputMeta> outputs;  // one per differentiable output
  uint64_t sequence;                // larger is newer; the engine runs newest first
  uint32_t site;                    // call-site id of the forward call (call_site.h); 0: unknown
  std::unique_ptr<NodeHooks> hooks;
  std::mutex mutex;
  void* python = nullptr;           // the wrapper object that Python sees, borrowed; owned by the bindings
  std::unique_ptr<AutogradMetaBase> metadata;  // Python's node.metadata dictionary, anomaly mode's record

  static void* operator new(size_t n);
  static void operator delete(void* p, size_t n) noexcept;

 protected:
  void release_resources() noexcept override;
};

// Appends the edges of an input of a node: its node, its accumulator (a leaf that asks for a gradient), or none.
TG_API Edge edge_of(const Tensor& t);
TG_API void add_edge(Node& node, const Tensor& t);
TG_API void add_edges(Node& node, TensorSpan tensors);

// Makes `t` an output of `node`: sets grad_fn and output number. The tensor must be fresh.
TG_API void set_history(const Tensor& t, const intrusive_ptr<Node>& node);
// The same for every tensor of a list that is floating or complex.
TG_API void set_history(TensorSpan tensors, const intrusive_ptr<Node>& node);

// In-place operators. `check_inplace` raises before anything is written: a leaf that requires grad, a view of
// such a leaf, a view from a multi-output operator, an inference tensor, internal overlap.
// `rebase_history` makes `self` an output of `node`; when self is a view, its base is rebased through a
// CopySlices node and the views' nodes are made anew on demand.
TG_API void check_inplace(const Tensor& self, const char* op, bool recording);
TG_API void rebase_history(const Tensor& self, const intrusive_ptr<Node>& node);
// A write noticed by nobody else: bumps the version with the operator's name and the call site.
TG_API void bump_version(const Tensor& self, const char* op);

// Makes `view` a differentiable view of `base` (view rows do so through the generated wrapper).
// `node` is null when nothing is recorded; the relation is kept all the same, since the base may come to require
// grad later and since in-place operators on the view have to find the base.
TG_API void set_view(const Tensor& view, const Tensor& base, const intrusive_ptr<Node>& node,
                     bool multi_output = false);

inline bool needs_grad(const Tensor& t) noexcept { return t.defined() && t.impl()->needs_grad(); }
inline bool needs_grad(const Operand& t) noexcept { return needs_grad(t.tensor()); }
TG_API bool needs_grad(TensorSpan tensors) noexcept;

// Helpers that generated gradient code uses.
// Sums a gradient over the dimensions that broadcasting added, and casts it to the dtype of the input.
TG_API Tensor reduce_to(const Tensor& grad, const OutputMeta& meta);
TG_API OutputMeta meta_of(const Tensor& t);
// `grad`, or zeros of the output's shape when it is undefined.
TG_API Tensor grad_or_zeros(const Tensor& grad, const OutputMeta& meta);

}  // namespace tapegrad::autograd
