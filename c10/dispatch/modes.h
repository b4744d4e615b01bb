// What a call of an operator has to test, in one word: the modes of the thread (one thread-local word) joined with the
// kinds of the tensors that it is given (bits 5 to 7, c10/tensor/kinds.h). The bits are disjoint, so that a
// function makes one comparison with the bits that concern it (aten/dispatch/call.h).
#pragma once

#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad {

enum Mode : uint32_t {
  kModeNoGrad = 1u << 0,     // no_grad: nothing is recorded
  kModeInference = 1u << 1,  // inference_mode: results can never take part in a recording
  kModeAutocast = 1u << 2,   // operators marked so run in a lower precision
  kModeProfile = 1u << 3,    // operators report begin and end
  kModeBatch = 1u << 4,      // a vmap runs: operators look for batched tensors
  kModeRecord = 1u << 8,     // calls of kernels are recorded (aten/record/recorder.h); off inside of a kernel
  kModeTrace = 1u << 9,      // calls of functions are written down (aten/record/tracer.h); off inside of one
  kModeGradMask = kModeNoGrad | kModeInference,
};

namespace detail {
// constinit: without it every use would call a function that checks for initialisation.
TG_API extern constinit thread_local uint32_t modes __attribute__((tls_model("initial-exec")));
}  // namespace detail

inline uint32_t modes() noexcept { return detail::modes; }
inline bool grad_enabled() noexcept { return (detail::modes & kModeGradMask) == 0; }

// Sets and clears bits for a scope.
class ModeGuard {
 public:
  ModeGuard(uint32_t set, uint32_t clear) noexcept : saved_(detail::modes) { detail::modes = (saved_ & ~clear) | set; }
  ~ModeGuard() { detail::modes = saved_; }
  ModeGuard(const ModeGuard&) = delete;
  ModeGuard& operator=(const ModeGuard&) = delete;

 private:
  uint32_t saved_;
};

struct NoGradGuard : ModeGuard {
  NoGradGuard() noexcept : ModeGuard(kModeNoGrad, 0) {}
};
struct EnableGradGuard : ModeGuard {
  EnableGradGuard() noexcept : ModeGuard(0, kModeGradMask) {}
};
struct InferenceGuard : ModeGuard {
  InferenceGuard() noexcept : ModeGuard(kModeInference, 0) {}
};

}  // namespace tapegrad
