// A library of convolutions (cuDNN; cudnn.cpp) that may be there: the kernels ask it first, and do themselves what it
// refuses. On a simulated device there is none; tests put one in.
#pragma once

#include "tapegrad/aten/conv/geometry.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// Which of the three tensors is computed from the two others: a convolution, or one of its gradients.
enum class Wanted : uint8_t { Output, Input, Weight };

// Dense tensors of one dtype and layout; the wanted one is written, without a bias.
struct Convolution {
  Wanted wanted;
  DType dtype;
  bool channels_last;
  conv::Geometry sizes;
  const void *x, *w, *y;
};

// Queues it on the stream, whose device is the current one, or returns false and has done nothing. Raises where a call
// of the library fails.
TG_API bool library_convolution(const Stream& stream, const Convolution& convolution);
// Whether there is a library at all.
TG_API bool has_convolution_library();

}  // namespace tapegrad::cuda
