// The interface to an optional convolution library (cuDNN; cudnn.cpp): it is tried first, and our own kernels compute
// what it refuses. A simulated device has none; tests install a double.
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

// Queues the convolution on the stream, whose device must be current, or returns false without any effect. Raises if a
// call of the library fails.
TG_API bool library_convolution(const Stream& stream, const Convolution& convolution);
// Whether there is a library at all.
TG_API bool has_convolution_library();

}  // namespace tapegrad::cuda
