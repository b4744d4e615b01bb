// kernel_table[op][device]: an untyped function pointer per operator and device. The generator gives each
// operator its OpId and fills the CPU column with the functions of the best instruction set; the CUDA library
// fills its column when it is loaded. A missing kernel is an empty slot, and the error says so.
#pragma once

#include <cstdint>

#include "tapegrad/c10/device.h"

namespace tapegrad {

using OpId = uint16_t;
using AnyKernel = void (*)();

// Sized by the generated code; see kernel_slots().
struct KernelSlots {
  AnyKernel device[kNumDeviceTypes];
};
TG_API extern KernelSlots* const kernel_table;
TG_API extern const char* const* const op_names;
TG_API extern const OpId num_ops;

[[noreturn]] TG_API TG_COLD void throw_no_kernel(OpId op, Device device);

template <class Fn>
inline Fn kernel_for(OpId op, Device device) {
  AnyKernel k = kernel_table[op].device[static_cast<int>(device.type)];
  if (TG_UNLIKELY(k == nullptr)) throw_no_kernel(op, device);
  return reinterpret_cast<Fn>(k);
}

enum class Isa : uint8_t { Generic, Avx2, Avx512 };
// The best instruction set of this processor, lowered by the environment variable TAPEGRAD_ISA.
TG_API Isa cpu_isa();
TG_API const char* isa_name(Isa isa);

}  // namespace tapegrad
