// The kernel table: one entry per operator, with an untyped function per type of device. The generator defines the
// entries, each beside its operator's functions; the CPU's kernel is there from the start (that of the best instruction
// set), the CUDA library sets its own when it is loaded. A missing kernel is null, and the error says so. Entries are
// not changed afterwards: any thread may read them.
#pragma once

#include <cstdint>

#include "tapegrad/c10/device/device.h"

namespace tapegrad {

using AnyKernel = void (*)();
namespace batch {
enum class Rule : uint8_t;  // aten/batch/rule.h
}

struct OperatorEntry {
  const char* name;
  batch::Rule batch_rule;  // how a call with batched tensors is made
  AnyKernel kernels[kNumDeviceTypes];
};

[[noreturn]] TG_API TG_COLD void throw_no_kernel(const OperatorEntry& op, Device device);

template <class Fn>
inline Fn kernel_for(const OperatorEntry& op, Device device) {
  AnyKernel k = op.kernels[static_cast<int>(device.type)];
  if (TG_UNLIKELY(k == nullptr)) throw_no_kernel(op, device);
  return reinterpret_cast<Fn>(k);
}

enum class Isa : uint8_t { Generic, Avx2, Avx512 };
// The best instruction set of this processor, lowered by the environment variable TAPEGRAD_ISA.
TG_API Isa cpu_isa();
TG_API const char* isa_name(Isa isa);

// The kernel of the best instruction set that this processor has and that the library was built for.
AnyKernel best_kernel(AnyKernel generic, AnyKernel avx2, AnyKernel avx512);

}  // namespace tapegrad

// TG_BEST_KERNEL(f): the best of cpu::generic::f, cpu::avx2::f and cpu::avx512::f, inside of namespace tapegrad.
#define TG_ISA_KERNEL(isa, f) reinterpret_cast<::tapegrad::AnyKernel>(&cpu::isa::f)
#ifdef TG_HAVE_ISA_GENERIC
#define TG_ISA_KERNEL_GENERIC(f) TG_ISA_KERNEL(generic, f)
#else
#define TG_ISA_KERNEL_GENERIC(f) nullptr
#endif
#ifdef TG_HAVE_ISA_AVX2
#define TG_ISA_KERNEL_AVX2(f) TG_ISA_KERNEL(avx2, f)
#else
#define TG_ISA_KERNEL_AVX2(f) nullptr
#endif
#ifdef TG_HAVE_ISA_AVX512
#define TG_ISA_KERNEL_AVX512(f) TG_ISA_KERNEL(avx512, f)
#else
#define TG_ISA_KERNEL_AVX512(f) nullptr
#endif
#define TG_BEST_KERNEL(f) \
  ::tapegrad::best_kernel(TG_ISA_KERNEL_GENERIC(f), TG_ISA_KERNEL_AVX2(f), TG_ISA_KERNEL_AVX512(f))
