// The instruction set of the kernels. A separate file, so that it can be used without linking operators.
#include <cstdlib>
#include <string_view>

#include "tapegrad/c10/dispatch/kernel_table.h"

namespace tapegrad {

namespace {

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
  if (const char* wish = std::getenv("TAPEGRAD_ISA")) {
    for (Isa isa : {Isa::Generic, Isa::Avx2, Isa::Avx512})
      if (std::string_view(wish) == isa_name(isa) && isa < best) best = isa;
  }
  return best;
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
