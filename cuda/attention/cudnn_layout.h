// The parameters of cuDNN's attention: layouts, whether cuDNN is used at all, and the key of the choice of an engine.
// Pure functions of numbers.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "tapegrad/cuda/attention/attention_library.h"
#include "tapegrad/cuda/cudnn/graph.h"

namespace tapegrad::cuda::cudnn_graph {

inline Layout of_rows(const AttentionRows& t, int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
  return {4, {batch, heads, rows, columns}, {t.batch, t.head, t.row, 1}};
}
inline Layout dense(int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
  return {4, {batch, heads, rows, columns}, {heads * rows * columns, rows * columns, columns, 1}};
}
inline Layout of_bias(const AttentionBias& b, int64_t keys) {
  return {4, {b.batch, b.heads, b.rows, keys}, {b.heads * b.rows * b.pitch, b.rows * b.pitch, b.pitch, 1}};
}
inline Layout of_kept(const AttentionKept& t, const attention::Sizes& z) {
  return {4, {z.batch, z.heads, z.rows, z.keys}, {z.heads * z.rows * t.pitch, z.rows * t.pitch, t.pitch, 1}};
}
inline Layout transposed(Layout layout) {
  std::swap(layout.sizes[2], layout.sizes[3]);
  std::swap(layout.strides[2], layout.strides[3]);
  return layout;
}

// A part of the batch or, where one is too large by itself, of its heads.
struct Portion {
  int64_t batch, shared;
};
// The gradient's workspace has 2 bytes for each score, of lengths in whole tiles.
inline constexpr int64_t kMostScores = int64_t{1} << 28;
inline Portion portion_of(const attention::Sizes& z) {
  const auto whole = [](int64_t n) { return (n + 127) / 128 * 128; };
  const int64_t one = z.group() * whole(z.rows) * whole(z.keys), heads = kMostScores / one;
  if (heads < z.shared) return {1, heads};
  return {std::min(z.batch, heads / z.shared), z.shared};
}

// Whether there are fused engines for these sizes. They use 32-bit indices. A single key is excluded, as is a single
// causal row, which attends to the first key only: both are trivial, and some versions compute the latter wrongly with
// shared heads.
inline bool takes(DType dtype, const attention::Sizes& z, bool causal, bool backward) {
  if (dtype != DType::float16 && dtype != DType::bfloat16) return false;
  if (z.batch <= 0 || z.shared <= 0 || z.rows <= 0 || z.keys < 2 || (causal && z.rows == 1)) return false;
  for (const int64_t width : {z.width, z.value_width})
    if (width <= 0 || width % 8 != 0 || width > 256) return false;
  const int64_t lines = z.batch * z.heads * std::max(z.rows, z.keys);
  if (lines > INT32_MAX / std::max(z.width, z.value_width)) return false;
  return !backward || portion_of(z).shared > 0;
}
inline bool takes(const AttentionForward& a, bool backward) {
  if (!takes(a.dtype, a.sizes, a.causal, backward) || a.bias.numel() > INT32_MAX) return false;
  const bool counted = a.sizes.batch * a.sizes.heads * a.sizes.rows <= INT32_MAX / std::max<int64_t>(a.kept.pitch, 1);
  return counted && a.kept.scale > 0;
}

// Devices and versions. Ampere and later; the gradient not wider than 128 but on Hopper, and on the first Blackwell
// only from 9.18 on. Up to 9.15.0 it needs lengths in memory for keys in part tiles.
inline bool takes(int major, int version, const attention::Sizes& z, bool backward) {
  if (major < 8 || version < 91200) return false;
  if (!backward) return true;
  if (major != 9 && std::max(z.width, z.value_width) > 128) return false;
  if (major == 10 && version < 91800) return false;
  return version > 91500 || z.keys % 128 == 0;
}

// The alignment of vectors with a number per row (such as logsumexp), of which a portion may begin at any row.
inline int64_t row_alignment(const attention::Sizes& z) { return z.rows % 4 == 0 ? 16 : 4; }

inline bool readable(const AttentionForward& a) {
  return readable(a.query) && readable(a.key) && readable(a.value) && alignment(a.output) == 16 &&
         alignment(a.logsumexp) >= row_alignment(a.sizes);
}
inline bool readable(const AttentionBackward& b) {
  return readable(b.forward) && readable(b.grad_output) && alignment(b.query_grad) == 16 &&
         alignment(b.key_grad) == 16 && alignment(b.value_grad) == 16 &&
         alignment(b.delta) >= row_alignment(b.forward.sizes);
}

// The scale is passed with each call.
inline Key key_of(const AttentionForward& a) {
  Key key{};
  size_t i = 0;
  const attention::Sizes& z = a.sizes;
  for (const int64_t number : {int64_t{100}, static_cast<int64_t>(a.dtype), static_cast<int64_t>(a.causal), z.batch,
                               z.heads, z.shared, z.rows, z.keys, z.width, z.value_width})
    key[i++] = number;
  for (const AttentionRows* t : {&a.query, &a.key, &a.value})
    for (const int64_t stride : {t->batch, t->head, t->row}) key[i++] = stride;
  for (const int64_t size : {a.bias.batch, a.bias.heads, a.bias.rows, a.bias.pitch, a.kept.pitch}) key[i++] = size;
  return key;
}
inline Key key_of(const AttentionBackward& b) {
  Key key = key_of(b.forward);
  key[0] = 101;
  size_t i = 24;
  for (const int64_t stride : {b.grad_output.batch, b.grad_output.head, b.grad_output.row}) key[i++] = stride;
  return key;
}

// The attention of a portion.
inline AttentionBackward part_of(const AttentionBackward& all, int64_t batch, int64_t shared, const Portion& most) {
  const attention::Sizes& z = all.forward.sizes;
  AttentionBackward out = all;
  AttentionForward& a = out.forward;
  a.sizes.batch = std::min(most.batch, z.batch - batch);
  a.sizes.shared = std::min(most.shared, z.shared - shared);
  a.sizes.heads = a.sizes.shared * z.group();
  const int64_t head = shared * z.group();
  const auto rows = [&](AttentionRows& t, int64_t h) {
    t.data = static_cast<const char*>(t.data) + 2 * (batch * t.batch + h * t.head);
  };
  const auto dense = [&](const void*& p, int64_t heads, int64_t h, int64_t lines, int64_t bytes) {
    p = static_cast<const char*>(p) + (batch * heads + h) * lines * bytes;
  };
  rows(a.query, head);
  rows(a.key, shared);
  rows(a.value, shared);
  rows(out.grad_output, head);
  AttentionBias& bias = a.bias;
  const int64_t matrix = (bias.batch > 1 ? batch * bias.heads : 0) + (bias.heads > 1 ? head : 0);
  bias.data = static_cast<const char*>(bias.data) + matrix * bias.rows * bias.pitch * element_size(bias_dtype(a.dtype));
  dense(a.kept.data, z.heads, head, z.rows, 2 * a.kept.pitch);
  if (bias.batch > 1) bias.batch = a.sizes.batch;
  if (bias.heads > 1) bias.heads = a.sizes.heads;
  dense(a.output, z.heads, head, z.rows, 2 * z.value_width);
  dense(a.logsumexp, z.heads, head, z.rows, 4);
  dense(out.delta, z.heads, head, z.rows, 4);
  dense(out.query_grad, z.heads, head, z.rows, 2 * z.width);
  dense(out.key_grad, z.shared, shared, z.keys, 2 * z.width);
  dense(out.value_grad, z.shared, shared, z.keys, 2 * z.value_width);
  return out;
}

// The graphs. Raise Refusal.
TG_API void describe_attention(Graph& graph, const AttentionForward& attention);
TG_API void describe_attention_grad(Graph& graph, const AttentionBackward& attention);

}  // namespace tapegrad::cuda::cudnn_graph
