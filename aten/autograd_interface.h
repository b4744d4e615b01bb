// What Tensor's methods ask of the tape, which is a layer above: autograd/tensor_autograd.cpp implements this once and
// registers it while the library is loaded. Rules and errors are those of the methods of the same names (tensor.h).
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

struct AutogradInterface {
  virtual ~AutogradInterface() = default;
  virtual void set_requires_grad(const Tensor& t, bool value) const = 0;
  virtual bool is_leaf(const Tensor& t) const noexcept = 0;
  virtual Tensor grad(const Tensor& t) const = 0;
  virtual void set_grad(const Tensor& t, const Tensor& grad) const = 0;
  virtual void retain_grad(const Tensor& t) const = 0;
  virtual void backward(const Tensor& t, const Tensor& gradient, bool retain_graph, bool create_graph) const = 0;
};

// `tape` must outlive every tensor.
TG_API void set_autograd_interface(const AutogradInterface* tape) noexcept;

}  // namespace tapegrad
