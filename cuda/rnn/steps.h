// Shared by the forward and the backward pass of a recurrent layer.
#pragma once

#include "tapegrad/aten/rnn/cells.h"
#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda::cells {

using namespace rnn::cells;

// The state before a step: for its first `carried` rows that of the step before, for the others the initial one.
template <class T>
struct Before {
  const T *states, *initial;
  int64_t carried, width;
  TG_DEVICE T at(int64_t row, int64_t j) const { return (row < carried ? states : initial)[row * width + j]; }
};

inline void copy_rows(const Stream& stream, void* to, const void* from, int64_t bytes) {
  if (bytes > 0) driver().copy(to, from, static_cast<size_t>(bytes), CopyKind::DeviceToDevice, stream.handle);
}

}  // namespace tapegrad::cuda::cells
