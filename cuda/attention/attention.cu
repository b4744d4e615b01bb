// Attention and its gradient. Forward: a block has 64 rows of the query and 64 columns of the value and walks over the
// keys with a running maximum and sum per row. Backward recomputes the weights from the logarithm of that sum: blocks
// with 64 keys walk over the rows of all heads that share them (gradients of key and value), blocks with 64 rows over
// the keys (gradient of the query). The strip of a first factor and the tile of weights are never needed at once and
// share memory.
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/attention/attention_library.h"
#include "tapegrad/cuda/attention/products.h"
#include "tapegrad/cuda/attention/score_numbers.h"
#include "tapegrad/cuda/attention/tile.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/memory/short_memory.h"

namespace tapegrad::cuda {
namespace {

using attention_tiles::column_of;
using attention_tiles::columns_from;
using attention_tiles::dropped;
using attention_tiles::kEach;
using attention_tiles::KeptWeights;
using attention_tiles::kPadded;
using attention_tiles::kPitch;
using attention_tiles::kStrip;
using attention_tiles::kTile;
using attention_tiles::make_scores;
using attention_tiles::Mask;
using attention_tiles::put_tile;
using attention_tiles::row_of;
using attention_tiles::row_reduce;
using attention_tiles::rows_from;
using attention_tiles::Sizes;
using steps::narrow;

template <class T>
struct Forward {
  using C = compute_t<T>;
  Sizes z;
  Mask<T> mask;
  KeptWeights kept;
  C scale;
  const T *query, *key, *value;
  T* output;
  C* logsumexp;
};

template <class T>
TG_KERNEL void attention_kernel(Forward<T> p) {
  using C = compute_t<T>;
  constexpr C kNothing = -std::numeric_limits<C>::infinity();
  TG_SHARED(C, weights, kPadded);
  TG_SHARED(C, strip, kStrip);
  const Sizes& z = p.z;
  const auto [row, column] = tiles::Corner(block_index(), z.rows);
  for (int64_t h = block_row(); h < z.batch * z.heads; h += grid_rows()) {
    const T* value = p.value + z.shared_head(h) * z.keys * z.value_width;
    tiles::Sums<C> out;
    C top[kEach], total[kEach];
    TG_UNROLL
    for (int i = 0; i < kEach; ++i) {
      top[i] = kNothing;
      total[i] = C(0);
    }
    const int64_t row_end = row + kTile < z.rows ? row + kTile : z.rows, end = p.mask.key_end(row_end, z.keys);
    for (int64_t j = 0; j < end; j += kTile) {
      tiles::Sums<C> s;
      make_scores(s, weights, strip, z, p.mask, p.scale, p.query, p.key, h, row, j);
      TG_UNROLL
      for (int i = 0; i < kEach; ++i) {
        C highest = top[i];
        TG_UNROLL
        for (int k = 0; k < kEach; ++k) highest = Largest()(s.sum[i][k], highest);
        highest = row_reduce(highest, Largest());
        const C base = highest == kNothing ? C(0) : highest, keep = math::exp(top[i] - base);
        C sum = C(0);
        TG_UNROLL
        for (int k = 0; k < kEach; ++k) {
          s.sum[i][k] = math::exp(s.sum[i][k] - base);
          sum += s.sum[i][k];
          s.sum[i][k] = dropped(s.sum[i][k], p.kept, z, h, row + row_of(i), j + column_of(k));
          out.sum[i][k] *= keep;
        }
        top[i] = highest;
        total[i] = total[i] * keep + row_reduce(sum, Sum());
      }
      put_tile(s, weights);
      out.add_left(weights, kPitch, 1, strip, columns_from(value, j, column, z.value_width),
                   end - j < kTile ? end - j : kTile);
    }
    TG_UNROLL
    for (int i = 0; i < kEach; ++i) {
      const int64_t r = row + row_of(i);
      if (r >= z.rows) continue;
      const C share = total[i] == C(0) ? C(0) : C(1) / total[i];
      TG_UNROLL
      for (int k = 0; k < kEach; ++k)
        if (column + column_of(k) < z.value_width)
          p.output[(h * z.rows + r) * z.value_width + column + column_of(k)] = narrow<T>(out.sum[i][k] * share);
      if (column == 0 && column_of(0) == 0)
        p.logsumexp[h * z.rows + r] = total[i] == C(0) ? kNothing : top[i] + math::log(total[i]);
    }
  }
}

template <class T>
struct Backward {
  using C = compute_t<T>;
  Sizes z;
  Mask<T> mask;
  KeptWeights kept;
  C scale;
  const T *grad, *query, *key, *value;
  const C *logsumexp, *delta;  // delta: of each row of the query the output's product with its gradient
  T *query_grad, *key_grad, *value_grad;
};

template <class T>
struct RowProducts {
  using C = compute_t<T>;
  const T *a, *b;
  int64_t n;
  C* out;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    C sum = C(0);
    for (int64_t i = g.lane(); i < n; i += g.lanes())
      sum += load_value(a + line * n + i) * load_value(b + line * n + i);
    sum = g.reduce(sum, Sum());
    g.sync();
    if (g.lane() == 0) out[line] = sum;
  }
};

// The tile's weights, and the gradients of its scores.
template <class T>
TG_DEVICE void weights_and_slopes(const Backward<T>& p, tiles::Sums<compute_t<T>>& w, tiles::Sums<compute_t<T>>& d,
                                  compute_t<T>* a_strip, compute_t<T>* b_strip, int64_t h, int64_t row, int64_t key) {
  using C = compute_t<T>;
  const Sizes& z = p.z;
  make_scores(w, a_strip, b_strip, z, p.mask, p.scale, p.query, p.key, h, row, key);
  d.add(a_strip, b_strip, rows_from(p.grad + h * z.rows * z.value_width, row, z.rows, z.value_width),
        rows_from(p.value + z.shared_head(h) * z.keys * z.value_width, key, z.keys, z.value_width), 0, z.value_width);
  TG_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int64_t r = row + row_of(i);
    C lse = r < z.rows ? p.logsumexp[h * z.rows + r] : C(0);
    const C minus = r < z.rows ? p.delta[h * z.rows + r] : C(0);
    if (lse == -std::numeric_limits<C>::infinity()) lse = C(0);
    TG_UNROLL
    for (int j = 0; j < kEach; ++j) {
      const int64_t k = key + column_of(j);
      const C weight = math::exp(w.sum[i][j] - lse);
      w.sum[i][j] = dropped(weight, p.kept, z, h, r, k);
      d.sum[i][j] = weight * (dropped(d.sum[i][j], p.kept, z, h, r, k) - minus) * p.scale;
    }
  }
}

template <class T>
TG_DEVICE void store_rows(const tiles::Sums<compute_t<T>>& sums, T* to, int64_t row, int64_t rows, int64_t column,
                          int64_t width) {
  sums.store([&](int i, int j, const compute_t<T>& sum) {
    if (row + i < rows && column + j < width) to[(row + i) * width + column + j] = narrow<T>(sum);
  });
}

template <class T>
TG_KERNEL void key_value_grad_kernel(Backward<T> p) {
  using C = compute_t<T>;
  TG_SHARED(C, tile, kPadded);
  TG_SHARED(C, strip, kStrip);
  const Sizes& z = p.z;
  const auto [key, column] = tiles::Corner(block_index(), z.keys);
  for (int64_t hk = block_row(); hk < z.batch * z.shared; hk += grid_rows()) {
    tiles::Sums<C> dk, dv;
    for (int64_t h = z.first_head(hk); h < z.first_head(hk) + z.group(); ++h)
      // Earlier rows see none of these keys.
      for (int64_t row = p.mask.causal ? key : 0; row < z.rows; row += kTile) {
        const int64_t depth = z.rows - row < kTile ? z.rows - row : kTile;
        tiles::Sums<C> w, d;
        weights_and_slopes(p, w, d, tile, strip, h, row, key);
        put_tile(w, tile);
        dv.add_left(tile, 1, kPitch, strip,
                    columns_from(p.grad + h * z.rows * z.value_width, row, column, z.value_width), depth);
        put_tile(d, tile);
        dk.add_left(tile, 1, kPitch, strip, columns_from(p.query + h * z.rows * z.width, row, column, z.width), depth);
      }
    store_rows(dk, p.key_grad + hk * z.keys * z.width, key, z.keys, column, z.width);
    store_rows(dv, p.value_grad + hk * z.keys * z.value_width, key, z.keys, column, z.value_width);
  }
}

template <class T>
TG_KERNEL void query_grad_kernel(Backward<T> p) {
  using C = compute_t<T>;
  TG_SHARED(C, tile, kPadded);
  TG_SHARED(C, strip, kStrip);
  const Sizes& z = p.z;
  const auto [row, column] = tiles::Corner(block_index(), z.rows);
  const int64_t row_end = row + kTile < z.rows ? row + kTile : z.rows;
  for (int64_t h = block_row(); h < z.batch * z.heads; h += grid_rows()) {
    tiles::Sums<C> dq;
    for (int64_t key = 0; key < p.mask.key_end(row_end, z.keys); key += kTile) {
      tiles::Sums<C> w, d;
      weights_and_slopes(p, w, d, tile, strip, h, row, key);
      put_tile(d, tile);
      dq.add_left(tile, kPitch, 1, strip,
                  columns_from(p.key + z.shared_head(h) * z.keys * z.width, key, column, z.width),
                  z.keys - key < kTile ? z.keys - key : kTile);
    }
    store_rows(dq, p.query_grad + h * z.rows * z.width, row, z.rows, column, z.width);
  }
}

// Tiles of rows times tiles of columns.
Grid grid_of(int64_t rows, int64_t columns, int64_t heads) {
  return {tiles::tiles_of(rows) * std::max<int64_t>(1, tiles::tiles_of(columns)), std::min<int64_t>(heads, 65535)};
}

AttentionRows rows_of(const Tensor& t) {
  const auto step = [&](int d, int64_t dense) { return t.size(d) == 1 ? dense : t.impl()->stride(d); };
  const int64_t row = step(2, t.size(3)), head = step(1, t.size(2) * row);
  return {t.data_ptr(), step(0, t.size(1) * head), head, row};
}
// The tensor itself where the library reads its rows as they lie, else a dense copy.
Tensor with_readable_rows(const Tensor& t) {
  if (t.impl()->stride(3) == 1 && readable(rows_of(t))) return t;
  const Tensor copy = empty_tensor(TensorSpec{t.sizes(), t.dtype(), t.device(), {}});
  copy_any(copy, t, false);
  return copy;
}

// The description of a call for the library, without addresses. If there is a mask, it also contains the causal mask.
// For the gradient a mask that is the same for all rows is written out for each: with 1 in that dimension cuDNN's
// engines computed wrong gradients (9.19 on an H100), while those of output and of the other dimensions were right.
AttentionForward describe_call(const Tensor& query, const Tensor& key, const Tensor& value, const Weighting& w,
                               bool gradient) {
  const Sizes z(query, key, value);
  AttentionForward a{.dtype = query.dtype(),
                     .sizes = z,
                     .causal = w.is_causal && !w.attn_mask.defined(),
                     .scale = w.scale,
                     .bias = bias_of(w.attn_mask, w.is_causal || gradient, z)};
  if (w.kept.defined()) a.kept = {nullptr, pitch_of(z.keys), w.kept_scale};
  return a;
}

// Try the library. False: nothing was done.
bool by_library(const Tensor& query, const Tensor& key, const Tensor& value, const Weighting& how, const Tensor& output,
                const Tensor& logsumexp) {
  AttentionForward a = describe_call(query, key, value, how, false);
  if (!library_takes_attention(query.device().index, a, false)) return false;
  const Tensor q = with_readable_rows(query), k = with_readable_rows(key), v = with_readable_rows(value);
  const Work work(query.device(), {&q, &k, &v, &how.attn_mask, &how.kept, &output, &logsumexp});
  const ScoreNumbers numbers(how, a, work);
  a.query = rows_of(q), a.key = rows_of(k), a.value = rows_of(v);
  a.output = output.data_ptr(), a.logsumexp = logsumexp.data_ptr();
  if (!library_attention(work, a)) return false;
  numbers.finish(output, logsumexp);
  return true;
}
bool grad_by_library(const Tensor& grad_output, const Tensor& query, const Tensor& key, const Tensor& value,
                     const Weighting& how, const Tensor& output, const Tensor& logsumexp, const Tensor& query_grad,
                     const Tensor& key_grad, const Tensor& value_grad) {
  AttentionForward a = describe_call(query, key, value, how, true);
  if (!library_takes_attention(query.device().index, a, true)) return false;
  const Tensor q = with_readable_rows(query), k = with_readable_rows(key), v = with_readable_rows(value),
               g = with_readable_rows(grad_output);
  const Work work(query.device(), {&g, &q, &k, &v, &how.attn_mask, &how.kept, &output, &logsumexp, &query_grad,
                                   &key_grad, &value_grad});
  ScoreNumbers numbers(how, a, work);
  const Workspace delta(static_cast<size_t>(logsumexp.numel()) * sizeof(float), work);
  a.query = rows_of(q), a.key = rows_of(k), a.value = rows_of(v);
  a.output = numbers.unscaled(output), a.logsumexp = numbers.logarithms(logsumexp);
  return library_attention_grad(
      work, {a, rows_of(g), query_grad.data_ptr(), key_grad.data_ptr(), value_grad.data_ptr(), delta.data()});
}

}  // namespace

void attention_cuda(const Tensor& query_any, const Tensor& key_any, const Tensor& value_any, const Tensor& attn_mask,
                    bool is_causal, double scale, const Tensor& kept, double kept_scale, const Tensor& output,
                    const Tensor& logsumexp) {
  const Sizes z(query_any, key_any, value_any);
  if (z.batch * z.heads * z.rows == 0) return;
  const Weighting how{attn_mask, is_causal, scale, kept, kept_scale};
  if (by_library(query_any, key_any, value_any, how, output, logsumexp)) return;
  const Tensor query = contiguous_or_copy(query_any), key = contiguous_or_copy(key_any),
               value = contiguous_or_copy(value_any);
  const Work work(query.device(), {&query, &key, &value, &attn_mask, &kept, &output, &logsumexp});
  dispatch_floating(query.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Mask<T> mask(attn_mask, is_causal, z.heads);
    const KeptWeights weights(kept, kept_scale, z.heads);
    if constexpr (std::is_same_v<C, T>) {
      const ProductAttention<T> all{z, mask, weights, scale, data_of<T>(query), data_of<T>(key), data_of<T>(value)};
      if (where_memory_suffices(
              [&] { return attention_by_products<T>(work, all, target_of<T>(output), target_of<T>(logsumexp)); }))
        return;
    }
    launch_block(work, &attention_kernel<T>, grid_of(z.rows, z.value_width, z.batch * z.heads), tiles::kThreads, 0,
                 Forward<T>{z, mask, weights, static_cast<C>(scale), data_of<T>(query), data_of<T>(key),
                            data_of<T>(value), target_of<T>(output), target_of<C>(logsumexp)});
  });
}

void attention_grad_cuda(const Tensor& grad_any, const Tensor& query_any, const Tensor& key_any,
                         const Tensor& value_any, const Tensor& attn_mask, const Tensor& output,
                         const Tensor& logsumexp, bool is_causal, double scale, const Tensor& kept, double kept_scale,
                         const Tensor& query_grad, const Tensor& key_grad, const Tensor& value_grad) {
  const Sizes z(query_any, key_any, value_any);
  const int64_t rows = z.batch * z.heads * z.rows;
  if (rows == 0) {
    zero_dense(key_grad);
    zero_dense(value_grad);
    return;
  }
  const Weighting how{attn_mask, is_causal, scale, kept, kept_scale};
  if (grad_by_library(grad_any, query_any, key_any, value_any, how, output, logsumexp, query_grad, key_grad,
                      value_grad))
    return;
  const Tensor grad_output = contiguous_or_copy(grad_any), query = contiguous_or_copy(query_any),
               key = contiguous_or_copy(key_any), value = contiguous_or_copy(value_any);
  const Work work(query.device(), {&grad_output, &query, &key, &value, &attn_mask, &kept, &output, &logsumexp,
                                   &query_grad, &key_grad, &value_grad});
  dispatch_floating(query.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Workspace delta(static_cast<size_t>(rows) * sizeof(C), work);
    for_lines(
        work, rows, z.value_width, false,
        RowProducts<T>{data_of<T>(grad_output), data_of<T>(output), z.value_width, static_cast<C*>(delta.data())});
    const Mask<T> mask(attn_mask, is_causal, z.heads);
    const KeptWeights weights(kept, kept_scale, z.heads);
    if constexpr (std::is_same_v<C, T>) {
      const ProductAttention<T> all{z, mask, weights, scale, data_of<T>(query), data_of<T>(key), data_of<T>(value)};
      if (where_memory_suffices([&] {
            return attention_grad_by_products<T>(work, all, data_of<T>(grad_output), data_of<T>(logsumexp),
                                                 static_cast<const T*>(delta.data()), target_of<T>(query_grad),
                                                 target_of<T>(key_grad), target_of<T>(value_grad));
          }))
        return;
    }
    const Backward<T> p{z,
                        mask,
                        weights,
                        static_cast<C>(scale),
                        data_of<T>(grad_output),
                        data_of<T>(query),
                        data_of<T>(key),
                        data_of<T>(value),
                        data_of<C>(logsumexp),
                        static_cast<const C*>(delta.data()),
                        target_of<T>(query_grad),
                        target_of<T>(key_grad),
                        target_of<T>(value_grad)};
    if (z.keys > 0)
      launch_block(work, &key_value_grad_kernel<T>,
                   grid_of(z.keys, std::max(z.width, z.value_width), z.batch * z.shared), tiles::kThreads, 0, p);
    launch_block(work, &query_grad_kernel<T>, grid_of(z.rows, z.width, z.batch * z.heads), tiles::kThreads, 0, p);
  });
}

}  // namespace tapegrad::cuda
