#include "tapegrad/c10/dispatch/kernel_table.h"

namespace tapegrad {

void throw_no_kernel(const OperatorEntry& op, Device device) {
  TG_THROW(NotImplemented, "{}: there is no kernel for tensors on {}", op.name, device);
}

AnyKernel best_kernel(AnyKernel generic, AnyKernel avx2, AnyKernel avx512) {
  const Isa isa = cpu_isa();
  if (avx512 != nullptr && isa >= Isa::Avx512) return avx512;
  if (avx2 != nullptr && isa >= Isa::Avx2) return avx2;
  return generic;
}

}  // namespace tapegrad
