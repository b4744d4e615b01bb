// The vector functions that g++ calls when it vectorises a loop over sinf, cosf, ... : their names in the
// vector function ABI (_ZGVeN16v_sinf: AVX-512, 16 lanes) as jumps to SLEEF's own (Sleef_sinf16_u10avx512f). The float
// forms of exp, expm1, log, erf and tanh, powf with 16 lanes, fmodf with 8 and 16 and fmod are in
// vector_math_cpu.cpp.
//
// SLEEF's libsleefgnuabi defines these names, too, but so does glibc's libmvec, with four times the error: the first
// one that a process loads is used by all libraries, and a mixture of both crashes in the dynamic linker. Hidden
// symbols of our own avoid both. The calling conventions are the same, so a jump suffices.

#if defined(__x86_64__)

// One jump: vector ABI name, SLEEF name.
#define TG_JUMP(from, to)                \
  asm(".text\n"                          \
      ".p2align 4\n"                     \
      ".globl " from                     \
      "\n"                               \
      ".hidden " from                    \
      "\n"                               \
      ".type " from ", @function\n" from \
      ":\n"                              \
      "  jmp *" to                       \
      "@GOTPCREL(%rip)\n"                \
      ".size " from ", .-" from "\n");

// A function for each width. `args` is "v" or "vv", `ulp` SLEEF's suffix for the error bound. b is SSE's width, which
// the kernels only use in the tail of a wider loop, c the one of AVX without integers.
#define TG_VECTOR_FLOAT_AVX2(name, args, ulp)                            \
  TG_JUMP("_ZGVbN4" args "_" name "f", "Sleef_" name "f4" ulp "avx2128") \
  TG_JUMP("_ZGVcN8" args "_" name "f", "Sleef_" name "f8" ulp "avx2")    \
  TG_JUMP("_ZGVdN8" args "_" name "f", "Sleef_" name "f8" ulp "avx2")
#define TG_VECTOR_FLOAT(name, args, ulp) \
  TG_VECTOR_FLOAT_AVX2(name, args, ulp)  \
  TG_JUMP("_ZGVeN16" args "_" name "f", "Sleef_" name "f16" ulp "avx512f")
#define TG_VECTOR_DOUBLE_AS(as, name, args, ulp)                   \
  TG_JUMP("_ZGVbN2" args "_" as, "Sleef_" name "d2" ulp "avx2128") \
  TG_JUMP("_ZGVcN4" args "_" as, "Sleef_" name "d4" ulp "avx2")    \
  TG_JUMP("_ZGVdN4" args "_" as, "Sleef_" name "d4" ulp "avx2")    \
  TG_JUMP("_ZGVeN8" args "_" as, "Sleef_" name "d8" ulp "avx512f")
#define TG_VECTOR_DOUBLE(name, args, ulp) TG_VECTOR_DOUBLE_AS(name, name, args, ulp)
#define TG_VECTOR_MATH(name, args, ulp) TG_VECTOR_FLOAT(name, args, ulp) TG_VECTOR_DOUBLE(name, args, ulp)

TG_VECTOR_DOUBLE_AS("tg_short_sin", "sin", "v", "_u35")
TG_VECTOR_DOUBLE_AS("tg_short_cos", "cos", "v", "_u35")
TG_VECTOR_DOUBLE("exp", "v", "_u10")
TG_VECTOR_MATH("exp2", "v", "_u10")
TG_VECTOR_DOUBLE("expm1", "v", "_u10")
TG_VECTOR_DOUBLE("log", "v", "_u10")
TG_VECTOR_MATH("log2", "v", "_u10")
TG_VECTOR_MATH("log10", "v", "_u10")
TG_VECTOR_MATH("log1p", "v", "_u10")
TG_VECTOR_MATH("sin", "v", "_u10")
TG_VECTOR_MATH("cos", "v", "_u10")
TG_VECTOR_MATH("tan", "v", "_u10")
TG_VECTOR_MATH("asin", "v", "_u10")
TG_VECTOR_MATH("acos", "v", "_u10")
TG_VECTOR_MATH("atan", "v", "_u10")
TG_VECTOR_MATH("sinh", "v", "_u10")
TG_VECTOR_MATH("cosh", "v", "_u10")
TG_VECTOR_DOUBLE("tanh", "v", "_u10")
TG_VECTOR_MATH("asinh", "v", "_u10")
TG_VECTOR_MATH("acosh", "v", "_u10")
TG_VECTOR_MATH("atanh", "v", "_u10")
TG_VECTOR_DOUBLE("erf", "v", "_u10")
TG_VECTOR_MATH("erfc", "v", "_u15")
TG_VECTOR_MATH("lgamma", "v", "_u10")
TG_VECTOR_MATH("tgamma", "v", "_u10")
TG_VECTOR_MATH("cbrt", "v", "_u10")
TG_VECTOR_FLOAT_AVX2("pow", "vv", "_u10")
TG_VECTOR_DOUBLE("pow", "vv", "_u10")
TG_VECTOR_MATH("atan2", "vv", "_u10")
TG_VECTOR_MATH("hypot", "vv", "_u05")
TG_JUMP("_ZGVbN4vv_fmodf", "Sleef_fmodf4_avx2128")

#endif  // defined(__x86_64__)
