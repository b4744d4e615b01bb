// The instruction set of the kernels. A separate file, so that it can be used without linking operators.
#include <string>
#include <string_view>

#include "tapegrad/c10/dispatch/kernel_table.h"
#include "tapegrad/c10/environment.h"

namespace tapegrad {

namespace {

constexpr Isa kCompiled[] = {
#if defined(TG_HAVE_ISA_GENERIC)
    Isa::Generic,
#endif
#if defined(TG_HAVE_ISA_AVX2)
    Isa::Avx2,
#endif
#if defined(TG_HAVE_ISA_AVX512)
    Isa::Avx512,
#endif
};

// Lowered to what TAPEGRAD_ISA names, where kernels are compiled for it and the processor has it.
Isa lowered(Isa best) {
  const char* wish = environment_text("TAPEGRAD_ISA");
  if (wish == nullptr) return best;
  std::string allowed;
  for (Isa isa : kCompiled) {
    if (isa > best) break;
    if (std::string_view(wish) == isa_name(isa)) return isa;
    allowed += (allowed.empty() ? "" : " or ") + std::string(isa_name(isa));
  }
  refuse_environment("TAPEGRAD_ISA", allowed);
  return best;
}

Isa detect_isa() {
  Isa best = Isa::Generic;
#if defined(__x86_64__)
  __builtin_cpu_init();
#if defined(TG_HAVE_ISA_AVX2)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2"))
    best = Isa::Avx2;
#endif
#if defined(TG_HAVE_ISA_AVX512)
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    best = Isa::Avx512;
#endif
#endif
  return lowered(best);
}

}  // namespace

Isa cpu_isa() {
  static const Isa isa = detect_isa();
  return isa;
}

const char* isa_name(Isa isa) {
  switch (isa) {
    case Isa::Avx512:
      return "avx512";
    case Isa::Avx2:
      return "avx2";
    default:
      return "generic";
  }
}

}  // namespace tapegrad
