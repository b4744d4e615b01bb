// Portability macros shared by every layer. Includes nothing.
#pragma once

#if defined(_WIN32)
#define TG_API
#else
#define TG_API __attribute__((visibility("default")))
#endif

#if defined(__CUDACC__)
#define TG_HD __host__ __device__
#else
#define TG_HD
#endif

#define TG_LIKELY(x) __builtin_expect(!!(x), 1)
#define TG_UNLIKELY(x) __builtin_expect(!!(x), 0)
#define TG_NOINLINE __attribute__((noinline))
#define TG_INLINE inline __attribute__((always_inline))
#define TG_COLD __attribute__((noinline, cold))

// The namespace into which a kernel file is compiled, one per instruction set (see CMakeLists.txt).
#ifndef TG_ISA
#define TG_ISA generic
#endif
