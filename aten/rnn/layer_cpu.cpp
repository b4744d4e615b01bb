// A recurrent layer in one direction. The input's part of all steps is one product; then chunks of sequences, which are
// independent of each other, go through the steps: a product with the state's weight and the pointwise part of the
// cell.
#include "tapegrad/aten/rnn/cell.h"
#include "tapegrad/aten/rnn/gates.h"
#include "tapegrad/aten/rnn/packed_product.h"
#include "tapegrad/aten/rnn/walk.h"
#include "tapegrad/aten/typed.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using rnn::Cell;
using rnn::Walk;

// Sums in `g`, replaced by the gates; h next is out tanh(c next).
template <class T>
void lstm_row(int64_t h, T* __restrict g, const T* __restrict bias, const T* __restrict c, T* __restrict c_next,
              T* __restrict out) {
  for (int64_t j = 0; j < h; ++j) {
    const auto x = FastLstm<T>::from_sums(g[j] + bias[j], g[h + j] + bias[h + j], g[2 * h + j] + bias[2 * h + j],
                                          g[3 * h + j] + bias[3 * h + j]);
    const T next = x.next(c[j]);
    g[j] = x.in;
    g[h + j] = x.forget;
    g[2 * h + j] = x.cell;
    g[3 * h + j] = x.out;
    c_next[j] = next;
    out[j] = x.hidden(next);
  }
}

// The input's sums in the first three parts of `g`, the state's in `s`; kept: reset, update, new, the state's part.
template <class T>
void gru_row(int64_t h, T* __restrict g, const T* __restrict s, const T* __restrict bias, const T* __restrict bias_h,
             const T* __restrict before, T* __restrict out) {
  for (int64_t j = 0; j < h; ++j) {
    const auto x = FastGru<T>::from_sums(g[j] + bias[j], g[h + j] + bias[h + j], g[2 * h + j] + bias[2 * h + j],
                                         s[j] + bias_h[j], s[h + j] + bias_h[h + j], s[2 * h + j] + bias_h[2 * h + j]);
    g[j] = x.reset;
    g[h + j] = x.update;
    g[2 * h + j] = x.next;
    g[3 * h + j] = x.part;
    out[j] = x.hidden(before[j]);
  }
}

template <class T>
void elman_row(int64_t h, T* __restrict out, const T* __restrict bias, bool relu) {
  if (relu) {
    for (int64_t j = 0; j < h; ++j) {
      const T x = out[j] + bias[j];
      out[j] = x < T(0) ? T(0) : x;  // keeps NaN
    }
  } else {
    for (int64_t j = 0; j < h; ++j) out[j] = hyperbolic(out[j] + bias[j]);
  }
}

template <class T>
class Forward {
 public:
  Forward(const Walk& walk, Cell cell, int64_t h, int64_t p)
      : walk_(walk), cell_(cell), h_(h), p_(p), stride_(rnn::kept_width(cell, h, sizeof(T))) {}

  const T *hx, *cx;
  T *output, *gates, *cells;
  const T *bias, *bias_h;

  // The pointwise part of the i-th step for the sequences [first, last), whose products with the state are in `sums` (a
  // GRU's) or have been added to the input's. `full` takes the h's of an LSTM with projections.
  void pointwise(int64_t i, int64_t first, int64_t last, const T* sums, T* full) const {
    const int64_t at = walk_.first(i);
    for (int64_t row = first; row < last; ++row) {
      T *out = output + (at + row) * p_, *g = gates + (at + row) * stride_;
      if (cell_ == Cell::Lstm) {
        lstm_row<T>(h_, g, bias, walk_.previous<T>(i, row, cells, cx, h_), cells + (at + row) * h_,
                    full ? full + (row - first) * h_ : out);
      } else if (cell_ == Cell::Gru) {
        gru_row<T>(h_, g, sums + (row - first) * 3 * h_, bias, bias_h, walk_.previous<T>(i, row, output, hx, p_), out);
      } else {
        elman_row<T>(h_, out, bias, cell_ == Cell::Relu);
      }
    }
  }

  // product(m, states, sums, ldc, add) for the rows [first, last) of the i-th step.
  template <class F>
  void state_product(int64_t i, int64_t first, int64_t last, T* sums, F&& product) const {
    const int64_t at = walk_.first(i), middle = std::clamp(walk_.carried(i), first, last);
    const auto part = [&](int64_t from, int64_t to) {
      if (from >= to) return;
      const T* states = walk_.previous<T>(i, from, output, hx, p_);
      if (cell_ == Cell::Lstm)
        product(to - from, states, gates + (at + from) * stride_, stride_, true);
      else if (cell_ == Cell::Gru)
        product(to - from, states, sums + (from - first) * 3 * h_, 3 * h_, false);
      else
        product(to - from, states, output + (at + from) * p_, p_, true);
    };
    part(first, middle);
    part(middle, last);
  }

 private:
  const Walk& walk_;
  Cell cell_;
  int64_t h_, p_, stride_;  // stride_: from row to row of the gates
};

// One bias where both are added at the same place; zeros where there is none.
template <class T>
Tensor joined_bias(int64_t n, const Tensor& a, const Tensor& b) {
  Tensor sum = empty_tensor({n}, dtype_of_v<T>);
  T* to = target_of<T>(sum);
  const T *x = data_of<T>(a), *y = data_of<T>(b);
  for (int64_t j = 0; j < n; ++j) to[j] = (x ? x[j] : T(0)) + (y ? y[j] : T(0));
  return sum;
}

template <class T>
void run(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh,
         const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, const Walk& walk, Cell cell, const Tensor& out,
         const Tensor& gates, const Tensor& cells) {
  const int64_t width = w_hh.size(0), h = width / rnn::gate_count(cell), p = hx.size(1), total = input.size(0);
  const int64_t in = input.size(1), n = walk.sequences;
  const bool elman = cell == Cell::Tanh || cell == Cell::Relu;
  T* first_sums = elman ? target_of<T>(out) : target_of<T>(gates);
  const int64_t stride = elman ? h : rnn::kept_width(cell, h, sizeof(T));
  const MatrixRef<T> input_weight{data_of<T>(w_ih), 1, in};
  if (walk.steps < kPackedSteps)
    gemm<T>(total, width, in, T(1), {data_of<T>(input), in, 1}, input_weight, T(0), first_sums, stride);
  else
    tall_product<T>(total, in, width, data_of<T>(input), in, input_weight, first_sums, stride);
  Forward<T> layer(walk, cell, h, p);
  layer.hx = data_of<T>(hx);
  layer.cx = data_of<T>(cx);
  layer.output = target_of<T>(out);
  layer.gates = target_of<T>(gates);
  layer.cells = target_of<T>(cells);
  const Tensor bias = joined_bias<T>(width, b_ih, cell == Cell::Gru ? Tensor() : b_hh);
  const Tensor bias_h = cell == Cell::Gru ? joined_bias<T>(width, b_hh, {}) : Tensor();
  layer.bias = data_of<T>(bias);
  layer.bias_h = data_of<T>(bias_h);
  const MatrixRef<T> state_weight{data_of<T>(w_hh), 1, p}, projection{data_of<T>(w_hr), 1, h};
  const auto scratch = [&](int64_t rows) {  // a GRU's sums, or an LSTM's h before the projection
    return empty_tensor({std::max<int64_t>(1, cell == Cell::Gru ? rows * width
                                              : w_hr.defined()  ? rows * h
                                                                : 1)},
                        dtype_of_v<T>);
  };

  if (walk.steps < kPackedSteps) {
    const Tensor room = scratch(n);
    T *sums = target_of<T>(room), *full = w_hr.defined() ? sums : nullptr;
    for (int64_t i = 0; i < walk.steps; ++i) {
      check_interrupt();
      const int64_t count = walk.count(i);
      layer.state_product(i, 0, count, sums, [&](int64_t m, const T* states, T* to, int64_t ld, bool add) {
        gemm<T>(m, width, p, T(1), {states, p, 1}, state_weight, T(add ? 1 : 0), to, ld);
      });
      parallel_for(0, count, 4096 / (h + 1) + 1, [&](int64_t begin, int64_t end) {
        layer.pointwise(i, begin, end, sums + begin * width, full ? full + begin * h : nullptr);
      });
      if (full) gemm<T>(count, p, h, T(1), {full, h, 1}, projection, T(0), target_of<T>(out) + walk.first(i) * p, p);
    }
    return;
  }
  const PackedMatrix<T> packed(state_weight, p, width);
  std::optional<PackedMatrix<T>> packed_projection;
  if (w_hr.defined()) packed_projection.emplace(projection, h, p);
  const int64_t per_chunk = sequences_per_chunk(n), chunks = (n + per_chunk - 1) / per_chunk;
  const int64_t work = walk.steps * per_chunk * width * p;
  parallel_for(0, chunks, (int64_t{1} << 19) / (work + 1) + 1, [&](int64_t begin, int64_t end) {
    const Tensor room = scratch(per_chunk);
    T *sums = target_of<T>(room), *full = w_hr.defined() ? sums : nullptr;
    for (int64_t chunk = begin; chunk < end; ++chunk)
      for (int64_t i = 0; i < walk.steps; ++i) {
        const int64_t first = chunk * per_chunk, last = std::min(first + per_chunk, walk.count(i));
        if (first >= last) continue;
        check_interrupt();
        layer.state_product(i, first, last, sums, [&](int64_t m, const T* states, T* to, int64_t ld, bool add) {
          packed.multiply(m, states, p, to, ld, add);
        });
        layer.pointwise(i, first, last, sums, full);
        if (full)
          packed_projection->multiply(last - first, full, h, target_of<T>(out) + (walk.first(i) + first) * p, p, false);
      }
  });
}

// The state in which each sequence ends.
template <class T>
void final_states(const Walk& walk, const T* states, const T* initial, int64_t width, T* to) {
  for (int64_t row = 0; row < walk.sequences; ++row) {
    const int64_t at = walk.last_row(row);
    std::copy_n(at < 0 ? initial + row * width : states + at * width, width, to + row * width);
  }
}

}  // namespace

void rnn_layer_cpu(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh,
                   const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, IntSpan batch_sizes, int64_t number,
                   bool reverse, const Tensor& out, const Tensor& hy, const Tensor& cy, const Tensor& gates,
                   const Tensor& cells) {
  const Walk walk(batch_sizes, reverse);
  const Cell cell = static_cast<Cell>(number);
  dispatch_precision(input.dtype(), [&]<class T>() {
    run<T>(input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, walk, cell, out, gates, cells);
    final_states<T>(walk, data_of<T>(out), data_of<T>(hx), hx.size(1), target_of<T>(hy));
    if (cell == Cell::Lstm) final_states<T>(walk, data_of<T>(cells), data_of<T>(cx), cx.size(1), target_of<T>(cy));
  });
}

}  // namespace tapegrad::cpu::TG_ISA
