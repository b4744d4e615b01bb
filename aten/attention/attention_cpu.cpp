// Attention in tiles over rows of the query and rows of the key, after Dao et al., "FlashAttention", 2022: forward
// keeps a running maximum and sum per row, backward recomputes the weights from the logarithm of that sum. Everything
// is accumulated in the compute type; 16-bit inputs are converted tile by tile, unless the processor multiplies them:
// then tiles of weights and of their slopes are rounded instead. A tile of scores is padded to whole lanes with -inf,
// so that every row loop has a constant count.
#include <algorithm>
#include <limits>
#include <vector>

#include "tapegrad/aten/attention/mask.h"
#include "tapegrad/aten/attention/sizes.h"
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/linalg/product/gemm.h"
#include "tapegrad/aten/onednn/product.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

constexpr int64_t kRows = 64;   // of the query in a tile
constexpr int64_t kKeys = 256;  // of the key in a tile
constexpr int64_t kLanes = blocks::kWidth;

template <class C>
constexpr C kMinusInfinity = -std::numeric_limits<C>::infinity();

// Whether factors of products are taken as they are. For few rows reading the key and value is what takes time.
template <class T>
bool keeps_halves(const attention::Sizes& z) {
  constexpr int64_t kFew = 16;
  return is_half_type<T> && onednn::multiplies(dtype_of_v<T>) && z.group() * z.rows > kFew;
}

// A tile of weights as a factor of products.
template <class X, class C>
const X* factor_of(const C* values, int64_t rows, int64_t cols, std::vector<X>& buffer) {
  if constexpr (std::is_same_v<X, C>) {
    return values;
  } else {
    buffer.resize(static_cast<size_t>(rows * kKeys));
    for (int64_t i = 0; i < rows; ++i) convert_line(buffer.data() + i * kKeys, values + i * kKeys, cols);
    return buffer.data();
  }
}

// A tile of scores, scale * q * k. Products of 16-bit factors have no factor of their own.
template <class X, class C>
void scores_of(int64_t rows, int64_t cols, int64_t width, C scale, MatrixRef<X> q, MatrixRef<X> k, C* to) {
  constexpr bool kWithScale = std::is_same_v<X, C>;
  gemm_sums<X>(rows, cols, width, kWithScale ? scale : C(1), q, k, false, to, kKeys);
  if constexpr (!kWithScale)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < cols; ++j) to[i * kKeys + j] = scale == C(0) ? C(0) : to[i * kKeys + j] * scale;
}

// The matrices of a key or value, one per head, whose rows lie `row` elements apart.
template <class T>
struct Heads {
  const T* data;
  int64_t batch, head, row, count;
  explicit Heads(const Tensor& t)
      : data(data_of<T>(t)),
        batch(t.impl()->stride(0)),
        head(t.impl()->stride(1)),
        row(t.impl()->stride(2)),
        count(t.impl()->size(1)) {}
  // Rows from `first` on, as converted() gives them.
  template <class C>
  MatrixRef<C> rows(int64_t h, int64_t first, int64_t many, int64_t width, std::vector<C>& buffer) const {
    const T* p = data + h / count * batch + h % count * head + first * row;
    if constexpr (std::is_same_v<C, T>) {
      return {p, row, 1};
    } else if (row == width) {
      return {converted<C>(p, many * width, buffer), width, 1};
    } else {
      buffer.resize(static_cast<size_t>(many * width));
      for (int64_t i = 0; i < many; ++i) convert_line(buffer.data() + i * width, p + i * row, width);
      return {buffer.data(), width, 1};
    }
  }
};

// Few queries read each row of key and value once: a copy in order would cost more than all the rest. That is how a
// cache of keys is used, of which a part is filled.
Tensor in_order(const Tensor& t, int64_t queries) {
  constexpr int64_t kFew = 16;
  return queries <= kFew && t.impl()->stride(3) == 1 ? t : contiguous_or_copy(t);
}

using attention::Sizes;

template <class T>
struct Mask : AttentionMask {
  using AttentionMask::AttentionMask;
  // Scores (i, j) of a tile that begins at (row, key) of head `h`; -inf from `cols` to whole lanes.
  template <class C>
  void apply(C* scores, int64_t h, int64_t row, int64_t rows, int64_t key, int64_t cols) const {
    int64_t padded = (cols + kLanes - 1) / kLanes * kLanes;
    for (int64_t i = 0; i < rows; ++i) {
      C* s = scores + i * kKeys;
      int64_t seen = causal ? std::clamp<int64_t>(row + i + 1 - key, 0, cols) : cols;
      if (data) {
        int64_t first = at(h, row + i, key), step = stride[3];
        if (boolean) {
          const uint8_t* m = static_cast<const uint8_t*>(data) + first;
          for (int64_t j = 0; j < seen; ++j) s[j] = m[j * step] ? s[j] : kMinusInfinity<C>;
        } else {
          const T* m = static_cast<const T*>(data) + first;
          for (int64_t j = 0; j < seen; ++j) s[j] += static_cast<C>(m[j * step]);
        }
      }
      for (int64_t j = seen; j < padded; ++j) s[j] = kMinusInfinity<C>;
    }
  }
};

// Values of a tile times what dropout makes of its weights.
template <class C>
void drop(C* values, const KeptWeights& kept, int64_t h, int64_t row, int64_t rows, int64_t key, int64_t cols) {
  if (kept.all()) return;
  const C scale = static_cast<C>(kept.scale);
  const int64_t step = kept.mask.stride[3];
  for (int64_t i = 0; i < rows; ++i) {
    C* v = values + i * kKeys;
    const uint8_t* k = static_cast<const uint8_t*>(kept.mask.data) + kept.mask.at(h, row + i, key);
    if (step == 1)
      for (int64_t j = 0; j < cols; ++j) v[j] = k[j] ? v[j] * scale : C(0);
    else
      for (int64_t j = 0; j < cols; ++j) v[j] = k[j * step] ? v[j] * scale : C(0);
  }
}

template <class C>
C fold_max(const C* s, int64_t n) {
  C lane[kLanes];
  for (int64_t l = 0; l < kLanes; ++l) lane[l] = s[l];
  for (int64_t j = kLanes; j < n; j += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lane[l] = s[j + l] > lane[l] ? s[j + l] : lane[l];
  for (int64_t w = kLanes / 2; w > 0; w /= 2)
    for (int64_t l = 0; l < w; ++l) lane[l] = lane[l + w] > lane[l] ? lane[l + w] : lane[l];
  return lane[0];
}

template <class C>
C fold_sum(C* lane) {
  for (int64_t w = kLanes / 2; w > 0; w /= 2)
    for (int64_t l = 0; l < w; ++l) lane[l] += lane[l + w];
  return lane[0];
}

// s = exp(s - top) over whole lanes; the sum.
template <class C>
C exponentials(C* s, int64_t n, C top) {
  C lane[kLanes] = {};
  for (int64_t j = 0; j < n; j += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) {
      C e = math::exp(s[j + l] - top);
      s[j + l] = e;
      lane[l] += e;
    }
  return fold_sum(lane);
}

template <class C>
C dot_rows(const C* a, const C* b, int64_t n) {
  C lane[kLanes] = {};
  int64_t j = 0;
  for (; j + kLanes <= n; j += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lane[l] += a[j + l] * b[j + l];
  for (; j < n; ++j) lane[j % kLanes] += a[j] * b[j];
  return fold_sum(lane);
}

// X: of the factors of products, T or its compute type.
template <class X, class T>
void forward(const Sizes& z, const Mask<T>& mask, double scale, const KeptWeights& kept, const T* query,
             const Heads<T>& key, const Heads<T>& value, T* output, compute_t<T>* logsumexp) {
  using C = compute_t<T>;
  const int64_t tiles = (z.rows + kRows - 1) / kRows;
  // Heads that share key and value lie side by side: where they are one tile, those are read once for all.
  const int64_t heads = z.group() * z.rows <= kRows ? z.group() : 1, most = std::min(kRows, heads * z.rows);
  const double work =
      static_cast<double>(most) * static_cast<double>(z.keys) * static_cast<double>(z.width + z.value_width) + 1;
  const int64_t count = z.batch * z.heads / heads * tiles, grain = static_cast<int64_t>(5e5 / work) + 1;
  parallel_for(0, count, grain, [&](int64_t first, int64_t last) {
    std::vector<C> scores(static_cast<size_t>(most * kKeys)), sums(static_cast<size_t>(most * z.value_width));
    std::vector<X> q_buffer, k_buffer, v_buffer, w_buffer;
    C top[kRows], total[kRows];
    for (int64_t t = first; t < last; ++t) {
      const int64_t h = t / tiles * heads, row = t % tiles * kRows, of_head = std::min(kRows, z.rows - row);
      const int64_t rows = of_head * heads, hk = z.shared_head(h);
      std::fill(top, top + rows, kMinusInfinity<C>);
      std::fill(total, total + rows, C(0));
      std::fill(sums.begin(), sums.end(), C(0));
      const X* q = converted<X>(query + (h * z.rows + row) * z.width, rows * z.width, q_buffer);
      int64_t end = mask.key_end(row + of_head, z.keys);
      for (int64_t j = 0; j < end; j += kKeys) {
        check_interrupt();
        int64_t cols = std::min(kKeys, end - j), padded = (cols + kLanes - 1) / kLanes * kLanes;
        const MatrixRef<X> k = key.rows(hk, j, cols, z.width, k_buffer);
        const MatrixRef<X> v = value.rows(hk, j, cols, z.value_width, v_buffer);
        scores_of<X>(rows, cols, z.width, static_cast<C>(scale), {q, z.width, 1}, {k.data, 1, k.row}, scores.data());
        for (int64_t i = 0; i < heads; ++i)
          mask.apply(scores.data() + i * of_head * kKeys, h + i, row, of_head, j, cols);
        for (int64_t i = 0; i < rows; ++i) {
          C* s = scores.data() + i * kKeys;
          C highest = std::max(top[i], fold_max(s, padded));
          C base = highest == kMinusInfinity<C> ? C(0) : highest;
          C keep = std::exp(top[i] - base);
          top[i] = highest;
          total[i] = total[i] * keep + exponentials(s, padded, base);
          if (keep != C(1)) {
            C* o = sums.data() + i * z.value_width;
            for (int64_t d = 0; d < z.value_width; ++d) o[d] *= keep;
          }
        }
        for (int64_t i = 0; i < heads; ++i)
          drop(scores.data() + i * of_head * kKeys, kept, h + i, row, of_head, j, cols);
        const X* weights = factor_of<X>(scores.data(), rows, cols, w_buffer);
        gemm_sums<X>(rows, z.value_width, cols, C(1), {weights, kKeys, 1}, v, true, sums.data(), z.value_width);
      }
      for (int64_t i = 0; i < rows; ++i) {
        C share = total[i] == C(0) ? C(0) : C(1) / total[i];
        const C* o = sums.data() + i * z.value_width;
        T* to = output + (h * z.rows + row + i) * z.value_width;
        for (int64_t d = 0; d < z.value_width; ++d) to[d] = T(o[d] * share);
        logsumexp[h * z.rows + row + i] = total[i] == C(0) ? kMinusInfinity<C> : top[i] + std::log(total[i]);
      }
    }
  });
}

// One head of key and value with the query's heads that share it: nothing else touches their gradients.
template <class X, class T>
struct Backward {
  using C = compute_t<T>;
  const Sizes& z;
  const Mask<T>& mask;
  const KeptWeights& kept;
  C scale;
  const T *grad, *query, *key, *value, *output;
  const C* logsumexp;
  T *query_grad, *key_grad, *value_grad;

  void head(int64_t hk) const {
    int64_t group = z.group(), h0 = z.first_head(hk);
    int64_t all = group * z.rows;
    std::vector<C> scores(kRows * kKeys), slopes(kRows * kKeys), delta(static_cast<size_t>(all));
    std::vector<C> dq(static_cast<size_t>(all * z.width)), dk(static_cast<size_t>(kKeys * z.width)),
        dv(static_cast<size_t>(kKeys * z.value_width));
    std::vector<X> q_buffer, k_buffer, v_buffer, g_buffer, w_buffer, d_buffer;
    std::vector<C> wide_grad, wide_output;
    for (int64_t i = 0; i < all; ++i) {
      int64_t at = (h0 * z.rows + i) * z.value_width;
      delta[static_cast<size_t>(i)] = dot_rows(converted<C>(grad + at, z.value_width, wide_grad),
                                               converted<C>(output + at, z.value_width, wide_output), z.value_width);
    }
    for (int64_t j = 0; j < z.keys; j += kKeys) {
      int64_t cols = std::min(kKeys, z.keys - j);
      const X* k = converted<X>(key + (hk * z.keys + j) * z.width, cols * z.width, k_buffer);
      const X* v = converted<X>(value + (hk * z.keys + j) * z.value_width, cols * z.value_width, v_buffer);
      std::fill(dk.begin(), dk.end(), C(0));
      std::fill(dv.begin(), dv.end(), C(0));
      for (int64_t h = h0; h < h0 + group; ++h)
        for (int64_t row = 0; row < z.rows; row += kRows) {
          int64_t rows = std::min(kRows, z.rows - row), at = h * z.rows + row, local = (h - h0) * z.rows + row;
          if (mask.causal && j >= row + rows) continue;
          check_interrupt();
          const X* q = converted<X>(query + at * z.width, rows * z.width, q_buffer);
          const X* g = converted<X>(grad + at * z.value_width, rows * z.value_width, g_buffer);
          scores_of<X>(rows, cols, z.width, scale, {q, z.width, 1}, {k, 1, z.width}, scores.data());
          gemm_sums<X>(rows, cols, z.value_width, C(1), {g, z.value_width, 1}, {v, 1, z.value_width}, false,
                       slopes.data(), kKeys);
          mask.apply(scores.data(), h, row, rows, j, cols);
          drop(slopes.data(), kept, h, row, rows, j, cols);
          for (int64_t i = 0; i < rows; ++i) {
            C *s = scores.data() + i * kKeys, *d = slopes.data() + i * kKeys;
            C lse = logsumexp[at + i], minus = delta[static_cast<size_t>(local + i)];
            if (lse == kMinusInfinity<C>) lse = C(0);
            for (int64_t c = 0; c < cols; ++c) {
              C w = math::exp(s[c] - lse);
              s[c] = w;
              d[c] = w * (d[c] - minus) * scale;
            }
          }
          drop(scores.data(), kept, h, row, rows, j, cols);
          const X* w = factor_of<X>(scores.data(), rows, cols, w_buffer);
          const X* d = factor_of<X>(slopes.data(), rows, cols, d_buffer);
          gemm_sums<X>(cols, z.value_width, rows, C(1), {w, 1, kKeys}, {g, z.value_width, 1}, true, dv.data(),
                       z.value_width);
          gemm_sums<X>(cols, z.width, rows, C(1), {d, 1, kKeys}, {q, z.width, 1}, true, dk.data(), z.width);
          gemm_sums<X>(rows, z.width, cols, C(1), {d, kKeys, 1}, {k, z.width, 1}, true, dq.data() + local * z.width,
                       z.width);
        }
      convert_line(key_grad + (hk * z.keys + j) * z.width, dk.data(), cols * z.width);
      convert_line(value_grad + (hk * z.keys + j) * z.value_width, dv.data(), cols * z.value_width);
    }
    convert_line(query_grad + h0 * z.rows * z.width, dq.data(), all * z.width);
  }
};

}  // namespace

void attention_cpu(const Tensor& query_any, const Tensor& key_any, const Tensor& value_any, const Tensor& attn_mask,
                   bool is_causal, double scale, const Tensor& kept, double kept_scale, const Tensor& output,
                   const Tensor& logsumexp) {
  Sizes z(query_any, key_any, value_any);
  if (z.batch * z.heads * z.rows == 0) return;
  const Tensor query = contiguous_or_copy(query_any), key = in_order(key_any, z.rows),
               value = in_order(value_any, z.rows);
  dispatch_floating(query.dtype(), [&]<class T>() {
    const auto run = keeps_halves<T>(z) ? forward<T, T> : forward<compute_t<T>, T>;
    run(z, Mask<T>(attn_mask, is_causal, z.heads), scale, KeptWeights(kept, kept_scale, z.heads), data_of<T>(query),
        Heads<T>(key), Heads<T>(value), target_of<T>(output), target_of<compute_t<T>>(logsumexp));
  });
}

void attention_grad_cpu(const Tensor& grad_any, const Tensor& query_any, const Tensor& key_any, const Tensor& value_any,
                        const Tensor& attn_mask, const Tensor& output, const Tensor& logsumexp, bool is_causal,
                        double scale, const Tensor& kept, double kept_scale, const Tensor& query_grad,
                        const Tensor& key_grad, const Tensor& value_grad) {
  Sizes z(query_any, key_any, value_any);
  if (z.batch * z.shared == 0) return;
  const Tensor grad_output = contiguous_or_copy(grad_any), query = contiguous_or_copy(query_any),
               key = contiguous_or_copy(key_any), value = contiguous_or_copy(value_any);
  double work = static_cast<double>(z.heads / z.shared * z.rows) * static_cast<double>(z.keys) *
                    static_cast<double>(3 * z.width + 2 * z.value_width) +
                1;
  dispatch_floating(query.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    auto in = [](const Tensor& t) { return static_cast<const T*>(t.data_ptr()); };
    auto out = [](const Tensor& t) { return static_cast<T*>(t.data_ptr()); };
    const Mask<T> mask(attn_mask, is_causal, z.heads);
    const KeptWeights kept_weights(kept, kept_scale, z.heads);
    auto run = [&]<class X>(X) {
      Backward<X, T> backward{z,
                              mask,
                              kept_weights,
                              static_cast<C>(scale),
                              in(grad_output),
                              in(query),
                              in(key),
                              in(value),
                              in(output),
                              static_cast<const C*>(logsumexp.data_ptr()),
                              out(query_grad),
                              out(key_grad),
                              out(value_grad)};
      parallel_for(0, z.batch * z.shared, static_cast<int64_t>(5e5 / work) + 1, [&](int64_t first, int64_t last) {
        for (int64_t hk = first; hk < last; ++hk) backward.head(hk);
      });
    };
    keeps_halves<T>(z) ? run(T()) : run(C());
  });
}

}  // namespace tapegrad::cpu::TG_ISA
