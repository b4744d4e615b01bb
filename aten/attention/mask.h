// Masks of attention: values added to the scores, or flags that hide them. Compiled per instruction set, and for
// devices.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::cpu::TG_ISA {

// Strides are in elements and may be zero.
struct AttentionMask {
  const void* data = nullptr;
  bool boolean = false, causal;
  int64_t heads, stride[4] = {};

  AttentionMask(const Tensor& mask, bool is_causal, int64_t head_count) : causal(is_causal), heads(head_count) {
    if (!mask.defined()) return;
    data = mask.data_ptr();
    boolean = mask.dtype() == DType::bool_;
    for (int d = 0; d < 4; ++d) stride[d] = mask.impl()->stride(d);
  }
  // The element for a score of head `h`, where heads are numbered over the whole batch.
  TG_HD int64_t at(int64_t h, int64_t row, int64_t key) const {
    return h / heads * stride[0] + h % heads * stride[1] + row * stride[2] + key * stride[3];
  }
  // The largest number of keys that a row before `row_end` can attend to.
  TG_HD int64_t key_end(int64_t row_end, int64_t keys) const { return causal && row_end < keys ? row_end : keys; }
};

// Dropout of attention weights: kept weights are multiplied by `scale`, the others are zero.
struct KeptWeights {
  AttentionMask mask;
  double scale;

  KeptWeights(const Tensor& kept, double kept_scale, int64_t heads) : mask(kept, false, heads), scale(kept_scale) {}
  TG_HD bool all() const { return mask.data == nullptr; }
  TG_HD bool has(int64_t h, int64_t row, int64_t key) const {
    return static_cast<const uint8_t*>(mask.data)[mask.at(h, row, key)] != 0;
  }
};

}  // namespace tapegrad::cpu::TG_ISA
