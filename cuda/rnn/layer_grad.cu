// Back-propagation through time of a recurrent layer: a launch and a product per step store the gradients of the gates'
// sums; the gradients of input and weights then follow from one product each over all steps.
#include "tapegrad/aten/rnn/cell.h"
#include "tapegrad/aten/rnn/walk.h"
#include "tapegrad/cuda/copy/copy.h"
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

// The gradient of a projected h, and h itself once more: rows of p and of h elements.
template <class T>
struct Projected {
  const T *grad, *carry;
  T* out;
  TG_DEVICE void operator()(int64_t i) const { out[i] = grad[i] + carry[i]; }
};
template <class T>
struct Unprojected {
  const T *gates, *cells;
  T* out;
  int64_t h, kept;
  TG_DEVICE void operator()(int64_t i) const { out[i] = gates[i / h * kept + 3 * h + i % h] * math::tanh(cells[i]); }
};

// Element j of row `row` of a step. `carry` is the gradient by the steps after it, and of a GRU afterwards what reaches
// the state before directly.
template <class T>
struct Step {
  Cell cell;
  int64_t h, kept;
  const T *grad, *gates, *cells, *output;
  T *carry, *carry_cell;  // carry is null where `grad` has it already
  Before<T> state, cell_state;
  T *for_input, *for_state;  // gradients of the sums, rows of all gates

  TG_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / h, j = i % h;
    const T d = carry != nullptr ? grad[i] + carry[i] : grad[i];
    const T* g = gates + row * kept + j;
    if (cell == Cell::Lstm) {
      const cells::LstmGrad<T> to({g[0], g[h], g[2 * h], g[3 * h]}, cell_state.at(row, j), cells[i], d, carry_cell[i]);
      T* dx = for_input + row * 4 * h + j;
      dx[0] = to.in;
      dx[h] = to.forget;
      dx[2 * h] = to.cell;
      dx[3 * h] = to.out;
      carry_cell[i] = to.before;
    } else if (cell == Cell::Gru) {
      const cells::GruGrad<T> to({g[0], g[h], g[2 * h], g[3 * h]}, state.at(row, j), d);
      T *dx = for_input + row * 3 * h + j, *ds = for_state + row * 3 * h + j;
      dx[0] = ds[0] = to.reset;
      dx[h] = ds[h] = to.update;
      dx[2 * h] = to.next;
      ds[2 * h] = to.part;
      carry[i] = to.before;
    } else {
      const T y = output[i];
      for_input[i] = cell == Cell::Tanh ? d * (T(1) - y * y) : y > T(0) ? d : T(0);
    }
  }
};

template <class T>
struct ColumnSums {
  const T* x;
  T* out;
  int64_t rows, columns;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t column) const {
    double sum = 0;
    for (int64_t r = g.lane(); r < rows; r += g.lanes()) sum += static_cast<double>(x[r * columns + column]);
    sum = g.reduce(sum, Sum());
    g.sync();
    if (g.lane() == 0) out[column] = static_cast<T>(sum);
  }
};
template <class T>
void column_sums(const Work& work, const T* x, int64_t rows, int64_t columns, const Tensor& out) {
  for_lines(work, columns, rows, columns >= 256, ColumnSums<T>{x, target_of<T>(out), rows, columns});
}

struct Saved {
  const Tensor &grad_output, &input, &hx, &cx, &w_ih, &w_hh, &w_hr, &output, &gates, &cells;
};
struct Grads {
  const Tensor &input, &hx, &cx, &w_ih, &w_hh, &b_ih, &b_hh, &w_hr;
};

template <class T>
class Backward {
 public:
  Backward(const Work& work, const Walk& walk, Cell cell, const Saved& saved)
      : work_(work),
        walk_(walk),
        cell_(cell),
        s_(saved),
        width_(saved.w_hh.size(0)),
        h_(width_ / rnn::gate_count(cell)),
        p_(saved.hx.size(1)),
        total_(saved.input.size(0)),
        kept_(rnn::kept_width(cell, h_, sizeof(T))),
        for_input_(bytes(total_ * width_), work),
        for_state_(bytes(cell == Cell::Gru ? total_ * width_ : 0), work),
        for_projection_(bytes(saved.w_hr.defined() ? total_ * p_ : 0), work),
        full_(bytes(saved.w_hr.defined() ? total_ * h_ : 0), work),
        unprojected_(bytes(saved.w_hr.defined() ? walk.sequences * h_ : 0), work) {}

  void run(T* carry, T* carry_cell) const {
    const T *grads = data_of<T>(s_.grad_output), *output = data_of<T>(s_.output), *cells = data_of<T>(s_.cells);
    const bool lstm = cell_ == Cell::Lstm, projects = s_.w_hr.defined();
    for (int64_t i = walk_.steps; i-- > 0;) {
      const int64_t first = walk_.first(i), count = walk_.count(i), before = i > 0 ? walk_.first(i - 1) : 0;
      const T* grad = grads + first * p_;
      if (projects) {
        T *d = at(for_projection_) + first * p_, *u = at(unprojected_);
        for_elements(work_, count * p_, Projected<T>{grad, carry, d});
        for_elements(work_, count * h_,
                     Unprojected<T>{data_of<T>(s_.gates) + first * kept_, cells + first * h_, at(full_) + first * h_,
                                    h_, kept_});
        product(count, h_, p_, {d, p_, 1}, {s_.w_hr.data_ptr(), h_, 1}, 0, u);
        grad = u;
      }
      for_elements(work_, count * h_,
                   Step<T>{cell_,
                           h_,
                           kept_,
                           grad,
                           data_of<T>(s_.gates) + first * kept_,
                           lstm ? cells + first * h_ : nullptr,
                           output + first * p_,
                           projects ? nullptr : carry,
                           carry_cell,
                           {output + before * p_, data_of<T>(s_.hx), walk_.carried(i), p_},
                           {lstm ? cells + before * h_ : nullptr, data_of<T>(s_.cx), walk_.carried(i), h_},
                           at(for_input_) + first * width_,
                           at(state_sums()) + first * width_});
      product(count, p_, width_, {at(state_sums()) + first * width_, width_, 1}, {s_.w_hh.data_ptr(), p_, 1},
              cell_ == Cell::Gru ? 1 : 0, carry);
    }
  }

  void input_gradient(const Tensor& to) const {
    const int64_t in = s_.input.size(1);
    product(total_, in, width_, {at(for_input_), width_, 1}, {s_.w_ih.data_ptr(), in, 1}, 0, target_of<T>(to));
  }
  void weight_gradients(const Grads& to) const {
    const int64_t in = s_.input.size(1);
    product(width_, in, total_, {at(for_input_), 1, width_}, {s_.input.data_ptr(), in, 1}, 0, target_of<T>(to.w_ih));
    state_weight(at(state_sums()), target_of<T>(to.w_hh));
    column_sums(work_, at(for_input_), total_, width_, to.b_ih);
    column_sums(work_, at(state_sums()), total_, width_, to.b_hh);
    if (s_.w_hr.defined())
      product(p_, h_, total_, {at(for_projection_), 1, p_}, {at(full_), h_, 1}, 0, target_of<T>(to.w_hr));
  }

 private:
  static size_t bytes(int64_t elements) { return static_cast<size_t>(elements) * sizeof(T); }
  static T* at(const Workspace& w) { return static_cast<T*>(w.data()); }
  // Gradients of the state's sums: those of the input's but for a GRU.
  const Workspace& state_sums() const { return cell_ == Cell::Gru ? for_state_ : for_input_; }

  void product(int64_t m, int64_t n, int64_t k, const Matrix& a, const Matrix& b, int64_t beta, T* to) const {
    gemm(work_, dtype_of_v<T>, 1, m, n, k, 1, a, b, beta, to);
  }

  // Sum over all rows of the gates' gradient times the state before. With as many rows in every step the states before
  // are the initial one and the output shifted by a step; else they are gathered.
  void state_weight(const T* ds, T* to) const {
    const T *initial = data_of<T>(s_.hx), *output = data_of<T>(s_.output);
    const int64_t n = walk_.sequences, rest = total_ - n;
    if (walk_.even()) {
      product(width_, p_, n, {ds + (walk_.reverse ? rest * width_ : 0), 1, width_}, {initial, p_, 1}, 0, to);
      if (rest > 0)
        product(width_, p_, rest, {ds + (walk_.reverse ? 0 : n * width_), 1, width_},
                {output + (walk_.reverse ? n * p_ : 0), p_, 1}, 1, to);
      return;
    }
    const Workspace states(bytes(total_ * p_), work_);
    const int64_t row_bytes = p_ * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < walk_.steps; ++i) {
      const int64_t carried = walk_.carried(i);
      T* rows = at(states) + walk_.first(i) * p_;
      if (carried > 0) copy_rows(work_, rows, output + walk_.first(i - 1) * p_, carried * row_bytes);
      copy_rows(work_, rows + carried * p_, initial + carried * p_, (walk_.count(i) - carried) * row_bytes);
    }
    product(width_, p_, total_, {ds, 1, width_}, {at(states), p_, 1}, 0, to);
  }

  const Work& work_;
  const Walk& walk_;
  Cell cell_;
  Saved s_;
  int64_t width_, h_, p_, total_, kept_;  // kept_: from row to row of the gates
  Workspace for_input_, for_state_, for_projection_, full_, unprojected_;
};

}  // namespace

void rnn_layer_grad_cuda(const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& input,
                         const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& w_hr,
                         const Tensor& output, const Tensor& gates, const Tensor& cells, IntSpan batch_sizes,
                         int64_t number, bool reverse, bool input_wanted, bool weights_wanted, const Tensor& input_grad,
                         const Tensor& hx_grad, const Tensor& cx_grad, const Tensor& w_ih_grad, const Tensor& w_hh_grad,
                         const Tensor& b_ih_grad, const Tensor& b_hh_grad, const Tensor& w_hr_grad) {
  const Walk walk(batch_sizes, reverse);
  copy_any(hx_grad, grad_hy, true);
  if (cx.defined()) copy_any(cx_grad, grad_cy, true);
  Work work(input.device(), {&grad_output, &grad_hy,   &grad_cy,   &input,     &hx,        &cx,         &w_ih,
                             &w_hh,        &w_hr,      &output,    &gates,     &cells,     &input_grad, &hx_grad,
                             &cx_grad,     &w_ih_grad, &w_hh_grad, &b_ih_grad, &b_hh_grad, &w_hr_grad});
  dispatch_precision(input.dtype(), [&]<class T>() {
    const Backward<T> backward(work, walk, static_cast<Cell>(number),
                               {grad_output, input, hx, cx, w_ih, w_hh, w_hr, output, gates, cells});
    backward.run(target_of<T>(hx_grad), cx.defined() ? target_of<T>(cx_grad) : nullptr);
    if (input_wanted) backward.input_gradient(input_grad);
    if (weights_wanted)
      backward.weight_gradients({input_grad, hx_grad, cx_grad, w_ih_grad, w_hh_grad, b_ih_grad, b_hh_grad, w_hr_grad});
  });
}

}  // namespace tapegrad::cuda
