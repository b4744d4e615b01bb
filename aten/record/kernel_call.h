// How generated code calls a kernel: by the kernel table, and through the recorder while calls are recorded. The calls
// of pointwise operators and reductions are in aten/iterate/, and tell the recorder likewise.
#pragma once

#include "tapegrad/aten/dispatch/function.h"
#include "tapegrad/aten/record/recorder.h"

namespace tapegrad::record {

template <class Signature>
struct KernelCall;

// `outputs`: how many of the last arguments the kernel writes; 0: it writes the first one.
template <class... P>
struct KernelCall<void(P...)> {
  static void run(const OperatorEntry& op, Device device, int outputs, const std::remove_cvref_t<P>&... values) {
    auto* kernel = kernel_for<void (*)(P...)>(op, device);
    if (TG_UNLIKELY(active())) return run_recorded(op, device, kernel, outputs, values...);
    kernel(values...);
  }

 private:
  TG_COLD TG_NOINLINE static void run_recorded(const OperatorEntry& op, Device device, void (*kernel)(P...),
                                               int outputs, const std::remove_cvref_t<P>&... values) {
    const std::array<dispatch::Argument, sizeof...(P)> arguments{dispatch::Argument(values)...};
    kernel_call(op, device, reinterpret_cast<AnyKernel>(kernel), &dispatch::invoke<void, P...>, arguments, outputs);
  }
};

// A kernel whose result's sizes depend on the values of its tensors.
template <class R, class... P>
struct KernelCall<R(P...)> {
  static R run(const OperatorEntry& op, Device device, int, const std::remove_cvref_t<P>&... values) {
    note_host_read(op.name);
    return kernel_for<R (*)(P...)>(op, device)(values...);
  }
};

}  // namespace tapegrad::record
