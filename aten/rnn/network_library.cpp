#include "tapegrad/aten/rnn/network_library.h"

#include <algorithm>

#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_rnn.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_rnn.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad {
namespace rnn {

std::atomic<ChooseMethod> choose_method{nullptr};

std::vector<Piece> pieces_of(const NetworkSizes& s) {
  std::vector<Piece> pieces;
  int64_t offset = 0;
  const auto add = [&](int64_t at, Part part, int64_t rows, int64_t columns) {
    pieces.push_back({at, part, offset, rows, columns});
    offset += rows * columns;
  };
  const int64_t count = s.layers * s.directions();
  for (int64_t at = 0; at < count; ++at) {
    add(at, Part::OfInput, s.rows(), s.input_of(at / s.directions()));
    add(at, Part::OfState, s.rows(), s.state);
    if (s.projects()) add(at, Part::Projection, s.state, s.hidden);
  }
  for (int64_t at = 0; s.biases && at < count; ++at) {
    add(at, Part::InputBias, s.rows(), 1);
    add(at, Part::StateBias, s.rows(), 1);
  }
  return pieces;
}

namespace {

template <class Weights>  // const or not
auto& member(Weights& w, Part part) {
  switch (part) {
    case Part::OfInput:
      return w.w_ih;
    case Part::OfState:
      return w.w_hh;
    case Part::Projection:
      return w.w_hr;
    case Part::InputBias:
      return w.b_ih;
    default:
      return w.b_hh;
  }
}

NetworkSizes sizes_of(const Tensor& input, const Tensor& hx, const Tensor& cx, std::span<const LayerWeights> weights,
                      Cell cell, bool bidirectional) {
  const int64_t state = hx.size(2), count = static_cast<int64_t>(weights.size());
  return {cell,          weights[0].b_ih.defined(),         bidirectional, count / (bidirectional ? 2 : 1),
          input.size(1), cx.defined() ? cx.size(2) : state, state};
}

// Whether the layers' own checks would find nothing.
bool fits(const Tensor& input, const Tensor& hx, const Tensor& cx, std::span<const LayerWeights> weights,
          IntSpan batch_sizes, const NetworkSizes& sizes) {
  const auto alike = [&](const Tensor& t) { return t.dtype() == input.dtype() && t.device() == input.device(); };
  if (!alike(hx) || (cx.defined() && !alike(cx))) return false;
  int64_t total = 0, before = hx.size(1);
  for (const int64_t size : batch_sizes) {
    if (size < 0 || size > before) return false;
    total += size;
    before = size;
  }
  if (batch_sizes.empty() || batch_sizes[0] != hx.size(1) || total != input.size(0)) return false;
  for (const Piece& piece : pieces_of(sizes)) {
    const Tensor& t = member(weights[static_cast<size_t>(piece.at)], piece.part);
    const bool bias = is_bias(piece.part);
    if (!t.defined() || !alike(t) || t.ndim() != (bias ? 1 : 2) || t.size(0) != piece.rows) return false;
    if (!bias && t.size(1) != piece.columns) return false;
  }
  return true;
}

bool wants_gradient(const Tensor& t) { return t.defined() && t.requires_grad(); }
bool any_wants_gradient(const LayerWeights& w) {
  return wants_gradient(w.w_ih) || wants_gradient(w.w_hh) || wants_gradient(w.b_ih) || wants_gradient(w.b_hh) ||
         wants_gradient(w.w_hr);
}

}  // namespace

Tensor joined_weights(std::span<const LayerWeights> weights) {
  std::vector<Tensor> flat;
  const auto add = [&](const Tensor& t) {
    if (t.defined()) flat.push_back(reshape(t, {t.numel()}));
  };
  for (const LayerWeights& w : weights) {
    add(w.w_ih);
    add(w.w_hh);
    add(w.w_hr);
  }
  for (const LayerWeights& w : weights) {
    add(w.b_ih);
    add(w.b_hh);
  }
  return cat(flat, 0);
}

std::vector<LayerWeights> separate_weights(const Tensor& all, const NetworkSizes& sizes) {
  std::vector<LayerWeights> weights(static_cast<size_t>(sizes.layers * sizes.directions()));
  for (const Piece& piece : pieces_of(sizes)) {
    const Tensor flat = narrow(all, 0, piece.offset, piece.rows * piece.columns);
    member(weights[static_cast<size_t>(piece.at)], piece.part) =
        is_bias(piece.part) ? flat : reshape(flat, {piece.rows, piece.columns});
  }
  return weights;
}

std::optional<LayerResult> by_library(const Tensor& input, const Tensor& hx, const Tensor& cx,
                                      std::span<const LayerWeights> weights, IntSpan batch_sizes, Cell cell,
                                      bool bidirectional) {
  const ChooseMethod choose = choose_method.load(std::memory_order_acquire);
  if (choose == nullptr || !input.is_cuda() || input.ndim() != 2 || weights.empty()) return std::nullopt;
  const NetworkSizes sizes = sizes_of(input, hx, cx, weights, cell, bidirectional);
  if (!fits(input, hx, cx, weights, batch_sizes, sizes)) return std::nullopt;
  const bool training = grad_enabled() && (wants_gradient(input) || wants_gradient(hx) || wants_gradient(cx) ||
                                           std::ranges::any_of(weights, any_wants_gradient));
  const std::optional<Method> method = choose({sizes, input.dtype(), input.device(), batch_sizes, training});
  if (!method) return std::nullopt;
  try {
    auto [output, hy, cy, kept] =
        _rnn_network(input, hx, cx, joined_weights(weights), batch_sizes, static_cast<int64_t>(cell), sizes.biases,
                     sizes.layers, bidirectional, method->number, method->reserve);
    return LayerResult{output, hy, cell == Cell::Lstm ? cy : Tensor()};
  } catch (const Refused&) {
    return std::nullopt;
  }
}

}  // namespace rnn

namespace cpu {
namespace {
[[noreturn]] void no_library() {
  TG_THROW(NotImplemented, "rnn: the CPU has no library of recurrent networks: use rnn_layer");
}
}  // namespace

void rnn_network_cpu(const Tensor&, const Tensor&, const Tensor&, const Tensor&, IntSpan, int64_t, bool, int64_t, bool,
                     int64_t, int64_t, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  no_library();
}
void rnn_network_grad_cpu(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&,
                          const Tensor&, const Tensor&, const Tensor&, IntSpan, int64_t, bool, int64_t, bool, int64_t,
                          bool, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  no_library();
}

}  // namespace cpu
}  // namespace tapegrad
