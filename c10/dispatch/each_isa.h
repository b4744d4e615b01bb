// For functions that are compiled once per instruction set but are not kernels of the op table (whose slots the
// generator fills): TG_EACH_ISA(f) expands to f(namespace, Isa) for each instruction set that was built, from the most
// basic to the best.
#pragma once

#include "tapegrad/c10/dispatch/kernel_table.h"

#ifdef TG_HAVE_ISA_GENERIC
#define TG_IF_ISA_GENERIC(f) f(generic, Isa::Generic)
#else
#define TG_IF_ISA_GENERIC(f)
#endif
#ifdef TG_HAVE_ISA_AVX2
#define TG_IF_ISA_AVX2(f) f(avx2, Isa::Avx2)
#else
#define TG_IF_ISA_AVX2(f)
#endif
#ifdef TG_HAVE_ISA_AVX512
#define TG_IF_ISA_AVX512(f) f(avx512, Isa::Avx512)
#else
#define TG_IF_ISA_AVX512(f)
#endif
#define TG_EACH_ISA(f) TG_IF_ISA_GENERIC(f) TG_IF_ISA_AVX2(f) TG_IF_ISA_AVX512(f)
