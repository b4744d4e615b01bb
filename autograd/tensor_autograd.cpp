// The autograd methods of Tensor (aten/tensor.h).
#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/autograd/engine.h"
#include "tapegrad/autograd/meta.h"

namespace tapegrad {

using autograd::ensure_meta;
using autograd::meta;

const Tensor& Tensor::set_requires_grad(bool value) const {
  autograd::ViewMeta* view = autograd::view_meta(*this);
  if (value == impl_->needs_grad() && (value ? !view || view->requires_grad || !is_leaf() : is_leaf())) return *this;
  if (!is_leaf()) {
    TG_THROW(Runtime, "requires_grad_: you can only change requires_grad flags of leaf variables\n{}",
             value ? "hint: the result of a recorded operator requires grad already"
                   : "hint: use detach() for a tensor that the tape does not know");
  }
  TG_CHECK(
      !is_sparse() || !value, NotImplemented,
      "requires_grad_: a sparse tensor is no leaf of the tape\nlet the values that it is made of require a gradient");
  if (view) view->requires_grad = value;
  if (!value) {
    if (view)
      impl_->set_needs_grad_of_view();
    else
      impl_->set_needs_grad(false);
    return *this;
  }
  TG_CHECK(is_differentiable(dtype()), Runtime,
           "requires_grad_: only Tensors of floating point and complex dtype can require gradients: got {}", dtype());
  TG_CHECK(!impl_->is_inference() || (modes() & kModeInference), Runtime,
           "requires_grad_: Setting requires_grad=True on inference tensor outside InferenceMode is not allowed");
  ensure_meta(*this);
  impl_->set_needs_grad(true);
  return *this;
}

bool Tensor::is_leaf() const noexcept {
  const auto* m = meta(*this);
  if (m == nullptr) return true;
  if (m->is_view && static_cast<const autograd::ViewMeta*>(m)->stale()) return false;
  return !m->grad_fn;
}

Tensor Tensor::grad() const {
  const auto* m = meta(*this);
  return m ? m->grad : Tensor();
}

void Tensor::set_grad(const Tensor& grad) const {
  if (!grad.defined()) {
    if (auto* m = meta(*this)) m->grad.reset();
    return;
  }
  TG_CHECK(!grad.is_same(*this), Runtime, "grad: a tensor cannot be its own gradient");
  TG_CHECK(grad.sizes() == sizes(), Runtime, "grad: the gradient must have the tensor's shape {}: got {}",
           format_ints(sizes()), format_ints(grad.sizes()));
  TG_CHECK(grad.dtype() == dtype(), Runtime, "grad: the gradient must have the tensor's dtype {}: got {}", dtype(),
           grad.dtype());
  const Device have = sparse::device(grad);
  TG_CHECK(have == device() || (!grad.is_batched() && is_batched()), Runtime,
           "grad: the gradient must be on the tensor's device {}: got {}", device(), have);
  ensure_meta(*this).grad = grad;
}

intrusive_ptr<autograd::Node> Tensor::grad_fn() const { return autograd::grad_fn_of(*this); }

void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  autograd::run_backward(TensorSpan(this, 1), TensorSpan(&gradient, 1), {},
                         {.retain_graph = retain_graph || create_graph, .create_graph = create_graph});
}

void Tensor::retain_grad() const {
  TG_CHECK(autograd::needs_grad(*this), Runtime,
           "retain_grad: can't retain_grad on Tensor that has requires_grad=False");
  auto node = autograd::grad_fn_of(*this);
  auto& m = ensure_meta(*this);
  if (!node || m.retains_grad) return;
  // The node must not own the tensor that owns it.
  auto keep = [weak = weak_intrusive_ptr<TensorImpl>(impl_)](const Tensor& grad) -> Tensor {
    if (auto impl = weak.lock()) {
      auto& own = *static_cast<autograd::AutogradMeta*>(impl->autograd());
      own.grad = own.grad.defined() ? tapegrad::add(own.grad, grad) : tapegrad::clone(grad);
    }
    return {};
  };
  node->ensure_hooks().retain.push_back({0, m.output, std::move(keep)});
  m.retains_grad = true;
}

Tensor Tensor::detach() const {
  if (is_sparse()) return sparse::alias(*this);
  if (is_batched()) return batch::detach(*this);
  return alias_tensor(*this, sizes(), strides(), storage_offset());
}

Tensor Tensor::data_alias() const {
  Tensor t = detach();
  t.impl()->detach_version();
  return t;
}

}  // namespace tapegrad
