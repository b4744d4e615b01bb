#include "tapegrad/autograd/engine/accumulate.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/aten/tensor_kind.h"

namespace tapegrad::autograd {

AccumulateGrad::AccumulateGrad(const Tensor& leaf, uint32_t at) : variable(leaf) {
  site = at;
  is_accumulator = true;
  outputs.emplace_back(leaf);
}

void AccumulateGrad::renew(const Tensor& leaf, uint32_t at) {
  if (!outputs[0].matches(leaf)) outputs[0] = OutputMeta(leaf);
  variable = leaf;
  sequence = ++detail::node_sequence;
  site = at;
}

bool owned_alone(const Tensor& t) noexcept {
  const TensorImpl& impl = *t.impl();
  if (impl.use_count() != 1 || impl.weak_count() != 0 || impl.python_object() != nullptr) return false;
  const StorageImpl& storage = *impl.storage();
  if (!storage.resizable() || storage.read_only()) return false;
  uint32_t owners = storage.use_count();
  if (owners == 1) return true;
  // A reshaped gradient is a view of a tensor that only the view itself keeps.
  ViewMeta* view = view_meta(t);
  return owners == 2 && view && view->base.ptr().use_count() == 1 && view->base.impl()->python_object() == nullptr;
}

namespace {

// The kind of a tensor that ordinary operators do not add; else null.
const TensorKind* summed_kind(const Tensor& t) noexcept {
  const TensorKind* kind = t.defined() ? kind_of(t) : nullptr;
  return TG_UNLIKELY(kind != nullptr) && kind->sum != nullptr ? kind : nullptr;
}
const TensorKind* summed_kind(const Tensor& a, const Tensor& b) noexcept {
  const TensorKind* kind = summed_kind(a);
  return kind != nullptr ? kind : summed_kind(b);
}

}  // namespace

Tensor conform(Tensor grad, const OutputMeta& expected, const Node& node, size_t index) {
  const IntSpan sizes = expected.sizes;
  if (const TensorKind* kind = summed_kind(grad);
      kind && grad.sizes() == sizes && grad.dtype() == expected.dtype && expected.device == kind->device(grad))
    return grad;
  auto invalid = [&](const std::string& what) {
    TG_THROW(Runtime, "{}: Function {} returned an invalid gradient at index {} - {}{}", operator_of(node), node.name(),
             index, what, node.site ? "\nthe forward call is" + at_site(node.site) : "");
  };
  if (!grad.is_batched() && !expected.device.is_batched() && grad.device() != expected.device && grad.ndim() > 0)
    invalid(fmt::format("expected device {} but got {}", expected.device, grad.device()));
  const IntSpan got = grad.sizes();
  bool fits = sizes.size() <= got.size();
  for (size_t i = 1; fits && i <= sizes.size(); ++i) {
    const int64_t wanted = sizes[sizes.size() - i];
    fits = wanted == 1 || wanted == got[got.size() - i];
  }
  if (!fits) invalid(fmt::format("got {} but expected shape compatible with {}", format_ints(got), format_ints(sizes)));
  return reduce_to_slow(grad, expected);
}

void add_gradient(Tensor& sum, Tensor&& grad, bool reuse) {
  if (!sum.defined()) {
    sum = std::move(grad);
    return;
  }
  if (const TensorKind* kind = summed_kind(sum, grad)) {
    sum = kind->sum(sum, grad);
    return;
  }
  auto writable = [](const Tensor& t, const Tensor& other) {
    return t.dtype() == other.dtype() && t.sizes() == other.sizes() && owned_alone(t) &&
           t.impl()->is_non_overlapping_and_dense();
  };
  if (reuse && writable(sum, grad))
    raw::add_(sum, grad);
  else if (reuse && writable(grad, sum))
    sum = raw::add_(grad, sum);
  else
    sum = tapegrad::add(sum, grad);
}

namespace {

// A leaf's first gradient has the leaf's layout when that is dense, so that optimizers walk both alike.
bool has_layout_of(const Tensor& grad, const Tensor& leaf) {
  if (leaf.impl()->is_non_overlapping_and_dense()) {
    for (int d = 0; d < leaf.ndim(); ++d)
      if (leaf.impl()->size(d) != 1 && leaf.impl()->stride(d) != grad.impl()->stride(d)) return false;
    return true;
  }
  return grad.is_contiguous();
}

Tensor copy_in_layout_of(const Tensor& leaf, const Tensor& grad) {
  TensorSpec spec{grad.sizes(), grad.dtype(), grad.device(), {}};
  if (leaf.impl()->is_non_overlapping_and_dense()) spec.strides = leaf.strides();
  Tensor copy = empty_tensor(spec);
  tapegrad::copy_(copy, grad);  // on the tape when gradients of gradients are wanted
  return copy;
}

// A gradient of that kind whose values are not shared.
Tensor with_own_values(const Tensor& grad, const TensorKind& kind) {
  const Tensor& values = kind.values(grad);
  if (grad.impl()->use_count() == 1 && owned_alone(values)) return kind.detach(grad);
  return kind.with_values(grad, tapegrad::clone(values));
}

void accumulate(const Tensor& leaf, Tensor&& grad) {
  AutogradMeta& m = ensure_meta(leaf);
  const bool recording = grad_enabled();
  Tensor old;  // dropped after the lock: its end may run code of the program
  std::lock_guard lock(grad_mutex(*leaf.impl()));
  if (const TensorKind* kind = summed_kind(grad, m.grad)) {
    // Never into the old one in place: it may be the gradient of another leaf, too.
    old = std::exchange(m.grad, m.grad.defined() ? kind->sum(m.grad, grad) : with_own_values(grad, *kind));
  } else if (!m.grad.defined()) {
    if (!recording && owned_alone(grad) && has_layout_of(grad, leaf) && grad.dtype() == leaf.dtype()) {
      grad.impl()->set_needs_grad(false);
      grad.impl()->set_autograd(nullptr);
      m.grad = std::move(grad);
    } else {
      m.grad = copy_in_layout_of(leaf, grad);
    }
    record::note_new_gradient(leaf, m.grad, false);
  } else if (!recording) {
    record::note_known_gradient(leaf, m.grad);
    raw::add_(m.grad, grad);
    bump_version(m.grad, "AccumulateGrad");
  } else {
    record::note_known_gradient(leaf, m.grad);
    old = std::exchange(m.grad, tapegrad::add(m.grad, grad));
    record::note_new_gradient(leaf, m.grad, true);
  }
}

}  // namespace

GradList AccumulateGrad::apply(GradList grads) {
  if (!grads[0].defined()) return {};
  TG_CHECK(!grads[0].is_batched() || variable.is_batched(), Runtime,
           "backward: inside vmap, the gradients of samples cannot be added up in a tensor that is the same for all\n"
           "use func.grad or autograd.grad, which return them");
  if (!needs_grad(variable)) return {};  // the wish was taken back after the forward pass
  accumulate(variable, std::move(grads[0]));
  if (LeafHooks* h = meta(variable)->hooks.get(); h && !h->post_accumulate.empty()) {
    auto hooks = h->post_accumulate;  // a hook may remove itself
    for (auto& [id, hook] : hooks) hook(variable);
  }
  return {};
}

}  // namespace tapegrad::autograd
