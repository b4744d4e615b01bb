// In-place operators with sparse operands.
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/sparse/operators.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/autograd/engine/node.h"

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

const Tensor& zero_(const Tensor& self) {
  tapegrad::zero_(values(self));
  return self;
}

}  // namespace tapegrad::sparse
