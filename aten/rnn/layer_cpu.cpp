// A recurrent layer in one direction. The input's part of all steps is one product; then chunks of sequences, which are
// independent of each other, go through the steps: a product with the state's weight and the pointwise part of the
// cell.
#include <optional>

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/rnn/cell.h"
#include "tapegrad/aten/rnn/gates.h"
#include "tapegrad/aten/rnn/packed_product.h"
#include "tapegrad/aten/rnn/walk.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using rnn::Cell;
using rnn::Walk;

// From sums to gates, which may be at the same place; h next is out tanh(c next).
template <class T, class C = compute_t<T>>
void lstm_row(int64_t h, const C* s, const C* __restrict bias, const C* __restrict c, C* g, C* __restrict c_next,
              C* __restrict out) {
#pragma GCC ivdep
  for (int64_t j = 0; j < h; ++j) {
    const auto x = FastLstm<T>::from_sums(s[j] + bias[j], s[h + j] + bias[h + j], s[2 * h + j] + bias[2 * h + j],
                                          s[3 * h + j] + bias[3 * h + j]);
    const C next = x.next(c[j]);
    g[j] = x.in;
    g[h + j] = x.forget;
    g[2 * h + j] = x.cell;
    g[3 * h + j] = x.out;
    c_next[j] = next;
    out[j] = x.hidden(next);
  }
}

// The input's sums in `x`, the state's in `s`; kept in `g`, which may be at the same place as `x`: reset, update, new,
// the state's part.
template <class T, class C = compute_t<T>>
void gru_row(int64_t h, const C* x, const C* __restrict s, const C* __restrict bias, const C* __restrict bias_h,
             const C* __restrict before, C* g, C* __restrict out) {
#pragma GCC ivdep
  for (int64_t j = 0; j < h; ++j) {
    const auto to = FastGru<T>::from_sums(x[j] + bias[j], x[h + j] + bias[h + j], x[2 * h + j] + bias[2 * h + j],
                                          s[j] + bias_h[j], s[h + j] + bias_h[h + j], s[2 * h + j] + bias_h[2 * h + j]);
    g[j] = to.reset;
    g[h + j] = to.update;
    g[2 * h + j] = to.next;
    g[3 * h + j] = to.part;
    out[j] = to.hidden(before[j]);
  }
}

// Replaces sums by the new state.
template <class T, class C = compute_t<T>>
void elman_row(int64_t h, C* __restrict out, const C* __restrict bias, bool relu) {
  if (relu) {
    for (int64_t j = 0; j < h; ++j) {
      const C x = out[j] + bias[j];
      out[j] = x < C(0) ? C(0) : x;  // keeps NaN
    }
  } else {
    for (int64_t j = 0; j < h; ++j) out[j] = CurvesOf<T>::tanh(out[j] + bias[j]);
  }
}

// What the steps of `rows` sequences need beside the results.
template <class T>
class StepScratch {
 public:
  using C = compute_t<T>;

  StepScratch(int64_t rows, Cell cell, int64_t h, int64_t p, bool projects)
      : wide_(
            empty_tensor({2 * h + (cell == Cell::Gru ? rows * 3 * h : 0) + (projects ? rows * p : 0)}, dtype_of_v<C>)),
        full_(projects ? empty_tensor({rows * h}, dtype_of_v<T>) : Tensor()),
        line(target_of<C>(wide_)),
        sums(line + 2 * h),
        full(target_of<T>(full_)) {}

 private:
  Tensor wide_, full_;

 public:
  C *line, *sums;  // two rows; a GRU's sums, or what the projection gives
  T* full;         // an LSTM's h before the projection
};

// T is the type of the tensors, C that of sums, gates and cells.
template <class T>
class Forward {
 public:
  using C = compute_t<T>;

  Forward(const Walk& walk, Cell cell, int64_t h, int64_t p)
      : walk_(walk), cell_(cell), h_(h), p_(p), stride_(rnn::kept_width(cell, h, sizeof(C))) {}

  const T* hx;
  const C* cx;
  T* output;
  C *gates, *cells;
  const C *bias, *bias_h;

  // The sums of a step's sequences from `first` on: the input's part, in rows `stride` apart, to which the state's is
  // added, but for a GRU's, which has its own.
  struct Sums {
    C* input;
    int64_t stride;
    C* state;
  };

  // The pointwise part of the i-th step for the sequences [first, last). `full` takes the h's of an LSTM with
  // projections; `line` is scratch memory for two rows.
  void pointwise(int64_t i, int64_t first, int64_t last, const Sums& sums, T* full, C* line) const {
    const int64_t at = walk_.first(i);
    for (int64_t row = first; row < last; ++row) {
      C *in = sums.input + (row - first) * sums.stride, *g = gates + (at + row) * stride_;
      T* out = full ? full + (row - first) * h_ : output + (at + row) * p_;
      C* next = computed_target(out, line);
      if (cell_ == Cell::Lstm) {
        lstm_row<T>(h_, in, bias, walk_.previous<C>(i, row, cells, cx, h_), g, cells + (at + row) * h_, next);
      } else if (cell_ == Cell::Gru) {
        gru_row<T>(h_, in, sums.state + (row - first) * 3 * h_, bias, bias_h,
                   converted<C>(walk_.previous<T>(i, row, output, hx, p_), h_, line + h_), g, next);
      } else {
        next = in;
        elman_row<T>(h_, next, bias, cell_ == Cell::Relu);
      }
      put(next, h_, out);
    }
  }

  // product(m, states, sums, ldc, add) for the rows [first, last) of the i-th step.
  template <class F>
  void state_product(int64_t i, int64_t first, int64_t last, const Sums& sums, F&& product) const {
    const int64_t middle = std::clamp(walk_.carried(i), first, last);
    const auto part = [&](int64_t from, int64_t to) {
      if (from >= to) return;
      const T* states = walk_.previous<T>(i, from, output, hx, p_);
      if (cell_ == Cell::Gru)
        product(to - from, states, sums.state + (from - first) * 3 * h_, 3 * h_, false);
      else
        product(to - from, states, sums.input + (from - first) * sums.stride, sums.stride, true);
    };
    part(first, middle);
    part(middle, last);
  }

 private:
  const Walk& walk_;
  Cell cell_;
  int64_t h_, p_, stride_;  // stride_: from row to row of the gates
};

// The input's part of the sums of some sequences, for a few steps at a time, so that it stays in the caches.
template <class T>
class InputSums {
 public:
  using C = compute_t<T>;

  InputSums(const Walk& walk, const PackedMatrix<T>& weight, const T* input, int64_t in, int64_t width, int64_t rows)
      : walk_(walk),
        weight_(weight),
        input_(input),
        in_(in),
        steps_(std::max<int64_t>(1, kRows / rows)),
        stride_(rnn::row_stride(width, sizeof(C))),
        gathered_(empty_tensor({steps_ * rows * in}, dtype_of_v<T>)),
        sums_(empty_tensor({steps_ * rows * stride_}, dtype_of_v<C>)) {}

  int64_t stride() const { return stride_; }
  // Those of the i-th step, asked for in order, for the sequences from `first` on, at most `rows` of them.
  C* of_step(int64_t i, int64_t first, int64_t rows) {
    const auto count = [&](int64_t step) { return std::clamp<int64_t>(walk_.count(step) - first, 0, rows); };
    if (i % steps_ == 0) {
      T* to = target_of<T>(gathered_);
      for (int64_t step = i; step < std::min(walk_.steps, i + steps_); ++step, to += count(step - 1) * in_)
        std::copy_n(input_ + (walk_.first(step) + first) * in_, count(step) * in_, to);
      next_ = target_of<C>(sums_);
      const int64_t all = in_ > 0 ? (to - target_of<T>(gathered_)) / in_ : steps_ * rows;
      weight_.multiply(all, data_of<T>(gathered_), in_, next_, stride_, false);
    }
    C* sums = next_;
    next_ += count(i) * stride_;
    return sums;
  }

 private:
  static constexpr int64_t kRows = kMostSequences;

  const Walk& walk_;
  const PackedMatrix<T>& weight_;
  const T* input_;
  int64_t in_, steps_, stride_;
  Tensor gathered_, sums_;
  C* next_ = nullptr;
};

// One bias where both are added at the same place; zeros where there is none.
template <class T>
Tensor joined_bias(int64_t n, const Tensor& a, const Tensor& b) {
  using C = compute_t<T>;
  Tensor sum = empty_tensor({n}, dtype_of_v<C>);
  C* to = target_of<C>(sum);
  const T *x = data_of<T>(a), *y = data_of<T>(b);
  for (int64_t j = 0; j < n; ++j) to[j] = (x ? static_cast<C>(x[j]) : C(0)) + (y ? static_cast<C>(y[j]) : C(0));
  return sum;
}

template <class T>
void run(const Tensor& input, const Tensor& hx, const Tensor& wide_cx, const Tensor& w_ih, const Tensor& w_hh,
         const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, const Walk& walk, Cell cell, const Tensor& out,
         const Tensor& gates, const Tensor& cells) {
  using C = compute_t<T>;
  const int64_t width = w_hh.size(0), h = width / rnn::gate_count(cell), p = hx.size(1), total = input.size(0);
  const int64_t in = input.size(1), n = walk.sequences;
  const bool elman = cell == Cell::Tanh || cell == Cell::Relu, projects = w_hr.defined();
  // Of many sequences of 16 bits the input is multiplied in between.
  const bool in_steps = is_half_type<T> && walk.steps >= kPackedSteps && n >= 8;
  const Tensor elman_sums = elman && is_half_type<T> ? empty_tensor({in_steps ? 0 : total * h}, dtype_of_v<C>) : out;
  C* first_sums = target_of<C>(elman ? elman_sums : gates);
  const int64_t stride = elman ? h : rnn::kept_width(cell, h, sizeof(C));
  const MatrixRef<T> input_weight{data_of<T>(w_ih), 1, in};
  if (walk.steps < kPackedSteps)
    threaded_sums<T>(total, width, in, {data_of<T>(input), in, 1}, input_weight, false, first_sums, stride);
  else if (!in_steps)
    tall_product<T>(total, in, width, data_of<T>(input), in, input_weight, first_sums, stride);
  Forward<T> layer(walk, cell, h, p);
  layer.hx = data_of<T>(hx);
  layer.cx = data_of<C>(wide_cx);
  layer.output = target_of<T>(out);
  layer.gates = target_of<C>(gates);
  layer.cells = target_of<C>(cells);
  const Tensor bias = joined_bias<T>(width, b_ih, cell == Cell::Gru ? Tensor() : b_hh);
  const Tensor bias_h = cell == Cell::Gru ? joined_bias<T>(width, b_hh, {}) : Tensor();
  layer.bias = data_of<C>(bias);
  layer.bias_h = data_of<C>(bias_h);
  const MatrixRef<T> state_weight{data_of<T>(w_hh), 1, p}, projection{data_of<T>(w_hr), 1, h};

  if (walk.steps < kPackedSteps) {
    const StepScratch<T> scratch(n, cell, h, p, projects);
    for (int64_t i = 0; i < walk.steps; ++i) {
      check_interrupt();
      const int64_t count = walk.count(i);
      const typename Forward<T>::Sums sums{first_sums + walk.first(i) * stride, stride, scratch.sums};
      layer.state_product(i, 0, count, sums, [&](int64_t m, const T* states, C* to, int64_t ld, bool add) {
        threaded_sums<T>(m, width, p, {states, p, 1}, state_weight, add, to, ld);
      });
      parallel_for(0, count, 4096 / (h + 1) + 1, [&](int64_t begin, int64_t end) {
        const StepScratch<T> own(0, cell, h, p, false);
        layer.pointwise(i, begin, end, {sums.input + begin * stride, stride, sums.state + begin * width},
                        projects ? scratch.full + begin * h : nullptr, own.line);
      });
      if (projects)
        gemm<T>(count, p, h, C(1), {scratch.full, h, 1}, projection, C(0), target_of<T>(out) + walk.first(i) * p, p);
    }
    return;
  }
  const PackedMatrix<T> packed(state_weight, p, width);
  std::optional<PackedMatrix<T>> packed_projection, packed_input;
  if (projects) packed_projection.emplace(projection, h, p);
  if (in_steps) packed_input.emplace(input_weight, in, width);
  const int64_t per_chunk = sequences_per_chunk(n, width * p * static_cast<int64_t>(sizeof(T))),
                chunks = (n + per_chunk - 1) / per_chunk;
  const int64_t work = walk.steps * per_chunk * width * p;
  parallel_for(0, chunks, (int64_t{1} << 19) / (work + 1) + 1, [&](int64_t begin, int64_t end) {
    const StepScratch<T> scratch(per_chunk, cell, h, p, projects);
    std::optional<InputSums<T>> input_sums;
    if (in_steps) input_sums.emplace(walk, *packed_input, data_of<T>(input), in, width, per_chunk);
    for (int64_t chunk = begin; chunk < end; ++chunk)
      for (int64_t i = 0; i < walk.steps; ++i) {
        const int64_t first = chunk * per_chunk, last = std::min(first + per_chunk, walk.count(i));
        typename Forward<T>::Sums sums{first_sums + (walk.first(i) + first) * stride, stride, scratch.sums};
        if (in_steps) sums = {input_sums->of_step(i, first, per_chunk), input_sums->stride(), scratch.sums};
        if (first >= last) continue;
        check_interrupt();
        layer.state_product(i, first, last, sums, [&](int64_t m, const T* states, C* to, int64_t ld, bool add) {
          packed.multiply(m, states, p, to, ld, add);
        });
        layer.pointwise(i, first, last, sums, scratch.full, scratch.line);
        if (!projects) continue;
        T* to = target_of<T>(out) + (walk.first(i) + first) * p;
        C* projected = computed_target(to, scratch.sums);
        packed_projection->multiply(last - first, scratch.full, h, projected, p, false);
        put(projected, (last - first) * p, to);
      }
  });
}

// The state in which each sequence ends.
template <class T, class C>
void final_states(const Walk& walk, const C* states, const T* initial, int64_t width, T* to) {
  for (int64_t row = 0; row < walk.sequences; ++row, to += width, initial += width) {
    const int64_t at = walk.last_row(row);
    if (at < 0)
      std::copy_n(initial, width, to);
    else
      for (int64_t j = 0; j < width; ++j) to[j] = T(states[at * width + j]);
  }
}

}  // namespace

void rnn_layer_cpu(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh,
                   const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, IntSpan batch_sizes, int64_t number,
                   bool reverse, const Tensor& out, const Tensor& hy, const Tensor& cy, const Tensor& gates,
                   const Tensor& cells) {
  const Walk walk(batch_sizes, reverse);
  const Cell cell = static_cast<Cell>(number);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Tensor wide_cx = cx.defined() ? contiguous_as(cx, dtype_of_v<C>) : cx;
    run<T>(input, hx, wide_cx, w_ih, w_hh, b_ih, b_hh, w_hr, walk, cell, out, gates, cells);
    final_states<T, T>(walk, data_of<T>(out), data_of<T>(hx), hx.size(1), target_of<T>(hy));
    if (cell == Cell::Lstm) final_states<T, C>(walk, data_of<C>(cells), data_of<T>(cx), cx.size(1), target_of<T>(cy));
  });
}

}  // namespace tapegrad::cpu::TG_ISA
