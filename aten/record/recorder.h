// The recorder of a step, as the code that makes calls sees it. While a thread records (kModeRecord), each call of a
// kernel is run and kept, with where its operands lie; aten/record/recording.h makes of it a step that is replayed
// without what led to the calls. Only the outermost call is kept: the mode is off while a kernel runs, so what a kernel
// calls itself belongs to it. What a replay could not repeat is noted as a reason against it; nothing fails.
//
// Outside of a recording each function costs one test of a thread-local word.
#pragma once

#include <string>

#include "tapegrad/aten/dispatch/argument.h"
#include "tapegrad/aten/iterate/pointwise_iterator.h"
#include "tapegrad/aten/iterate/reduce_iterator.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/kernel_table.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/random/generator.h"

namespace tapegrad::dispatch {
struct Results;
using AnyFunction = void (*)();
using Invoke = void (*)(AnyFunction function, const Argument* arguments, Results& results);
}  // namespace tapegrad::dispatch

namespace tapegrad::record {

inline bool active() noexcept { return (modes() & kModeRecord) != 0; }

// Run the kernel and keep the call. `outputs` as in kernel_call.h.
TG_API TG_COLD void kernel_call(const OperatorEntry& op, Device device, AnyKernel kernel, dispatch::Invoke invoke,
                                dispatch::Arguments arguments, int outputs);
TG_API TG_COLD void pointwise_call(const OperatorEntry& op, pointwise::Kernel kernel, const pointwise::Iterator& it,
                                   const Tensor& target, std::span<const Tensor* const> inputs);
TG_API TG_COLD void reduce_call(const OperatorEntry& op, reduce::Kernel kernel, const reduce::Iterator& it,
                                const Tensor& target, const Tensor& input);

namespace detail {
TG_API TG_COLD void host_read(const char* what);
TG_API TG_COLD void new_gradient(const Tensor& leaf, const Tensor& grad, bool replaces);
TG_API TG_COLD void known_gradient(const Tensor& leaf, const Tensor& grad);
TG_API TG_COLD void node_ran(const void* node);
TG_API TG_COLD void generator_set(Generator& generator, uint64_t seed, uint64_t offset);
TG_API TG_COLD void drawn(Generator& generator, uint64_t n, PhiloxState state);
}  // namespace detail

// The values of tensors decide what happens next: which calls are made, or with which numbers.
inline void note_host_read(const char* what) {
  if (TG_UNLIKELY(active())) detail::host_read(what);
}
// The leaf's `.grad` was set to this tensor, whatever was there (`replaces`) or because none was; or is in use as it
// was before the step, undefined included.
inline void note_new_gradient(const Tensor& leaf, const Tensor& grad, bool replaces) {
  if (TG_UNLIKELY(active())) detail::new_gradient(leaf, grad, replaces);
}
inline void note_known_gradient(const Tensor& leaf, const Tensor& grad) {
  if (TG_UNLIKELY(active())) detail::known_gradient(leaf, grad);
}
// A node of the tape has computed its gradients.
inline void note_node_ran(const void* node) {
  if (TG_UNLIKELY(active())) detail::node_ran(node);
}
// A generator is about to be given this state.
inline void note_generator_set(Generator& generator, uint64_t seed, uint64_t offset) {
  if (TG_UNLIKELY(active())) detail::generator_set(generator, seed, offset);
}
// The numbers of the next random call.
inline PhiloxState draw(Generator& generator, uint64_t n) {
  const PhiloxState state = generator.next(n);
  if (TG_UNLIKELY(active())) detail::drawn(generator, n, state);
  return state;
}

}  // namespace tapegrad::record
