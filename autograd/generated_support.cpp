#include "tapegrad/autograd/generated_support.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/autograd/meta.h"

namespace tapegrad::autograd {

Tensor before_write(const Tensor& self) {
  Tensor copy = raw::clone(self);
  if (Edge edge = edge_of(self); edge.defined()) {
    AutogradMeta& m = ensure_meta(copy);
    m.grad_fn = std::move(edge.node);
    m.output = edge.input;
    copy.impl()->set_needs_grad(true);
  }
  return copy;
}

void throw_recorded_out(const char* op) {
  TG_THROW(
      Runtime,
      "{}: functions with out=... arguments don't support automatic differentiation, but one of the arguments requires "
      "grad\n"
      "hint: call an out= function under no_grad, or use the form without out=",
      op);
}

}  // namespace tapegrad::autograd
