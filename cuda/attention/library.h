// A library of attention (cuDNN; cudnn.cpp) that may be there: the kernels ask it first, and do themselves what it
// refuses. On a simulated device there is none; tests put one in.
#pragma once

#include "tapegrad/aten/attention/sizes.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// The rows of a tensor (batch, heads, rows, columns); columns are dense. Strides in elements.
struct AttentionRows {
  const void* data;
  int64_t batch, head, row;
};

// Whether rows begin where engines load 16 bytes of 16-bit numbers at a time, and none lies upon another.
inline bool readable(const AttentionRows& t) {
  for (const int64_t stride : {t.batch, t.head, t.row})
    if (stride <= 0 || stride % 8 != 0) return false;
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

// Attention without a mask other than the causal one: row i sees columns up to i. Output and logsumexp, (batch, heads,
// rows), are dense; the gradient reads them.
struct AttentionForward {
  DType dtype;
  attention::Sizes sizes;
  bool causal;
  double scale;
  AttentionRows query, key, value;
  const void *output, *logsumexp;
};
// The gradients that are written are dense. `delta` has room for a float of every row.
struct AttentionBackward {
  AttentionForward forward;
  AttentionRows grad_output;
  const void *query_grad = nullptr, *key_grad = nullptr, *value_grad = nullptr, *delta = nullptr;
};

// Whether it is worth while to bring tensors of these sizes into a form that the library reads.
TG_API bool library_takes_attention(int device, DType dtype, const attention::Sizes& sizes, bool causal, bool backward);
// Queue it on the stream, whose device is the current one, or return false and have done nothing. Raise where a call of
// the library fails.
TG_API bool library_attention(const Stream& stream, const AttentionForward& attention);
TG_API bool library_attention_grad(const Stream& stream, const AttentionBackward& attention);

}  // namespace tapegrad::cuda
