// AutogradMeta: what the tape knows of one tensor. Allocated when a tensor first takes part in a recording, is
// asked to, or is a view of something that might.
#pragma once

#include <mutex>

#include "tapegrad/autograd/node.h"

namespace tapegrad::autograd {

// The relation of a view to its base (never itself a view).
struct ViewInfo {
  Tensor base;
  uint32_t version = 0;       // of the storage when grad_fn was last valid; older: grad_fn is made anew
  bool multi_output = false;  // from split, unbind ...: in-place writes are refused
};

struct TG_API AutogradMeta final : AutogradMetaBase {
  Tensor grad;
  intrusive_ptr<Node> grad_fn;
  uint32_t output = 0;                       // which output of grad_fn this is
  bool requires_grad = false;                // the user's wish, for a leaf
  bool retains_grad = false;
  weak_intrusive_ptr<Node> accumulator;      // AccumulateGrad of a leaf; made on demand, owned by the graph
  std::unique_ptr<ViewInfo> view;
  std::unique_ptr<NodeHooks> leaf_hooks;     // hooks of a leaf, handed to its accumulator
  std::vector<std::pair<uint64_t, std::function<void(const Tensor&)>>> post_accumulate_hooks;
  std::mutex mutex;
};

// The metadata, or null. `ensure_meta` makes it.
inline AutogradMeta* meta(const Tensor& t) noexcept { return static_cast<AutogradMeta*>(t.impl()->autograd()); }
TG_API AutogradMeta& ensure_meta(const Tensor& t);
// grad_fn, made anew for a view whose base was written to since.
TG_API intrusive_ptr<Node> grad_fn_of(const Tensor& t);
TG_API intrusive_ptr<Node> accumulator_of(const Tensor& leaf);
TG_API bool is_view(const Tensor& t) noexcept;

// Hooks on tensors; the id removes them.
TG_API uint64_t add_tensor_hook(const Tensor& t, std::function<Tensor(const Tensor&)> hook);
TG_API void remove_tensor_hook(const Tensor& t, uint64_t id);
TG_API uint64_t add_post_accumulate_hook(const Tensor& leaf, std::function<void(const Tensor&)> hook);
TG_API void remove_post_accumulate_hook(const Tensor& leaf, uint64_t id);

}  // namespace tapegrad::autograd
