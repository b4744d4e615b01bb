// Views on the tape: how the history of a view is recreated after a write to its base, and how a write to a view
// becomes part of the history of its base. The rules are PyTorch's.
//
// Note "Views and their base". Every view refers to its base. A recorded in-place write to a view makes a CopySlices
// node the base's new history: it copies the part of the gradient that the view covers, runs the written operator's own
// node on it, and puts the result back. All views (the written one included) detect at their next use that the base's
// node has changed, and get an AsStrided node of the base as their new history. A write to the base itself is detected
// in the same way.
#pragma once

#include "tapegrad/autograd/meta.h"

namespace tapegrad::autograd {

struct Geometry {
  DimVector sizes;
  DimVector strides;
  int64_t offset = 0;
  DType dtype = DType::float32;
  Device device;

  Geometry() = default;
  explicit Geometry(const Tensor& t)
      : sizes(t.sizes()), strides(t.strides()), offset(t.storage_offset()), dtype(t.dtype()), device(t.device()) {}
};

// A stale view's node, made from its base's.
TG_API void refresh_view(const Tensor& view);

// The history of a base after an in-place write to a view of it. Owns the node of the operator that wrote.
struct TG_API CopySlices final : Node {
  CopySlices(const Tensor& base, const Tensor& view, intrusive_ptr<Node> fn);
  ~CopySlices() override;
  const char* name() const override { return "CopySlices"; }
  GradList apply(GradList grads) override;
  void release_saved() noexcept override;
  void drop_contents() noexcept override;
  void visit_saved(const SavedVisitor& visit) const override;
  // The written tensor with its current place on the tape: for second derivatives.
  Edge view_edge();

  Geometry base;
  Geometry view;
  intrusive_ptr<Node> fn;
};

// The history of a view whose base was written to.
struct AsStridedView final : Node {
  AsStridedView(Edge base_edge, const Geometry& base, const Geometry& view);
  const char* name() const override { return "AsStridedBackward0"; }
  GradList apply(GradList grads) override;

  Geometry base;
  Geometry view;
};

}  // namespace tapegrad::autograd
