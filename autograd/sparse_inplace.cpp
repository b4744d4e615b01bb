// In-place operators with sparse operands.
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/sparse/operators.h"
#include "tapegrad/aten/sparse/products.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/autograd/generated_support.h"

namespace tapegrad::sparse {
namespace {

// self += alpha * b of a dense tensor and a sparse one.
const Tensor& take_in(const char* op, const Tensor& self, const Tensor& b, const Scalar& alpha) {
  TG_CHECK(b.is_sparse() && !self.is_sparse(), NotImplemented,
           "{}: a sparse tensor cannot be written to by another tensor\nuse the operator that gives a new one", op);
  const bool recording = grad_enabled() && (autograd::needs_grad(self) || autograd::needs_grad(values(b)));
  autograd::check_inplace(self, op, recording);
  TG_CHECK(!recording, NotImplemented, "{}: not recorded where the operand is sparse\nuse dense + sparse", op);
  TG_CHECK(can_cast(b.dtype(), self.dtype()), Runtime, "{}: a result of dtype {} cannot be cast to {}", op, b.dtype(),
           self.dtype());
  if (self.is_contiguous())
    add_to_(self, b, alpha);
  else
    raw::add_(self, to_dense(b), alpha);
  autograd::bump_version(self, op);
  return self;
}

// Makes `out` what the result is, in out's form and dtype.
void set_entries(const char* op, const Tensor& out, const Tensor& result) {
  check_same_device(op, device(out), device(result));
  if (!can_cast(result.dtype(), out.dtype())) throw_cannot_cast(op, result.dtype(), out.dtype());
  const bool compressed = impl_of(out, op).compressed() >= 0;
  Tensor taken = compressed ? compress(result, form_of(out)) : in_coordinates(result);
  if (taken.dtype() != out.dtype()) taken = with_values(taken, tapegrad::to(values(taken), out.dtype()));
  static_cast<SparseImpl*>(out.impl())->assign(impl_of(taken, op));
}

}  // namespace

const Tensor& add_(const Tensor& self, const Operand& other, const Scalar& alpha) {
  return take_in("add_", self, other.tensor(), alpha);
}

const Tensor& sub_(const Tensor& self, const Operand& other, const Scalar& alpha) {
  const Tensor& b = other.tensor();
  return take_in("sub_", self, b.is_sparse() ? with_values(b, tapegrad::neg(values(b))) : b, alpha);
}

const Tensor& mul_(const Tensor& self, const Operand& other) {
  check_number("mul_", self, other.tensor());
  tapegrad::mul_(values(self), other);
  return self;
}

const Tensor& div_(const Tensor& self, const Operand& other, std::optional<std::string_view> rounding_mode) {
  check_number("div_", self, other.tensor());
  tapegrad::div_(values(self), other, rounding_mode);
  return self;
}

const Tensor& neg_(const Tensor& self) {
  tapegrad::neg_(values(self));
  return self;
}

void write_to(const char* op, const Tensor& out, const Tensor& result) {
  const auto known = [](const Tensor& t) { return autograd::needs_grad(t.is_sparse() ? values(t) : t); };
  if (grad_enabled() && (known(out) || known(result))) autograd::throw_recorded_out(op);
  if (out.is_sparse()) {
    TG_CHECK(result.is_sparse(), NotImplemented, "{}: the result is dense, and out is sparse", op);
    set_entries(op, out, result);
  } else {
    write_out(op, out, result.is_sparse() ? to_dense(result) : result);
  }
  autograd::bump_version(out, op);
}

const Tensor& copy_(const Tensor& self, const Operand& given, bool) {
  const Tensor& src = given.tensor();
  const bool compressed = self.is_sparse() && impl_of(self, "copy_").compressed() >= 0;
  TG_CHECK(!compressed || (src.is_sparse() && form_of(self).dim == form_of(src).dim &&
                           form_of(self).in_blocks() == form_of(src).in_blocks()),
           Runtime, "copy_: copy of sparse compressed tensors having different layouts is not supported.");
  TG_CHECK(self.is_sparse() && src.is_sparse(), Runtime,
           "copy_: copy_() between dense and sparse Tensors is not implemented\nuse to_dense() or to_sparse()");
  const bool recording = grad_enabled() && (autograd::needs_grad(values(self)) || autograd::needs_grad(values(src)));
  autograd::check_inplace(values(self), "copy_", recording);
  const SparseImpl& from = impl_of(src, "copy_");
  TG_CHECK(compressed || from.compressed() < 0, Runtime,
           "copy_: expected coordinates: got a compressed tensor\nuse to_sparse()");
  if (compressed) {
    for (int64_t d = 0; d < std::min(self.ndim(), src.ndim()); ++d)
      TG_CHECK(
          self.size(d) == src.size(d), Runtime,
          "copy_: expected shapes of self and src to match along dimension {} for a compressed tensor: got {} and {}",
          d, self.size(d), src.size(d));
    TG_CHECK(self.ndim() == src.ndim(), Runtime, "copy_: expected as many dimensions: got {} and {}", self.ndim(),
             src.ndim());
    TG_CHECK(form_of(self).block == form_of(src).block, Runtime,
             "copy_: copy of sparse compressed tensors having different block sizes is not supported");
    TG_CHECK(indices(self).size(1) == indices(src).size(1), Runtime,
             "copy_: only sparse compressed tensors with the same number of specified elements are supported.");
  }
  // Other tensors may have the same places, of which none sees a change: where they stay, the values are written to.
  if (compressed && device(self) == device(src) && tapegrad::equal(indices(self), indices(src))) {
    tapegrad::copy_(values(self), values(src));
  } else {
    const auto taken = [&](const Tensor& t, std::optional<DType> dtype) {
      return t.defined() ? tapegrad::to(t, dtype, device(self), false, true) : Tensor();
    };
    const auto made =
        make_intrusive<SparseImpl>(taken(from.indices(), {}), taken(from.values(), self.dtype()), src.sizes(),
                                   from.coalesced(), from.compressed(), taken(from.starts(), {}));
    static_cast<SparseImpl*>(self.impl())->assign(*made);
  }
  autograd::bump_version(self, "copy_");
  return self;
}

const Tensor& zero_(const Tensor& self) {
  tapegrad::zero_(values(self));
  return self;
}

}  // namespace tapegrad::sparse
