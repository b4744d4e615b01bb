// cuSOLVER's and cuBLAS's functions for large matrices over a simulated device: plain loops, queued on the stream, but
// for eigenvalues of general matrices, which it does not support. As strict as the libraries: sizes that do not fit are
// refused, and so are cuSOLVER's functions during a capture; what a workspace holds is overwritten when the work runs.
// Off until a test turns it on, so that a device goes without, as where the libraries are missing.
#pragma once

#include <cstdint>
#include <string>

#include "tapegrad/cuda/linalg/factor/solver_api.h"

namespace tapegrad::cuda::simulated {

TG_API void use_simulated_solver(bool on);

// --- for tests ---
// Calls of a function since it was last asked, by its name in solver_api::Functions ("lu").
TG_API uint64_t solver_calls(const std::string& name);
// The next calls of that name give `status`.
TG_API void solver_fails(const std::string& name, int status, int times = 1);

}  // namespace tapegrad::cuda::simulated
