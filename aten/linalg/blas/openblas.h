// The OpenBLAS library, loaded with dlopen rather than linked, because two settings are read from the environment while
// it is loaded: the number of threads that it starts (none are wanted, see blas.h), and the processor type. By default
// it treats AMD processors with AVX-512 as ones without, at half the speed (measured: 114 against 220 GFlop/s on a Zen
// 5).
#pragma once

namespace tapegrad::blas {

// The address of a routine, without the package's prefix: "cblas_sgemm". Raises NotImplemented when the
// library or the routine is missing.
void* find_routine(const char* name);

}  // namespace tapegrad::blas
