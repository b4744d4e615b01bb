// User code called by the core: hooks, custom Functions, signal handlers. The core sets modes of its own (backward
// records nothing, an operator under autocast is not cast again); a signal handler that runs in the middle of it gets
// the modes that the program itself has set on this thread.
#pragma once

#include "tapegrad/aten/batch/all_levels.h"
#include "tapegrad/autograd/profiler/call_site.h"
#include "tapegrad/bindings/interpreter/gil.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::python {

inline constexpr uint32_t kProgramModes = kModeGradMask | kModeAutocast | kModeBatch;
extern constinit thread_local uint32_t program_modes;  // of these bits

// To be called after a function called by Python has changed some of these bits.
inline void keep_modes(uint32_t changed) noexcept { program_modes = (program_modes & ~changed) | (modes() & changed); }

// Holds the GIL, lets lines of the program have their own call sites, and restores the grad mode afterwards.
class ProgramScope {
 public:
  ProgramScope() noexcept = default;
  ~ProgramScope() {
    program_modes = outer_;
    detail::modes = (detail::modes & ~uint32_t{kModeGradMask}) | (core_ & kModeGradMask);
  }
  ProgramScope(const ProgramScope&) = delete;
  ProgramScope& operator=(const ProgramScope&) = delete;

 private:
  GilGuard gil_;
  autograd::SiteGuard site_;
  uint32_t core_ = modes();
  uint32_t outer_ = program_modes;
};

// As that, with the program's modes.
class HandlerScope {
 private:
  ProgramScope scope_;
  batch::AllLevels levels_;
  ModeGuard modes_{program_modes, kProgramModes};
};

}  // namespace tapegrad::python
