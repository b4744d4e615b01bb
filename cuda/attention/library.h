// A library of attention (cuDNN; cudnn.cpp) that may be there: the kernels ask it first, and do themselves what it
// refuses. On a simulated device there is none; tests put one in.
#pragma once

#include "tapegrad/aten/attention/sizes.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// The rows of a tensor (batch, heads, rows, columns); columns are dense. Strides in elements.
struct AttentionRows {
  const void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
};

// Whether rows begin where engines load 16 bytes of 16-bit numbers at a time, and none lies upon another.
inline bool readable(const AttentionRows& t) {
  for (const int64_t stride : {t.batch, t.head, t.row})
    if (stride <= 0 || stride % 8 != 0) return false;
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

// What is added to the scores of (batch, heads, rows, keys): sizes that are those or 1, which holds for all; `pitch`
// elements from row to row.
struct AttentionBias {
  const void* data = nullptr;
  int64_t batch = 0, heads = 0, rows = 0, pitch = 0;
  bool defined() const { return rows != 0; }
  int64_t numel() const { return batch * heads * rows * pitch; }
};

// Rows of numbers for the keys begin where 16 bytes are loaded at a time.
constexpr int64_t pitch_of(int64_t keys) { return (keys + 7) / 8 * 8; }

// The sizes of one for a mask: those along which it does not change are 1.
inline AttentionBias bias_of(const Tensor& mask, bool is_causal, const attention::Sizes& z) {
  if (!mask.defined()) return {};
  const auto size = [&](int d, int64_t n) { return mask.impl()->stride(d) == 0 ? 1 : n; };
  return {nullptr, size(0, z.batch), size(1, z.heads), is_causal ? z.rows : size(2, z.rows), pitch_of(z.keys)};
}

// What weights are multiplied with, (batch, heads, rows, keys) of the query's dtype and `pitch` elements from row to
// row, and then by `scale`.
struct AttentionKept {
  const void* data = nullptr;
  int64_t pitch = 0;
  double scale = 1;
  bool defined() const { return pitch != 0; }
};

// float16 has no numbers far enough below all scores.
constexpr DType bias_dtype(DType scores) { return scores == DType::float16 ? DType::float32 : scores; }

// Causal: row i sees columns up to i. Output and logsumexp, (batch, heads, rows), are dense; the gradient reads them.
struct AttentionForward {
  DType dtype;
  attention::Sizes sizes;
  bool causal;
  double scale;
  AttentionRows query = {}, key = {}, value = {};
  const void *output = nullptr, *logsumexp = nullptr;
  AttentionBias bias = {};
  AttentionKept kept = {};
};
// The gradients that are written are dense. `delta` has room for a float of every row.
struct AttentionBackward {
  AttentionForward forward;
  AttentionRows grad_output;
  const void *query_grad = nullptr, *key_grad = nullptr, *value_grad = nullptr, *delta = nullptr;
};

// Whether it is worth while to bring tensors of these sizes into a form that the library reads; they need no address.
TG_API bool library_takes_attention(int device, const AttentionForward& attention, bool backward);
// Queue it on the stream, whose device is the current one, or return false and have done nothing. Raise where a call of
// the library fails.
TG_API bool library_attention(const Stream& stream, const AttentionForward& attention);
TG_API bool library_attention_grad(const Stream& stream, const AttentionBackward& attention);

}  // namespace tapegrad::cuda
