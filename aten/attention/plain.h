// Attention on whole matrices, composed of plain operators, for the cases that the tiled kernel does not support:
// dropout, a gradient for the mask, second derivatives. All tensors have four dimensions (B, heads, rows, columns).
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::attention {

// Key or value with each of its heads repeated for the query heads that share it.
Tensor share_heads(const Tensor& t, int64_t heads);
// softmax(query key^T scale + mask); rows whose scores are all masked are zero. key has as many heads as query.
Tensor weights(const Tensor& query, const Tensor& key, const Tensor& attn_mask, bool is_causal, double scale);
// The 16-bit types compute in float32.
Tensor widened(const Tensor& t);

}  // namespace tapegrad::attention
