// Attention of float32 and float64 by whole matrices: products by the library, and one kernel between them that makes
// weights of scores. The library has no fused engine for these dtypes, and its products are several times as fast as
// those of our own fused kernel. A few heads at a time, so that scores take no more than kMostScoreBytes; both
// functions return false, without any effect, where one head has more, where sizes are too small to be worth several
// launches, and where there is no library.
#pragma once

#include "tapegrad/cuda/attention/tile.h"
#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda {

inline constexpr int64_t kMostScoreBytes = int64_t{256} << 20;

// What both directions read; all dense.
template <class T>
struct ProductAttention {
  attention::Sizes z;
  attention_tiles::Mask<T> mask;
  attention_tiles::KeptWeights kept;
  double scale;
  const T *query, *key, *value;
};

template <class T>
bool attention_by_products(const Work& work, const ProductAttention<T>& a, T* output, T* logsumexp);
// delta: of each row the output's product with its gradient.
template <class T>
bool attention_grad_by_products(const Work& work, const ProductAttention<T>& a, const T* grad, const T* logsumexp,
                                const T* delta, T* query_grad, T* key_grad, T* value_grad);

}  // namespace tapegrad::cuda
