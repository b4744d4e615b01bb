// The backward engine. It counts how many gradients each node waits for, then repeatedly takes the newest ready node,
// runs it, and adds its results to the gradients of the nodes that made its inputs. It runs on the calling thread,
// without recursion; several threads may run over one graph at the same time, and a node may call backward itself.
// Bindings call it without the GIL (or the like); hooks acquire it where they need it.
#pragma once

#include "tapegrad/autograd/engine/node.h"

namespace tapegrad::autograd {

struct BackwardOptions {
  bool retain_graph = false;
  bool create_graph = false;
  bool accumulate = true;  // false: autograd.grad, leaves' .grad is left alone
  bool allow_unused = false;
};

// Computes the gradients of `roots`, weighted with `grads` (undefined or absent: one, for roots with one element). With
// `inputs`, returns their gradients (accumulate false) or accumulates into those only.
TG_API std::vector<Tensor> run_backward(TensorSpan roots, TensorSpan grads, TensorSpan inputs,
                                        const BackwardOptions& options);

TG_API std::vector<Tensor> grad(TensorSpan outputs, TensorSpan inputs, TensorSpan grad_outputs = {},
                                bool retain_graph = false, bool create_graph = false, bool allow_unused = false);

// True on a thread that is inside run_backward; the node that it is running.
TG_API bool in_backward() noexcept;
// Whether any thread is inside run_backward.
TG_API bool backward_running() noexcept;
TG_API Node* current_node() noexcept;
// The number of the outermost backward pass of this thread, which no other has; -1 outside.
TG_API int64_t current_pass() noexcept;
// Whether the innermost backward of this thread writes into leaves' .grad; false in autograd.grad.
TG_API bool accumulating() noexcept;
// Whether the saved tensors of that node are kept, for another backward through it.
TG_API bool keeps_graph() noexcept;
// Runs at the end of the outermost backward of this thread, unless that one fails.
TG_API void queue_callback(std::function<void()> callback);

// Anomaly mode, of the whole process: an error in a node's backward, or a NaN that it returns, names the line
// of the forward call.
TG_API void set_anomaly(bool enabled, bool check_nan = true) noexcept;
TG_API bool anomaly_enabled() noexcept;
TG_API bool anomaly_check_nan() noexcept;

}  // namespace tapegrad::autograd
