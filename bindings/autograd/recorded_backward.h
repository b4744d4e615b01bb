// Backward passes that a program asks for: in a step that is recorded each is one operation of it.
#pragma once

#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/bindings/tensor/tensor_object.h"

namespace tapegrad::python {

// f(roots, weights, inputs), where the GIL is not held while it computes.
template <class F>
std::vector<Tensor> recorded_backward(TensorSpan roots, TensorSpan weights, TensorSpan inputs, F f) {
  if (TG_LIKELY(!record::active())) {
    const ComputeRelease released;
    return f(roots, weights, inputs);
  }
  std::vector<Tensor> operands;
  for (TensorSpan each : {roots, weights, inputs}) operands.insert(operands.end(), each.begin(), each.end());
  return record::native_call(
      "backward", std::move(operands),
      [f, m = roots.size(), n = weights.size()](std::span<Tensor> given, std::span<const int64_t>) {
        // The gradients of a dry run are none that another thread may see: it puts them back.
        std::optional<ComputeRelease> released;
        if (!record::DryRun::active()) released.emplace();
        return f(given.subspan(0, m), given.subspan(m, n), given.subspan(m + n));
      });
}

inline void backward_of_program(TensorSpan roots, TensorSpan weights, TensorSpan inputs,
                                autograd::BackwardOptions options) {
  recorded_backward(roots, weights, inputs, [options](TensorSpan r, TensorSpan w, TensorSpan i) {
    autograd::run_backward(r, w, i, options);
    return std::vector<Tensor>();
  });
}
inline std::vector<Tensor> grad_of_program(TensorSpan roots, TensorSpan inputs, TensorSpan weights, bool retain_graph,
                                           bool create_graph, bool allow_unused) {
  return recorded_backward(roots, weights, inputs, [=](TensorSpan r, TensorSpan w, TensorSpan i) {
    return autograd::grad(r, i, w, retain_graph, create_graph, allow_unused);
  });
}

}  // namespace tapegrad::python
