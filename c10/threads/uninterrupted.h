// A scope in which Ctrl-C waits: what is left half done there could not be undone. For short work, or work that was
// asked for in one piece.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad {

class TG_API Uninterrupted {
 public:
  Uninterrupted() noexcept;
  ~Uninterrupted();
  Uninterrupted(const Uninterrupted&) = delete;
  Uninterrupted& operator=(const Uninterrupted&) = delete;
};

}  // namespace tapegrad
