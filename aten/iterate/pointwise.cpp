#include "tapegrad/aten/iterate/pointwise.h"

#include <algorithm>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/iterate/layout.h"
#include "tapegrad/aten/iterate/number.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/iterate/promotion.h"
#include "tapegrad/aten/record/recorder.h"

namespace tapegrad::pointwise {
namespace {

using Inputs = std::span<const Tensor* const>;

struct Types {
  DType compute;   // as kernels see it: never a 16-bit format, nor one that is only stored
  DType returned;  // what the functor returns
  DType result;    // of a fresh output
};

[[noreturn]] TG_COLD void throw_no_dtype(const Op& op, DType dtype) {
  TG_THROW(NotImplemented, "{}: not implemented for dtype {}", op.name, dtype);
}

[[noreturn]] TG_COLD void throw_devices(const Op& op, Device a, Device b) {
  TG_THROW(Runtime, "{}: expected all tensors on one device: got {} and {}", op.name, a, b);
}

DType common_dtype(Promotion rule, Inputs inputs) {
  if (rule == Promotion::PromoteRest) inputs = inputs.subspan(1);
  DType common = inputs[0]->dtype();
  if (rule != Promotion::KeepFirst) {
    bool same = !inputs[0]->is_wrapped_number();
    for (size_t i = 1; i < inputs.size(); ++i) same &= inputs[i]->dtype() == common && !inputs[i]->is_wrapped_number();
    if (!same) {
      PromotionState state;
      for (const Tensor* t : inputs) state.add(*t);
      common = state.result();
    }
    if (rule == Promotion::Float && !is_differentiable(common)) common = default_dtype();
  } else if (inputs[0]->is_wrapped_number() && is_differentiable(common)) {
    common = is_complex(common) ? to_complex(default_dtype()) : default_dtype();
  }
  return common;
}

// Numbers as elements: parameters as kernels see them, operands as PyTorch does, whose `where` alone rounds to 16 bits.
void check_numbers(const Op& op, Inputs inputs, std::span<const Scalar> params, DType common) {
  const DType compute = compute_dtype(common);
  if (op.fit_parameters)
    for (const Scalar& s : params) check_number(op.name, s, compute);
  if (!op.fit_operands) return;
  for (const Tensor* t : inputs)
    if (t->is_wrapped_number())
      check_number(op.name, t->item(),
                   op.promotion == Promotion::PromoteRest && is_half(common) ? DType::float64 : common);
}

Types types_for(const Op& op, Inputs inputs, std::span<const Scalar> params, DType common) {
  DType compute = compute_dtype(common);
  if (TG_UNLIKELY(((op.dtypes >> static_cast<int>(compute)) & 1) == 0)) throw_no_dtype(op, common);
  if (op.fit_parameters || op.fit_operands) check_numbers(op, inputs, params, common);
  compute = bits_dtype(compute);
  switch (op.result) {
    case Result::Bool:
      return {compute, DType::bool_, DType::bool_};
    case Result::Real:
      return {compute, to_real(compute), to_real(common)};
    default:
      return {compute, compute, common};
  }
}

// A CPU tensor of one element and no dimensions may stand beside tensors of any device.
bool is_host_scalar(const Tensor& t) { return t.ndim() == 0 && t.is_cpu(); }

Device common_device(const Op& op, Inputs inputs) {
  const Tensor* reference = inputs[0];
  for (const Tensor* t : inputs)
    if (!is_host_scalar(*t)) {
      reference = t;
      break;
    }
  const Device device = reference->device();
  for (const Tensor* t : inputs)
    if (TG_UNLIKELY(t->device() != device && !is_host_scalar(*t))) throw_devices(op, device, t->device());
  return device;
}

void fill_parameters(Iterator& it, std::span<const Scalar> params) {
  for (size_t i = 0; i < params.size(); ++i) it.params[i] = params[i];
}

void run_kernel(const Op& op, Iterator& it, const Tensor& target, Inputs inputs) {
  if (it.numel == 0 || it.device.is_meta()) return;
  // Operands of a dtype that is only stored are seen as those of the dtype with its bits.
  for (int i = 0; i <= it.num_inputs; ++i)
    if (bits_dtype(it.dtype[i]) == it.compute) it.dtype[i] = it.compute;
  const auto kernel = kernel_for<Kernel>(*op.entry, it.device);
  if (TG_UNLIKELY(record::active())) return record::pointwise_call(*op.entry, kernel, it, target, inputs);
  kernel(it);
}

// The fast case without analysis of dimensions: all operands are contiguous with the shape of the first one that has
// dimensions, or zero-dimensional. Returns the operand with the shape, or null.
const Tensor* simple_shape(Inputs inputs) {
  const Tensor* reference = inputs[0];
  if (reference->ndim() == 0)
    for (const Tensor* t : inputs)
      if (t->ndim() > 0) {
        reference = t;
        break;
      }
  if (!reference->is_contiguous()) return nullptr;
  for (const Tensor* t : inputs) {
    if (t == reference || t->ndim() == 0) continue;
    if (!t->is_contiguous() || !(t->sizes() == reference->sizes())) return nullptr;
  }
  return reference;
}

// Whether the target may be written directly: it is the same tensor as an input, or shares no memory with any of them.
bool simple_target(const Tensor& out, const Tensor& reference, Inputs inputs) {
  if (!out.is_contiguous() || !(out.sizes() == reference.sizes())) return false;
  if (out.impl()->storage()->read_only()) return false;
  for (const Tensor* t : inputs) {
    if (t->impl() == out.impl() || t->impl()->storage() != out.impl()->storage()) continue;
    return false;
  }
  return true;
}

// The iteration over contiguous operands and scalars, all of it in one dimension.
void fill_flat(Iterator& it, const Types& types, const Tensor& out, Inputs inputs, Device device) {
  it.ndim = 1;
  it.num_inputs = static_cast<int>(inputs.size());
  it.compute = types.compute;
  it.result = types.returned;
  it.numel = out.numel();
  it.shape[0] = it.numel;
  it.device = device;
  it.data[0] = static_cast<char*>(out.data_ptr());
  it.dtype[0] = out.dtype();
  it.strides[0][0] = static_cast<int64_t>(element_size(out.dtype()));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& t = *inputs[i];
    it.data[i + 1] = static_cast<char*>(t.data_ptr());
    it.dtype[i + 1] = t.dtype();
    it.strides[i + 1][0] = t.ndim() == 0 && t.numel() != it.numel ? 0 : static_cast<int64_t>(t.itemsize());
    if (t.device() != device) it.on_host |= static_cast<uint8_t>(2u << i);
  }
}

// Whether the result is one of a 16-bit dtype before it is written to `out`: kernels hold more digits, which an `out`
// of a wider dtype must not show. Likewise one that is only stored: kernels hold other numbers of the same bits.
bool is_rounded_first(const Types& types, const Tensor& out) {
  return types.result != out.dtype() && (is_half(types.result) || is_stored_only(types.result));
}

// The general case: any strides, any broadcasting.
void fill_strided(Iterator& it, const Types& types, const Layout& layout, const Tensor& out, Inputs inputs,
                  Device device) {
  it.num_inputs = static_cast<int>(inputs.size());
  it.compute = types.compute;
  it.result = types.returned;
  it.device = device;
  const Tensor* operands[1 + kMaxInputs] = {&out};
  std::copy(inputs.begin(), inputs.end(), operands + 1);
  const int count = 1 + it.num_inputs;
  int64_t* strides[1 + kMaxInputs];
  for (int k = 0; k < count; ++k) {
    it.data[k] = static_cast<char*>(operands[k]->data_ptr());
    it.dtype[k] = operands[k]->dtype();
    strides[k] = it.strides[k];
    if (operands[k]->device() != device) it.on_host |= static_cast<uint8_t>(1u << k);
  }
  it.ndim = iteration_space({operands, static_cast<size_t>(count)}, layout.sizes, it.shape, strides);
  it.numel = 1;
  for (int d = 0; d < it.ndim; ++d) it.numel *= it.shape[d];
}

TG_NOINLINE Tensor run_general(const Op& op, Inputs inputs, std::span<const Scalar> params, const Tensor& out,
                               bool resize_out) {
  const Device device = common_device(op, inputs);
  const Types types = types_for(op, inputs, params, common_dtype(op.promotion, inputs));
  const Layout layout = broadcast_layout(inputs, op.name, !out.defined());
  Tensor target = out;
  Tensor copies[kMaxInputs];
  const Tensor* sources[kMaxInputs];
  std::copy(inputs.begin(), inputs.end(), sources);
  if (out.defined()) {
    if (TG_UNLIKELY(out.device() != device)) throw_devices(op, device, out.device());
    check_target(op.name, out, layout.sizes, types.result, resize_out);
    for (size_t i = 0; i < inputs.size(); ++i)
      if (must_copy_source(op.name, out, *inputs[i])) {
        copies[i] = contiguous_copy(*inputs[i]);
        sources[i] = &copies[i];
      }
    resize_output(out, layout.sizes);
  }
  if (!out.defined() || is_rounded_first(types, out)) {
    target = empty_tensor(TensorSpec{layout.sizes, types.result, device, layout.strides});
  }
  Iterator it;
  fill_parameters(it, params);
  fill_strided(it, types, layout, target, {sources, inputs.size()}, device);
  run_kernel(op, it, target, {sources, inputs.size()});
  if (out.defined() && !out.is_same(target)) raw::copy_(out, target);
  return out.defined() ? out : target;
}

// The most usual case: dense operands of one shape, dtype and device, none of them a number, and a fresh result.
bool are_alike(Inputs inputs) {
  const TensorImpl& first = *inputs[0]->impl();
  bool alike = first.is_contiguous() && !first.is_wrapped_number();
  for (size_t i = 1; alike && i < inputs.size(); ++i) {
    const TensorImpl& t = *inputs[i]->impl();
    alike = t.is_contiguous() && t.dtype() == first.dtype() && t.device() == first.device() && !t.is_wrapped_number() &&
            t.sizes() == first.sizes();
  }
  return alike;
}

Tensor run_alike(const Op& op, Inputs inputs, std::span<const Scalar> params) {
  const TensorImpl& first = *inputs[0]->impl();
  const DType dtype = first.dtype();
  const bool lifted = op.promotion == Promotion::Float && !is_differentiable(dtype);
  const Types types = types_for(op, inputs, params, lifted ? default_dtype() : dtype);
  Tensor target = empty_tensor(first.sizes(), types.result, first.device());
  Iterator it;
  fill_parameters(it, params);
  it.ndim = 1;
  it.num_inputs = static_cast<int>(inputs.size());
  it.compute = types.compute;
  it.result = types.returned;
  it.numel = it.shape[0] = first.numel();
  it.device = first.device();
  it.data[0] = static_cast<char*>(target.data_ptr());
  it.dtype[0] = types.result;
  it.strides[0][0] = static_cast<int64_t>(element_size(types.result));
  for (size_t i = 0; i < inputs.size(); ++i) {
    it.data[i + 1] = static_cast<char*>(inputs[i]->data_ptr());
    it.dtype[i + 1] = dtype;
    it.strides[i + 1][0] = static_cast<int64_t>(element_size(dtype));
  }
  run_kernel(op, it, target, inputs);
  return target;
}

}  // namespace

Tensor run(const Op& op, Inputs inputs, std::span<const Scalar> params, const Tensor& out, bool resize_out) {
  if (TG_LIKELY(!out.defined()) && are_alike(inputs)) return run_alike(op, inputs, params);
  const Tensor* reference = simple_shape(inputs);
  if (TG_UNLIKELY(reference == nullptr)) return run_general(op, inputs, params, out, resize_out);
  const Device device = reference->device();
  for (const Tensor* t : inputs)
    if (TG_UNLIKELY(t->device() != device && !is_host_scalar(*t)))
      return run_general(op, inputs, params, out, resize_out);
  if (out.defined() && (!simple_target(out, *reference, inputs) || out.device() != device))
    return run_general(op, inputs, params, out, resize_out);
  const Types types = types_for(op, inputs, params, common_dtype(op.promotion, inputs));
  Tensor target = out;
  if (!out.defined())
    target = empty_tensor(reference->sizes(), types.result, device);
  else if (TG_UNLIKELY(is_rounded_first(types, out)))
    return run_general(op, inputs, params, out, resize_out);
  else if (TG_UNLIKELY(!can_cast(types.result, out.dtype())))
    throw_cannot_cast(op.name, types.result, out.dtype());
  Iterator it;
  fill_parameters(it, params);
  fill_flat(it, types, target, inputs, device);
  run_kernel(op, it, target, inputs);
  return target;
}

DType promoted_dtype(Promotion rule, Inputs inputs) { return common_dtype(rule, inputs); }

}  // namespace tapegrad::pointwise
