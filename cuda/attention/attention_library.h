// The interface to an optional attention library (cuDNN; cudnn.cpp): it is tried first, and our own kernels compute
// what it refuses. A simulated device has none; tests install a double.
#pragma once

#include "tapegrad/aten/attention/sizes.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda {

// The rows of a tensor (batch, heads, rows, columns); columns are dense. Strides in elements.
struct AttentionRows {
  const void* data = nullptr;
  int64_t batch = 0, head = 0, row = 0;
};

// Whether rows of 16-bit numbers are aligned to the 16 bytes that engines load at a time, and do not overlap.
inline bool readable(const AttentionRows& t) {
  for (const int64_t stride : {t.batch, t.head, t.row})
    if (stride <= 0 || stride % 8 != 0) return false;
  return reinterpret_cast<uintptr_t>(t.data) % 16 == 0;
}

// The bias that is added to the scores (batch, heads, rows, keys): its sizes are those or 1 (broadcast); `pitch`
// elements from row to row.
struct AttentionBias {
  const void* data = nullptr;
  int64_t batch = 0, heads = 0, rows = 0, pitch = 0;
  bool defined() const { return rows != 0; }
  int64_t numel() const { return batch * heads * rows * pitch; }
};

// The row pitch of a bias over the keys, such that every row is aligned to 16 bytes.
constexpr int64_t pitch_of(int64_t keys) { return (keys + 7) / 8 * 8; }

// The sizes of the bias for a mask: 1 in dimensions along which the mask is constant.
inline AttentionBias bias_of(const Tensor& mask, bool is_causal, const attention::Sizes& z) {
  if (!mask.defined()) return {};
  const auto size = [&](int d, int64_t n) { return mask.impl()->stride(d) == 0 ? 1 : n; };
  return {nullptr, size(0, z.batch), size(1, z.heads), is_causal ? z.rows : size(2, z.rows), pitch_of(z.keys)};
}

// The dropout factors of the weights, (batch, heads, rows, keys) in the query's dtype with `pitch` elements from row to
// row; weights are multiplied by them and by `scale`.
struct AttentionKept {
  const void* data = nullptr;
  int64_t pitch = 0;
  double scale = 1;
  bool defined() const { return pitch != 0; }
};

// float16 has no finite number that is far enough below all scores.
constexpr DType bias_dtype(DType scores) { return scores == DType::float16 ? DType::float32 : scores; }

// Causal: row i sees columns up to i. Output and logsumexp, (batch, heads, rows), are dense; the gradient reads them,
// the output divided by the scale of `kept`.
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
// The gradients that are written are dense. `delta` holds a float of every row.
struct AttentionBackward {
  AttentionForward forward;
  AttentionRows grad_output;
  const void *query_grad = nullptr, *key_grad = nullptr, *value_grad = nullptr, *delta = nullptr;
};

// Whether it pays to convert tensors of these sizes into the layout that the library reads; the addresses are not used.
TG_API bool library_takes_attention(int device, const AttentionForward& attention, bool backward);
// Queue the attention on the stream, whose device must be current, or return false without any effect. Raise if a call
// of the library fails.
TG_API bool library_attention(const Stream& stream, const AttentionForward& attention);
TG_API bool library_attention_grad(const Stream& stream, const AttentionBackward& attention);

}  // namespace tapegrad::cuda
