// The engine: micrograd's loop. Count how many gradients each node waits for, then take the newest ready
// node, run it, add its results to the nodes that made its inputs. It runs on the calling thread, without
// recursion; several threads may run over one graph at the same time.
#pragma once

#include "tapegrad/autograd/node.h"

namespace tapegrad::autograd {

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;
  bool accumulate = true;  // false: autograd.grad, leaves' .grad is left alone
  bool allow_unused = false;
};

// Gradients of `roots`, weighted with `grads` (undefined: ones, for one-element roots). With `inputs`,
// returns their gradients (accumulate false) or accumulates into those only.
TG_API std::vector<Tensor> run_backward(TensorSpan roots, TensorSpan grads, TensorSpan inputs,
                                        const BackwardOptions& options);

TG_API std::vector<Tensor> grad(TensorSpan outputs, TensorSpan inputs, TensorSpan grad_outputs = {},
                                bool retain_graph = false, bool create_graph = false,
                                bool allow_unused = false);

// True on a thread that is inside run_backward.
TG_API bool in_backward() noexcept;
// Runs at the end of the outermost backward of this thread.
TG_API void queue_callback(std::function<void()> callback);
// Polled now and then by long loops; true: stop with Error(Interrupt).
TG_API bool anomaly_check_nan() noexcept;
TG_API void set_anomaly(bool enabled, bool check_nan = true) noexcept;

}  // namespace tapegrad::autograd
