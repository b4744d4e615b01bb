// While one that is on lives, new memory of the CPU for the calling thread's tensors is pinned: devices copy from and
// to it on their own. Raises Runtime where there is no CUDA device.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad {

class TG_API PinnedScope {
 public:
  explicit PinnedScope(bool on);
  ~PinnedScope();
  PinnedScope(const PinnedScope&) = delete;
  PinnedScope& operator=(const PinnedScope&) = delete;
  // Raises Runtime where it is on and what was made lies elsewhere.
  template <class T>
  void check(const T& made) const {
    if (TG_UNLIKELY(on_ && !made.is_cpu())) refuse();
  }

 private:
  [[noreturn]] static void refuse();
  bool on_, before_;
};

}  // namespace tapegrad
