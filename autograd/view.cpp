#include "tapegrad/autograd/view.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/engine/accumulate.h"
#include "tapegrad/autograd/fill_inplace.h"
#include "tapegrad/autograd/formulas/rearrange/view.h"
#include "tapegrad/autograd/saved_tensor.h"

namespace tapegrad::autograd {

bool ViewMeta::stale() const noexcept {
  const AutogradMeta* b = meta(base);
  return b != nullptr && b->grad_fn && b->grad_fn.get() != base_fn;
}

namespace {

// "Unbind" for UnbindBackward0, as PyTorch's messages name nodes.
std::string bare_name(const Node& node) {
  const std::string name = node.name();
  return name.substr(0, name.rfind("Backward"));
}

// Whether writes through this view, or to its base, can be recorded; else raises with the reason. `indirect`: the base
// or another view of it was written to.
void check_origin(const ViewMeta& m, const char* op, bool indirect) {
  if (m.origin == ViewOrigin::Ordinary) return;
  const char* written =
      indirect ? "its base or another view of its base has been modified inplace" : "is being modified inplace";
  switch (m.origin) {
    case ViewOrigin::NoGrad:
    case ViewOrigin::Inference: {
      const bool no_grad = m.origin == ViewOrigin::NoGrad;
      const char* block = no_grad ? "no_grad" : "inference_mode";
      const std::string what =
          m.grad_fn ? fmt::format("Output {} of {} is a view of a view which was", m.output, bare_name(*m.grad_fn))
                    : "A view was";
      TG_THROW(Runtime,
               "{}: {} created in {} mode and {} {}. This is ambiguous and therefore refused: move both the view and "
               "the write inside the {} block (not recorded), or both outside (recorded)",
               op, what, no_grad ? "no_grad" : "inference", written,
               no_grad ? "with grad mode enabled" : "in normal mode", block);
    }
    case ViewOrigin::MultiOutput:
      TG_THROW(Runtime,
               "{}: Output {} of {} is a view and {}. This view is the output of a function that returns multiple "
               "views. Such functions do not allow the output views to be modified inplace: use the out-of-place form",
               op, m.output, m.grad_fn ? bare_name(*m.grad_fn) : "a function", written);
    default:
      TG_THROW(Runtime,
               "{}: Output {} of {} is a view and {}. This view was created inside a custom Function (or because an "
               "input was returned as-is): the Function's gradient would be wrong. Clone the output first",
               op, m.output, m.grad_fn ? bare_name(*m.grad_fn) : "a custom Function", written);
  }
}

// A tensor that retains its gradient does so at its newest node.
void move_retain_hooks(const AutogradMeta& m, Node& to, uint32_t output) {
  if (!m.retains_grad || !m.grad_fn || !m.grad_fn->hooks) return;
  auto& from = m.grad_fn->hooks->retain;
  for (auto it = from.begin(); it != from.end();) {
    if (it->output == m.output) {
      to.ensure_hooks().retain.push_back({it->id, output, std::move(it->hook)});
      it = from.erase(it);
    } else {
      ++it;
    }
  }
}

void set_gradient_edge(const Tensor& t, intrusive_ptr<Node> node, uint32_t output) {
  AutogradMeta& m = ensure_meta(t);
  move_retain_hooks(m, *node, output);
  m.grad_fn = std::move(node);
  m.output = output;
  t.impl()->set_needs_grad(true);
}

bool same_geometry(const Geometry& a, const Geometry& b) {
  return a.offset == b.offset && a.dtype == b.dtype && a.sizes == b.sizes && a.strides == b.strides;
}

// The part of a base's gradient that a view covers, as a view of `buffer`, which has the base's layout.
Tensor part_of(const Tensor& buffer, const Geometry& base, const Geometry& view) {
  if (view.dtype == base.dtype) {
    return tapegrad::as_strided(buffer, view.sizes, view.strides, view.offset - base.offset);
  }
  // A view that reads the bytes as another dtype (real parts of complex numbers): offsets count its elements.
  TG_CHECK(!grad_enabled(), NotImplemented,
           "backward: gradients of gradients through a write to a view of another dtype than its base are not "
           "available");
  int64_t offset = view.offset - base.offset * static_cast<int64_t>(element_size(base.dtype)) /
                                     static_cast<int64_t>(element_size(view.dtype));
  return Tensor(make_intrusive<TensorImpl>(buffer.impl()->storage(), view.dtype, view.sizes, view.strides, offset));
}

// New memory with the layout of a base.
Tensor buffer_like(const Geometry& base) {
  return empty_tensor(TensorSpec{base.sizes, base.dtype, base.device, base.strides});
}

}  // namespace

void refresh_view(const Tensor& view) {
  ViewMeta& m = *view_meta(view);
  check_origin(m, "grad_fn", true);
  const AutogradMeta& b = *meta(m.base);
  auto node = make_intrusive<AsStridedView>(Edge{b.grad_fn, b.output}, Geometry(m.base), Geometry(view));
  set_gradient_edge(view, std::move(node), 0);
  m.base_fn = b.grad_fn.get();
}

void set_view(const Tensor& view, const Tensor& base, intrusive_ptr<Node> node, bool multi_output) {
  TensorImpl* impl = view.impl();
  if (TG_UNLIKELY(base.impl()->is_inference())) return;
  auto m = std::make_unique_for_overwrite<ViewMeta>();
  ViewMeta* parent = view_meta(base);
  m->is_view = true;
  m->base = parent ? parent->base : base;
  if (const AutogradMeta* b = meta(m->base)) m->base_fn = b->grad_fn.get();
  if (TG_UNLIKELY((modes() & kModeGradMask) != 0))
    m->origin = modes() & kModeInference ? ViewOrigin::Inference : ViewOrigin::NoGrad;
  else if (multi_output)
    m->origin = ViewOrigin::MultiOutput;
  else if (parent)
    m->origin = parent->origin;
  if (node && is_differentiable(view.dtype())) {
    m->output = static_cast<uint32_t>(node->outputs.size());
    node->outputs.emplace_back(view.sizes(), view.dtype(), view.device());
    m->grad_fn = std::move(node);
    impl->set_needs_grad(true);
  } else {
    if (node) node->outputs.emplace_back(view);
    impl->set_needs_grad_of_view();
  }
  impl->set_autograd(std::move(m));
}

namespace {
void check_written(const Tensor& self, const char* op, bool recording, bool one_value) {
  TG_CHECK(self.defined(), Runtime, "{}: the tensor to write to is undefined", op);
  TG_CHECK(!self.impl()->is_inference() || (modes() & kModeInference), Runtime,
           "{}: Inplace update to inference tensor outside InferenceMode is not allowed\n"
           "hint: clone the tensor to get one that autograd may know",
           op);
  TG_CHECK(one_value || !has_internal_overlap(self), Runtime,
           "{}: unsupported operation: more than one element of the written-to tensor refers to a single memory "
           "location: sizes {}, strides {}\nhint: clone the tensor before writing to it",
           op, format_ints(self.sizes()), format_ints(self.strides()));
  if (!recording) return;
  if (ViewMeta* m = view_meta(self)) {
    check_origin(*m, op, false);
    if (needs_grad(self) && !grad_fn_of(m->base))  // the base, or the view itself, which was made a leaf
      TG_THROW(Runtime,
               "{}: a view of a leaf Variable that requires grad is being used in an in-place operation: "
               "write under no_grad to change a parameter",
               op);
  }
  TG_CHECK(!needs_grad(self) || grad_fn_of(self), Runtime,
           "{}: a leaf Variable that requires grad is being used in an in-place operation: "
           "write under no_grad to change a parameter",
           op);
}
}  // namespace

void check_inplace_slow(const Tensor& self, const char* op, bool recording) {
  check_written(self, op, recording, false);
}

void check_filled(const Tensor& self, const char* op, bool recording) { check_written(self, op, recording, true); }

void turn_view(const Tensor& self, const intrusive_ptr<Node>& node) {
  auto output = static_cast<uint32_t>(node->outputs.size());
  node->outputs.emplace_back(self);
  set_gradient_edge(self, node, output);
}

void rebase_history(const Tensor& self, const intrusive_ptr<Node>& node) {
  ViewMeta* m = view_meta(self);
  if (m == nullptr) return turn_view(self, node);
  node->outputs.emplace_back(self);
  set_gradient_edge(m->base, make_intrusive<CopySlices>(m->base, self, node), 0);
  refresh_view(self);
}

CopySlices::CopySlices(const Tensor& b, const Tensor& v, intrusive_ptr<Node> f) : base(b), view(v), fn(std::move(f)) {
  outputs.emplace_back(b);
  edges.push_back(edge_of(b));
  for (size_t i = 1; i < fn->edges.size(); ++i) edges.push_back(fn->edges[i]);
  fn->copy_slices = this;
  site = fn->site;
}

CopySlices::~CopySlices() { drop_contents(); }

void CopySlices::drop_contents() noexcept {
  if (!fn) return;
  fn->copy_slices = nullptr;
  fn.reset();
}

void CopySlices::release_saved() noexcept {
  SpinGuard guard(fn->locked);
  fn->release_saved();
}

void CopySlices::visit_saved(const SavedVisitor& visit) const { fn->visit_saved(visit); }

Edge CopySlices::view_edge() {
  intrusive_ptr<Node> self(this);
  return {make_intrusive<AsStridedView>(Edge{self, 0}, base, view), 0};
}

GradList CopySlices::apply(GradList grads) {
  Tensor buffer;
  if (grads[0].is_batched() && IntSpan(base.strides) == IntSpan(contiguous_strides(base.sizes))) {
    buffer = tapegrad::clone(grads[0], MemoryFormat::Contiguous);  // of as many samples
  } else {
    buffer = buffer_like(base);
    tapegrad::copy_(buffer, grads[0]);
  }
  Tensor part = part_of(buffer, base, view);
  GradList inner = fn->apply({tapegrad::clone(part)});
  TG_CHECK(inner.size() == fn->edges.size(), Runtime,
           "Function {} returned an incorrect number of gradients (expected {}, got {})", fn->name(), fn->edges.size(),
           inner.size());
  GradList result(edges.size());
  if (needs(0)) {
    const OutputMeta expected(view.sizes, view.dtype, view.device);
    if (!inner.empty() && inner[0].defined())
      tapegrad::copy_(part, expected.matches(inner[0]) ? inner[0] : conform(inner[0], expected, *fn, 0));
    else
      tapegrad::fill_(part, 0);
    result[0] = std::move(buffer);
  }
  for (size_t i = 1; i < inner.size(); ++i) result[i] = std::move(inner[i]);
  return result;
}

AsStridedView::AsStridedView(Edge base_edge, const Geometry& b, const Geometry& v) : base(b), view(v) {
  edges.push_back(std::move(base_edge));
  outputs.emplace_back(v.sizes, v.dtype, v.device);
}

GradList AsStridedView::apply(GradList grads) {
  Tensor& grad = grads[0];
  if (same_geometry(base, view)) return {std::move(grad)};
  if (view.dtype != base.dtype) {
    Tensor buffer = buffer_like(base);
    tapegrad::fill_(buffer, 0);
    tapegrad::copy_(part_of(buffer, base, view), grad);
    return {buffer};
  }
  return {as_strided_grad(grad, base.sizes, base.strides, base.offset, view.sizes, view.strides, view.offset)};
}

}  // namespace tapegrad::autograd
