#include "tapegrad/aten/kernels_copy.h"

namespace tapegrad::cpu::TG_ISA {

void clone_cpu(const Tensor& input, std::optional<MemoryFormat>, const Tensor& out) { copy_cpu(out, input, false); }

void to_copy_cpu(const Tensor& input, std::optional<DType>, std::optional<Device>, bool non_blocking,
                 std::optional<MemoryFormat>, const Tensor& out) {
  copy_cpu(out, input, non_blocking);
}

}  // namespace tapegrad::cpu::TG_ISA
