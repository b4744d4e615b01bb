// While an enabled scope is alive, new CPU memory for the calling thread's tensors is pinned, so that devices can copy
// from and to it asynchronously. Raises Runtime if there is no CUDA device.
#pragma once

#include "tapegrad/c10/macros.h"

namespace tapegrad {

class TG_API PinnedScope {
 public:
  explicit PinnedScope(bool on);
  ~PinnedScope();
  PinnedScope(const PinnedScope&) = delete;
  PinnedScope& operator=(const PinnedScope&) = delete;
  // Raises Runtime if the scope is enabled and the new tensor does not lie in pinned memory.
  template <class T>
  void check(const T& made) const {
    if (TG_UNLIKELY(on_ && !made.is_cpu())) refuse();
  }

 private:
  [[noreturn]] static void refuse();
  bool on_, before_;
};

}  // namespace tapegrad
