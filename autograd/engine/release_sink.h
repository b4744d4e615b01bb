// Collects the tensors that SavedTensor::release gives up while a node's lock is held: destroying a tensor may run
// arbitrary code (a Python object's finaliser), which must not happen under the lock. The engine empties it after
// releasing the lock.
#pragma once

#include <memory>
#include <vector>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::autograd::detail {

struct ReleaseSink {
  std::vector<Tensor> tensors;
  std::vector<std::shared_ptr<void>> objects;
  void clear() noexcept {
    tensors.clear();
    objects.clear();
  }
};

// Null: released at once.
extern constinit thread_local ReleaseSink* release_sink __attribute__((tls_model("initial-exec")));

}  // namespace tapegrad::autograd::detail
