// The methods of Tensor that the tape keeps (aten/autograd_interface.h).
#include "tapegrad/aten/autograd_interface.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/aten/tensor_kind.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/autograd/meta.h"

namespace tapegrad::autograd {
namespace {

// The values of a sparse tensor are what the tape knows of it.
const Tensor* taped_values(const Tensor& t) { return t.is_sparse() ? &kind_of(t)->values(t) : nullptr; }

struct Tape final : AutogradInterface {
  void set_requires_grad(const Tensor& t, bool value) const override {
    if (const Tensor* values = taped_values(t)) return set_requires_grad(*values, value);
    ViewMeta* view = view_meta(t);
    TensorImpl& impl = *t.impl();
    if (value == impl.needs_grad() && (value ? !view || view->requires_grad || !t.is_leaf() : t.is_leaf())) return;
    if (!t.is_leaf()) {
      TG_THROW(Runtime, "requires_grad_: you can only change requires_grad flags of leaf variables\n{}",
               value ? "hint: the result of a recorded operator requires grad already"
                     : "hint: use detach() for a tensor that the tape does not know");
    }
    if (view) view->requires_grad = value;
    if (!value) {
      if (view)
        impl.set_needs_grad_of_view();
      else
        impl.set_needs_grad(false);
      return;
    }
    TG_CHECK(is_differentiable(t.dtype()), Runtime,
             "requires_grad_: Only Tensors of floating point and complex dtype can require gradients: got {}",
             t.dtype());
    TG_CHECK(!impl.is_inference() || (modes() & kModeInference), Runtime,
             "requires_grad_: Setting requires_grad=True on inference tensor outside InferenceMode is not allowed");
    ensure_meta(t);
    impl.set_needs_grad(true);
  }

  bool is_leaf(const Tensor& t) const noexcept override {
    if (const Tensor* values = taped_values(t)) return is_leaf(*values);
    const AutogradMeta* m = meta(t);
    if (m == nullptr) return true;
    if (m->is_view && static_cast<const ViewMeta*>(m)->stale()) return false;
    return !m->grad_fn;
  }

  Tensor grad(const Tensor& t) const override {
    const AutogradMeta* m = meta(t);
    if (m && m->grad.defined()) return m->grad;
    const Tensor* values = taped_values(t);
    const Tensor of_values = values ? grad(*values) : Tensor();
    return of_values.defined() ? kind_of(t)->with_values(t, of_values) : Tensor();
  }

  void set_grad(const Tensor& t, const Tensor& grad) const override {
    if (!grad.defined()) {
      if (AutogradMeta* m = meta(t)) m->grad.reset();
      if (const Tensor* values = taped_values(t)) set_grad(*values, grad);
      record::note_new_gradient(t, grad, true);
      return;
    }
    TG_CHECK(!grad.is_same(t), Runtime, "grad: a tensor cannot be its own gradient");
    TG_CHECK(grad.sizes() == t.sizes(), Runtime, "grad: the gradient must have the tensor's shape {}: got {}",
             format_ints(t.sizes()), format_ints(grad.sizes()));
    TG_CHECK(grad.dtype() == t.dtype(), Runtime, "grad: the gradient must have the tensor's dtype {}: got {}",
             t.dtype(), grad.dtype());
    const Device have = device_among_dense(grad), wanted = device_among_dense(t);
    TG_CHECK(have == wanted || (!grad.is_batched() && t.is_batched()), Runtime,
             "grad: the gradient must be on the tensor's device {}: got {}", wanted, have);
    ensure_meta(t).grad = grad;
    record::note_new_gradient(t, grad, true);
  }

  void retain_grad(const Tensor& t) const override {
    if (const Tensor* values = taped_values(t)) return retain_grad(*values);
    TG_CHECK(needs_grad(t), Runtime, "retain_grad: can't retain_grad on Tensor that has requires_grad=False");
    auto node = grad_fn_of(t);
    AutogradMeta& m = ensure_meta(t);
    if (!node || m.retains_grad) return;
    // The node must not own the tensor that owns it.
    auto keep = [weak = weak_intrusive_ptr<TensorImpl>(t.ptr())](const Tensor& grad) -> Tensor {
      if (auto impl = weak.lock(); impl && grad.defined()) {
        auto& own = *static_cast<AutogradMeta*>(impl->autograd());
        own.grad = own.grad.defined() ? tapegrad::add(own.grad, grad) : tapegrad::clone(grad);
      }
      return {};
    };
    node->ensure_hooks().retain.push_back({0, m.output, std::move(keep)});
    m.retains_grad = true;
  }

  void backward(const Tensor& t, const Tensor& gradient, bool retain_graph, bool create_graph) const override {
    run_backward(TensorSpan(&t, 1), TensorSpan(&gradient, 1), {},
                 {.retain_graph = retain_graph || create_graph, .create_graph = create_graph});
  }
};

[[maybe_unused]] const bool registered = [] {
  static constinit const Tape tape;
  set_autograd_interface(&tape);
  return true;
}();

}  // namespace
}  // namespace tapegrad::autograd
