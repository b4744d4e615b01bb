// Masks and dropout in the library's format: dense tensors that are added to the scores and multiplied with the
// weights. Hidden scores get a finite value far below every score, not -infinity, from which engines would compute NaN
// if the first keys of a row are hidden; its exp() is zero all the same. Fully masked rows are found here, too, since
// the library would average over all keys for them.
#pragma once

#include <optional>

#include "tapegrad/cuda/attention/attention_library.h"
#include "tapegrad/cuda/attention/tile.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/memory/storage.h"

namespace tapegrad::cuda {

// Maps a row of the scores to its element in a vector with one element per row of the bias.
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

template <class T>
struct MakeKept {
  attention_tiles::KeptWeights kept;
  attention::Sizes z;
  int64_t pitch;
  T* to;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    const auto* from = static_cast<const uint8_t*>(kept.mask.data) + kept.mask.at(line / z.rows, line % z.rows, 0);
    const int64_t step = kept.mask.stride[3];
    for_packs<T>(g, pitch, pitch % kRowPack<T> == 0, [&]<int V>(int64_t key) {
      Values<float, V> factors;
      TG_UNROLL
      for (int j = 0; j < V; ++j) factors.v[j] = key + j < z.keys && from[(key + j) * step] != 0 ? 1.0F : 0.0F;
      store_values<V>(to + line * pitch + key, factors);
    });
  }
};

template <class T>
struct Scaled {
  const T* from;
  float factor;
  T* to;
  TG_DEVICE void operator()(int64_t i) const { store_value(to + i, load_value(from + i) * factor); }
};

// The operator's arguments that determine how scores become weights.
struct Weighting {
  const Tensor& attn_mask;
  bool is_causal;
  double scale;
  const Tensor& kept;
  double kept_scale;
};

// Owns the bias and the dropout factors of a call; empty if there are none.
class ScoreNumbers {
 public:
  // Sets their addresses in `a`.
  ScoreNumbers(const Weighting& how, AttentionForward& a, const Work& work)
      : work_(work),
        of_{a.sizes.heads, a.sizes.rows, {}},
        lines_(a.sizes.batch * a.sizes.heads * a.sizes.rows),
        kept_scale_(how.kept_scale) {
    const auto make = [&]<class T>() {
      if (a.bias.defined()) make_bias<T>(how, a);
      if (a.kept.defined()) make_kept<T>(how, a);
    };
    a.dtype == DType::float16 ? make.template operator()<Half>() : make.template operator()<BFloat16>();
    of_.bias = a.bias;
  }

  // Writes the result of fully masked rows: zeros, and the logarithm of an empty sum.
  void finish(const Tensor& output, const Tensor& logsumexp) const {
    if (!of_.bias.defined()) return;
    const int64_t width = output.size(3);
    const auto finish = [&]<class T>() {
      for_lines(work_, lines_, width, false,
                EmptyRows<T>{of_, sees(), width, target_of<T>(output), target_of<float>(logsumexp)});
    };
    output.dtype() == DType::float16 ? finish.template operator()<Half>() : finish.template operator()<BFloat16>();
  }
  // The logarithms with which the weights of such rows are zero in the gradient.
  const void* logarithms(const Tensor& logsumexp) {
    if (!of_.bias.defined()) return logsumexp.data_ptr();
    logarithms_.emplace(static_cast<size_t>(lines_) * sizeof(float), work_);
    for_elements(work_, lines_,
                 Logarithms{of_, sees(), data_of<float>(logsumexp), static_cast<float*>(logarithms_->data())});
    return logarithms_->data();
  }

  // What delta is made of: with dropout the output without its scale. A graph that multiplies delta itself is accepted,
  // and the multiplication is left out (cuDNN 9.19 on an H100).
  const void* unscaled(const Tensor& output) {
    if (!kept_) return output.data_ptr();
    unscaled_.emplace(static_cast<size_t>(output.numel()) * 2, work_);
    const auto divide = [&]<class T>() {
      for_elements(
          work_, output.numel(),
          Scaled<T>{data_of<T>(output), static_cast<float>(1 / kept_scale_), static_cast<T*>(unscaled_->data())});
    };
    output.dtype() == DType::float16 ? divide.template operator()<Half>() : divide.template operator()<BFloat16>();
    return unscaled_->data();
  }

 private:
  template <class T>
  void make_bias(const Weighting& how, AttentionForward& a) {
    using B = typename MakeBias<T>::B;
    AttentionBias& bias = a.bias;
    const int64_t lines = bias.batch * bias.heads * bias.rows;
    bias_.emplace(static_cast<size_t>(bias.numel()) * sizeof(B), work_);
    sees_.emplace(static_cast<size_t>(lines), work_);
    bias.data = bias_->data();
    const attention_tiles::Mask<T> mask(how.attn_mask, how.is_causal, a.sizes.heads);
    for_lines(work_, lines, bias.pitch, false,
              MakeBias<T>{mask, bias, a.sizes.keys, static_cast<B*>(bias_->data()), sees()});
  }
  template <class T>
  void make_kept(const Weighting& how, AttentionForward& a) {
    kept_.emplace(static_cast<size_t>(lines_ * a.kept.pitch) * sizeof(T), work_);
    a.kept.data = kept_->data();
    const attention_tiles::KeptWeights kept(how.kept, how.kept_scale, a.sizes.heads);
    for_lines(work_, lines_, a.kept.pitch, false,
              MakeKept<T>{kept, a.sizes, a.kept.pitch, static_cast<T*>(kept_->data())});
  }
  uint8_t* sees() const { return static_cast<uint8_t*>(sees_->data()); }

  const Work& work_;
  BiasRow of_;
  int64_t lines_;
  double kept_scale_;
  std::optional<Workspace> bias_, kept_, sees_, logarithms_, unscaled_;
};

}  // namespace tapegrad::cuda
