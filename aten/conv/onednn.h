// Convolutions by oneDNN, of float32 and, where multiplies() in aten/onednn/product.h says so, of 16-bit types with
// sums in float. Each call is cut into pieces of images, bands and channels whose borders depend on sizes only
// (pieces.h). A piece is one single-threaded oneDNN primitive that runs on a thread of tapegrad's pool, with its
// activations reordered to the blocked layout while they are in cache. Therefore results have the same bits for any
// number of threads, libgomp never starts a thread (none has to survive a fork, none spins), and no barrier waits for a
// descheduled thread. Primitives are cached by shape, in a bounded cache. Thread rules: any thread, several at once.
#pragma once

#include "tapegrad/aten/conv/geometry.h"

namespace tapegrad::onednn {

// Each returns false, with nothing written, when oneDNN has no implementation for the shape. All tensors are
// contiguous, but input and output where g.channels_innermost, and of one type; bias may be null.
bool conv_forward(const conv::Geometry& g, DType type, const void* input, const void* weight, const void* bias,
                  void* output);
bool conv_grad_input(const conv::Geometry& g, DType type, const void* output, const void* weight, void* input);
bool conv_grad_weight(const conv::Geometry& g, DType type, const void* output, const void* input, void* weight);

}  // namespace tapegrad::onednn
