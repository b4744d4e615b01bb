#include "tapegrad/autograd/formulas/reverse.h"

#include "tapegrad/aten/functions_view.h"
#include "tapegrad/autograd/engine/engine.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {

std::vector<Tensor> reverse(const TensorFunction& f, const std::vector<Tensor>& inputs, const std::vector<bool>& wanted,
                            const std::vector<Tensor>& grad_outputs) {
  bool again = grad_enabled();
  EnableGradGuard guard;
  // Separate aliases, so that a tensor given twice counts as two, and so that backward stops at them.
  std::vector<Tensor> leaves(inputs.size()), targets;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].defined()) continue;
    if (again && inputs[i].requires_grad()) {
      leaves[i] = view(inputs[i], inputs[i].sizes().empty() ? IntSpan() : inputs[i].sizes());
    } else {
      leaves[i] = inputs[i].detach();
      if (wanted[i]) leaves[i].set_requires_grad();
    }
    if (wanted[i]) targets.push_back(leaves[i]);
  }
  std::vector<Tensor> outputs = f(leaves), roots, seeds;
  for (size_t i = 0; i < outputs.size(); ++i)
    if (grad_outputs[i].defined() && outputs[i].defined() && outputs[i].requires_grad()) {
      roots.push_back(outputs[i]);
      seeds.push_back(grad_outputs[i]);
    }
  std::vector<Tensor> result(inputs.size());
  if (roots.empty() || targets.empty()) return result;
  std::vector<Tensor> found = autograd::grad(roots, targets, seeds, false, again, true);
  for (size_t i = 0, t = 0; i < inputs.size(); ++i)
    if (inputs[i].defined() && wanted[i]) result[i] = found[t++];
  return result;
}

}  // namespace tapegrad
