// A recurrent layer in one direction: the input's part of all steps is one product; then each step is a product with
// the state's weight and one launch for the pointwise part.
#include "tapegrad/aten/rnn/cell.h"
#include "tapegrad/aten/rnn/walk.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/linalg/gemm.h"
#include "tapegrad/cuda/rnn/steps.h"

namespace tapegrad::cuda {
namespace {

using cells::Before;
using cells::copy_rows;
using rnn::Cell;
using rnn::Walk;

// Element j of row `row` of a step: sums of the input and of the state, and what becomes of them.
template <class T>
struct Step {
  Cell cell;
  int64_t h, kept;  // kept: from row to row of the gates
  const T *from_input, *from_state;
  const T *b_ih, *b_hh;  // or null
  Before<T> state, cell_state;
  T *gates, *cells, *out;  // out: rows of h, the new state or what is projected to it

  TG_DEVICE T input(int64_t row, int64_t gate, int64_t j, int64_t count) const {
    const T bias = b_ih != nullptr ? b_ih[gate * h + j] : T(0);
    return from_input[(row * count + gate) * h + j] + bias;
  }
  TG_DEVICE T hidden(int64_t row, int64_t gate, int64_t j, int64_t count) const {
    const T bias = b_hh != nullptr ? b_hh[gate * h + j] : T(0);
    return from_state[(row * count + gate) * h + j] + bias;
  }
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / h, j = i % h;
    T* keep = gates + row * kept + j;
    if (cell == Cell::Lstm) {
      const auto sum = [&](int64_t gate) { return input(row, gate, j, 4) + hidden(row, gate, j, 4); };
      const auto g = cells::Lstm<T>::from_sums(sum(0), sum(1), sum(2), sum(3));
      const T next = g.next(cell_state.at(row, j));
      keep[0] = g.in;
      keep[h] = g.forget;
      keep[2 * h] = g.cell;
      keep[3 * h] = g.out;
      cells[i] = next;
      out[i] = g.hidden(next);
    } else if (cell == Cell::Gru) {
      const auto g = cells::Gru<T>::from_sums(input(row, 0, j, 3), input(row, 1, j, 3), input(row, 2, j, 3),
                                              hidden(row, 0, j, 3), hidden(row, 1, j, 3), hidden(row, 2, j, 3));
      keep[0] = g.reset;
      keep[h] = g.update;
      keep[2 * h] = g.next;
      keep[3 * h] = g.part;
      out[i] = g.hidden(state.at(row, j));
    } else {
      const T x = input(row, 0, j, 1) + hidden(row, 0, j, 1);
      out[i] = cell == Cell::Tanh ? math::tanh(x) : x < T(0) ? T(0) : x;  // keeps NaN
    }
  }
};

// The state in which each sequence ends: sequences of one length lie side by side.
template <class T>
void final_states(const Stream& stream, const Walk& walk, const T* states, int64_t width, T* to) {
  const int64_t row_bytes = width * static_cast<int64_t>(sizeof(T));
  if (walk.reverse) return copy_rows(stream, to, states, walk.sequences * row_bytes);
  for (int64_t i = 0; i < walk.steps; ++i) {
    const int64_t next = i + 1 < walk.steps ? walk.count(i + 1) : 0;
    copy_rows(stream, to + next * width, states + (walk.first(i) + next) * width, (walk.count(i) - next) * row_bytes);
  }
}

template <class T>
void run(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh,
         const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, const Walk& walk, Cell cell, const Tensor& out,
         const Tensor& hy, const Tensor& cy, const Tensor& gates, const Tensor& cells) {
  const Work work(input.device(),
                  {&input, &hx, &cx, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr, &out, &hy, &cy, &gates, &cells});
  const DType dtype = dtype_of_v<T>;
  const int64_t width = w_hh.size(0), h = width / rnn::gate_count(cell), p = hx.size(1), in = input.size(1);
  const int64_t total = input.size(0), n = walk.sequences, kept = rnn::kept_width(cell, h, sizeof(T));
  const auto bytes = [&](int64_t elements) { return static_cast<size_t>(elements) * sizeof(T); };
  const Workspace input_workspace(bytes(total * width), work), state_workspace(bytes(n * width), work),
      full_workspace(bytes(w_hr.defined() ? n * h : 0), work);
  T *from_input = static_cast<T*>(input_workspace.data()), *from_state = static_cast<T*>(state_workspace.data());
  T* full = static_cast<T*>(full_workspace.data());
  gemm(work, dtype, 1, total, width, in, 1, {input.data_ptr(), in, 1}, {w_ih.data_ptr(), 1, in}, 0, from_input);
  const Matrix weight{w_hh.data_ptr(), 1, p};
  for (int64_t i = 0; i < walk.steps; ++i) {
    const int64_t first = walk.first(i), count = walk.count(i), carried = walk.carried(i);
    const int64_t before = i > 0 ? walk.first(i - 1) : 0;
    const T* states = target_of<T>(out) + before * p;
    gemm(work, dtype, 1, carried, width, p, 1, {states, p, 1}, weight, 0, from_state);
    gemm(work, dtype, 1, count - carried, width, p, 1, {data_of<T>(hx) + carried * p, p, 1}, weight, 0,
         from_state + carried * width);
    const T* cell_states = cx.defined() ? data_of<T>(cells) + before * h : nullptr;
    for_elements(work, count * h,
                 Step<T>{cell,
                         h,
                         kept,
                         from_input + first * width,
                         from_state,
                         data_of<T>(b_ih),
                         data_of<T>(b_hh),
                         {states, data_of<T>(hx), carried, p},
                         {cell_states, data_of<T>(cx), carried, h},
                         target_of<T>(gates) + first * kept,
                         target_of<T>(cells) + (cx.defined() ? first * h : 0),
                         w_hr.defined() ? full : target_of<T>(out) + first * p});
    if (w_hr.defined())
      gemm(work, dtype, 1, count, p, h, 1, {full, h, 1}, {w_hr.data_ptr(), 1, h}, 0, target_of<T>(out) + first * p);
  }
  final_states(work, walk, data_of<T>(out), p, target_of<T>(hy));
  if (cell == Cell::Lstm) final_states(work, walk, data_of<T>(cells), h, target_of<T>(cy));
}

}  // namespace

void rnn_layer_cuda(const Tensor& input, const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh,
                    const Tensor& b_ih, const Tensor& b_hh, const Tensor& w_hr, IntSpan batch_sizes, int64_t number,
                    bool reverse, const Tensor& out, const Tensor& hy, const Tensor& cy, const Tensor& gates,
                    const Tensor& cells) {
  const Walk walk(batch_sizes, reverse);
  const Cell cell = static_cast<Cell>(number);
  dispatch_precision(input.dtype(), [&]<class T>() {
    run<T>(input, hx, cx, w_ih, w_hh, b_ih, b_hh, w_hr, walk, cell, out, hy, cy, gates, cells);
  });
}

}  // namespace tapegrad::cuda
