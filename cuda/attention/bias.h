// A mask as the library reads it: a dense tensor that is added to the scores. What is hidden is far below every score
// instead of at -infinity, of which engines would make NaN where the first keys of a row are hidden; exp() makes zero
// of it all the same. Rows that see nothing are found here, too, for results that are no average over all keys.
#pragma once

#include <optional>

#include "tapegrad/cuda/attention/library.h"
#include "tapegrad/cuda/attention/tile.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/memory/storage.h"

namespace tapegrad::cuda {

// Which element of a vector with one for every row of the bias stands for a row of the scores.
struct BiasRow {
  int64_t heads, rows;  // of the scores
  AttentionBias bias;
  TG_DEVICE int64_t operator()(int64_t line) const {
    const int64_t row = line % rows, h = line / rows % heads, b = line / rows / heads;
    return ((bias.batch == 1 ? 0 : b) * bias.heads + (bias.heads == 1 ? 0 : h)) * bias.rows +
           (bias.rows == 1 ? 0 : row);
  }
};

template <class T>
struct MakeBias {
  using B = std::conditional_t<std::is_same_v<T, Half>, float, T>;
  static constexpr float kHidden = -1e30F, kNothing = -std::numeric_limits<float>::infinity();
  attention_tiles::Mask<T> mask;
  AttentionBias bias;
  int64_t keys;
  B* to;
  uint8_t* sees;  // of each row
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    const int64_t row = line % bias.rows, h = line / bias.rows % bias.heads, b = line / bias.rows / bias.heads;
    int any = 0;
    for (int64_t key = g.lane(); key < bias.pitch; key += g.lanes()) {
      const float v = key < keys ? mask.apply(0.0F, b * mask.heads + h, row, key) : kNothing;
      any |= v != kNothing;
      store_value(to + line * bias.pitch + key, v < kHidden ? kHidden : v);
    }
    any = g.reduce(any, Largest());
    g.sync();
    if (g.lane() == 0) sees[line] = static_cast<uint8_t>(any);
  }
};

template <class T>
struct EmptyRows {
  BiasRow of;
  const uint8_t* sees;
  int64_t width;
  T* output;
  float* logsumexp;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    if (sees[of(line)]) return;
    for (int64_t i = g.lane(); i < width; i += g.lanes()) store_value(output + line * width + i, 0.0F);
    if (g.lane() == 0) logsumexp[line] = -std::numeric_limits<float>::infinity();
  }
};

// Weights are exp(score - logarithm).
struct Logarithms {
  BiasRow of;
  const uint8_t* sees;
  const float* from;
  float* to;
  TG_DEVICE void operator()(int64_t line) const {
    to[line] = sees[of(line)] ? from[line] : std::numeric_limits<float>::infinity();
  }
};

// The bias of a call, in memory while this lives. Nothing at all without a mask.
class DenseMask {
 public:
  DenseMask(const Tensor& mask, bool is_causal, const attention::Sizes& z, DType dtype, const Work& work)
      : work_(work), of_{z.heads, z.rows, bias_of(mask, is_causal, z)}, lines_(z.batch * z.heads * z.rows) {
    AttentionBias& bias = of_.bias;
    if (!bias.defined()) return;
    const int64_t lines = bias.batch * bias.heads * bias.rows;
    elements_.emplace(static_cast<size_t>(bias.numel() * element_size(bias_dtype(dtype))), work);
    sees_.emplace(static_cast<size_t>(lines), work);
    bias.data = elements_->data();
    const auto make = [&]<class T>() {
      for_lines(work, lines, bias.pitch, false,
                MakeBias<T>{attention_tiles::Mask<T>(mask, is_causal, z.heads), bias, z.keys,
                            static_cast<typename MakeBias<T>::B*>(elements_->data()), sees()});
    };
    dtype == DType::float16 ? make.template operator()<Half>() : make.template operator()<BFloat16>();
  }
  const AttentionBias& bias() const { return of_.bias; }

  // Zeros for rows that see nothing, and the logarithm of an empty sum.
  void finish(const Tensor& output, const Tensor& logsumexp) const {
    if (!bias().defined()) return;
    const int64_t width = output.size(3);
    const auto finish = [&]<class T>() {
      for_lines(work_, lines_, width, false,
                EmptyRows<T>{of_, sees(), width, target_of<T>(output), target_of<float>(logsumexp)});
    };
    output.dtype() == DType::float16 ? finish.template operator()<Half>() : finish.template operator()<BFloat16>();
  }
  // The logarithms that make the weights of such rows zero in the gradient.
  const void* logarithms(const Tensor& logsumexp) {
    if (!bias().defined()) return logsumexp.data_ptr();
    logarithms_.emplace(static_cast<size_t>(lines_) * sizeof(float), work_);
    for_elements(work_, lines_,
                 Logarithms{of_, sees(), data_of<float>(logsumexp), static_cast<float*>(logarithms_->data())});
    return logarithms_->data();
  }

 private:
  uint8_t* sees() const { return static_cast<uint8_t*>(sees_->data()); }

  const Work& work_;
  BiasRow of_;
  int64_t lines_;
  std::optional<Workspace> elements_, sees_, logarithms_;
};

}  // namespace tapegrad::cuda
