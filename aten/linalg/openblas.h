// The OpenBLAS library, opened by us rather than linked, because two of its choices are made while it is
// loaded and only the environment decides them: how many threads it starts (none are wanted, see blas.h), and
// which processor it takes itself for. It takes AMD's processors with AVX-512 for ones without: half the
// speed (measured: 114 against 220 GFlop/s on a Zen 5).
#pragma once

namespace tapegrad::blas {

// The address of a routine, without the package's prefix: "cblas_sgemm". Raises NotImplemented when the
// library or the routine is missing.
void* find_routine(const char* name);

}  // namespace tapegrad::blas
