// Back-propagation through time of a recurrent layer. Chunks of sequences go backwards through the steps and store the
// gradients of the gates' sums; the gradients of input and weights then follow from one product each over all steps.
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

// `dh`: gradient of this step's h by its output (or the projection); `carry`, unless null: by the steps after it.
template <class T, class C = compute_t<T>>
void lstm_row(int64_t h, const C* __restrict dh, const C* __restrict carry, const C* __restrict g,
              const C* __restrict before, const C* __restrict c, C* __restrict dc, C* __restrict dg) {
  for (int64_t j = 0; j < h; ++j) {
    const C d = carry ? dh[j] + carry[j] : dh[j];
    const rnn::cells::LstmGrad<C, CurvesOf<T>> to({g[j], g[h + j], g[2 * h + j], g[3 * h + j]}, before[j], c[j], d,
                                                  dc[j]);
    dg[j] = to.in;
    dg[h + j] = to.forget;
    dg[2 * h + j] = to.cell;
    dg[3 * h + j] = to.out;
    dc[j] = to.before;
  }
}

// Leaves in `carry` what reaches the state before directly.
template <class T, class C = compute_t<T>>
void gru_row(int64_t h, const C* __restrict dh, C* __restrict carry, const C* __restrict g, const C* __restrict before,
             C* __restrict dx, C* __restrict ds) {
  for (int64_t j = 0; j < h; ++j) {
    const rnn::cells::GruGrad<C, CurvesOf<T>> to({g[j], g[h + j], g[2 * h + j], g[3 * h + j]}, before[j],
                                                 dh[j] + carry[j]);
    dx[j] = ds[j] = to.reset;
    dx[h + j] = ds[h + j] = to.update;
    dx[2 * h + j] = to.next;
    ds[2 * h + j] = to.part;
    carry[j] = to.before;
  }
}

template <class T, class C = compute_t<T>>
void elman_row(int64_t h, const C* __restrict dh, const C* __restrict carry, const C* __restrict out, C* __restrict dg,
               bool relu) {
  if (relu) {
    for (int64_t j = 0; j < h; ++j) dg[j] = out[j] > C(0) ? dh[j] + carry[j] : C(0);
  } else {
    for (int64_t j = 0; j < h; ++j) dg[j] = (dh[j] + carry[j]) * (C(1) - out[j] * out[j]);
  }
}

// to[j] += sum of the rows of column j.
template <class T, class C>
void add_rows(const T* x, int64_t stride, int64_t rows, int64_t cols, C* __restrict to) {
  for (int64_t r = 0; r < rows; ++r) {
    const T* __restrict row = x + r * stride;
    for (int64_t j = 0; j < cols; ++j) to[j] += static_cast<C>(row[j]);
  }
}

// out[j] = sum of column j. Blocks of rows are summed on their own, which keeps the error small.
template <class T>
void column_sums(const T* x, int64_t stride, int64_t rows, int64_t cols, T* out) {
  using C = compute_t<T>;
  constexpr int64_t kRows = 64, kCols = 256;
  parallel_for(0, (cols + kCols - 1) / kCols, 65536 / (rows * kCols + 1) + 1, [&](int64_t begin, int64_t end) {
    C part[kCols], all[kCols];
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kCols, width = std::min(kCols, cols - first);
      std::fill_n(all, width, C(0));
      for (int64_t r = 0; r < rows; r += kRows) {
        std::fill_n(part, width, C(0));
        add_rows(x + r * stride + first, stride, std::min(kRows, rows - r), width, part);
        add_rows(part, 0, 1, width, all);
      }
      for (int64_t j = 0; j < width; ++j) out[first + j] = T(all[j]);
    }
  });
}

struct Saved {
  const Tensor &grad_output, &input, &hx, &cx, &w_ih, &w_hh, &w_hr, &output, &gates, &cells;
};

// T is the type of the tensors and of what products multiply, C that of sums, gates and cells. `carry` and `carry_c`
// hold the gradients of the states, which end up as those of the initial ones.
template <class T>
class Backward {
 public:
  using C = compute_t<T>;

  Backward(const Walk& walk, Cell cell, const Saved& saved, C* carry, C* carry_c)
      : walk_(walk),
        cell_(cell),
        s_(saved),
        width_(saved.w_hh.size(0)),
        h_(width_ / rnn::gate_count(cell)),
        p_(saved.hx.size(1)),
        total_(saved.input.size(0)),
        stride_(rnn::row_stride(width_, sizeof(T))),
        kept_(rnn::kept_width(cell, h_, sizeof(C))),
        carry_(carry),
        carry_c_(carry_c) {
    const auto buffer = [&](int64_t cols) {
      return empty_tensor({std::max<int64_t>(1, total_ * cols)}, dtype_of_v<T>);
    };
    for_input_ = buffer(stride_);
    for_state_ = cell == Cell::Gru ? buffer(stride_) : for_input_;
    if (saved.w_hr.defined()) {
      for_projection_ = buffer(p_);
      full_ = buffer(h_);
    }
  }

  void run() {
    const MatrixRef<T> weight{data_of<T>(s_.w_hh), p_, 1}, projection{data_of<T>(s_.w_hr), h_, 1};
    const int64_t n = walk_.sequences;
    if (walk_.steps < kPackedSteps) {
      const Tensor projected = scratch(n);
      for (int64_t i = walk_.steps; i-- > 0;) {
        check_interrupt();
        const int64_t count = walk_.count(i);
        if (s_.w_hr.defined()) {
          through_projection(i, 0, count);
          threaded_sums<T>(count, h_, p_, {data_of<T>(for_projection_) + walk_.first(i) * p_, p_, 1}, projection, false,
                           target_of<C>(projected), h_);
        }
        parallel_for(0, count, 4096 / (h_ + 1) + 1, [&](int64_t begin, int64_t end) {
          pointwise(i, begin, end, target_of<C>(projected) + (s_.w_hr.defined() ? begin * h_ : 0));
        });
        threaded_sums<T>(count, p_, width_, {data_of<T>(for_state_) + walk_.first(i) * stride_, stride_, 1}, weight,
                         cell_ == Cell::Gru, carry_, p_);
      }
      return;
    }
    const PackedMatrix<T> packed(weight, width_, p_);
    std::optional<PackedMatrix<T>> packed_projection;
    if (s_.w_hr.defined()) packed_projection.emplace(projection, p_, h_);
    const int64_t per_chunk = sequences_per_chunk(n, width_ * p_ * static_cast<int64_t>(sizeof(T))),
                  chunks = (n + per_chunk - 1) / per_chunk;
    const int64_t work = walk_.steps * per_chunk * width_ * p_;
    parallel_for(0, chunks, (int64_t{1} << 19) / (work + 1) + 1, [&](int64_t begin, int64_t end) {
      const Tensor projected = scratch(per_chunk);
      for (int64_t chunk = begin; chunk < end; ++chunk)
        for (int64_t i = walk_.steps; i-- > 0;) {
          const int64_t first = chunk * per_chunk, last = std::min(first + per_chunk, walk_.count(i));
          if (first >= last) continue;
          check_interrupt();
          const int64_t at = walk_.first(i) + first;
          if (packed_projection) {
            through_projection(i, first, last);
            packed_projection->multiply(last - first, data_of<T>(for_projection_) + at * p_, p_,
                                        target_of<C>(projected), h_, false);
          }
          pointwise(i, first, last, target_of<C>(projected));
          packed.multiply(last - first, data_of<T>(for_state_) + at * stride_, stride_, carry_ + first * p_, p_,
                          cell_ == Cell::Gru);
        }
    });
  }

  void input_gradient(T* to) const {
    const int64_t in = s_.input.size(1);
    const MatrixRef<T> weight{data_of<T>(s_.w_ih), in, 1};
    if constexpr (!is_half_type<T>) {
      if (walk_.steps >= kPackedSteps)
        return tall_product<T>(total_, width_, in, data_of<T>(for_input_), stride_, weight, to, in);
    }
    gemm<T>(total_, in, width_, C(1), {data_of<T>(for_input_), stride_, 1}, weight, C(0), to, in);
  }

  void weight_gradients(T* w_ih, T* w_hh, T* b_ih, T* b_hh, T* w_hr) const {
    const int64_t in = s_.input.size(1);
    const T *dx = data_of<T>(for_input_), *ds = data_of<T>(for_state_);
    gemm<T>(width_, in, total_, C(1), {dx, 1, stride_}, {data_of<T>(s_.input), in, 1}, C(0), w_ih, in);
    state_weight(ds, w_hh);
    column_sums<T>(dx, stride_, total_, width_, b_ih);
    if (ds != dx)
      column_sums<T>(ds, stride_, total_, width_, b_hh);
    else
      std::copy_n(b_ih, width_, b_hh);
    if (s_.w_hr.defined())
      gemm<T>(p_, h_, total_, C(1), {data_of<T>(for_projection_), 1, p_}, {data_of<T>(full_), h_, 1}, C(0), w_hr, h_);
  }

 private:
  Tensor scratch(int64_t rows) const {
    return empty_tensor({std::max<int64_t>(1, s_.w_hr.defined() ? rows * h_ : 1)}, dtype_of_v<C>);
  }

  // The gradient of the projected h, and h itself once more.
  void through_projection(int64_t i, int64_t first, int64_t last) {
    const int64_t at = walk_.first(i);
    for (int64_t row = first; row < last; ++row) {
      const T* dh = data_of<T>(s_.grad_output) + (at + row) * p_;
      const C* carry = carry_ + row * p_;
      const C *gate = data_of<C>(s_.gates) + (at + row) * kept_ + 3 * h_, *c = data_of<C>(s_.cells) + (at + row) * h_;
      T *d = target_of<T>(for_projection_) + (at + row) * p_, *h = target_of<T>(full_) + (at + row) * h_;
      for (int64_t j = 0; j < p_; ++j) d[j] = T(static_cast<C>(dh[j]) + carry[j]);
      for (int64_t j = 0; j < h_; ++j) h[j] = T(gate[j] * CurvesOf<T>::tanh(c[j]));
    }
  }

  void pointwise(int64_t i, int64_t first, int64_t last, const C* projected) {
    const int64_t at = walk_.first(i);
    const Tensor lines = is_half_type<T> ? empty_tensor({2 * width_ + 2 * h_}, dtype_of_v<C>) : Tensor();
    C* line = target_of<C>(lines);  // of 16-bit types: the gates' gradients, twice, and two rows that are read
    for (int64_t row = first; row < last; ++row) {
      const int64_t r = at + row;
      const T *dh = data_of<T>(s_.grad_output) + r * p_, *out = data_of<T>(s_.output) + r * p_;
      const C* g = data_of<C>(s_.gates) + r * kept_;
      T *dx = target_of<T>(for_input_) + r * stride_, *ds = target_of<T>(for_state_) + r * stride_;
      C *carry = carry_ + row * p_, *to = computed_target(dx, line), *to_state = computed_target(ds, line + width_);
      C* read = line + 2 * width_;
      if (cell_ == Cell::Lstm) {
        const bool direct = !s_.w_hr.defined();
        lstm_row<T>(h_, direct ? converted<C>(dh, h_, read) : projected + (row - first) * h_, direct ? carry : nullptr,
                    g, walk_.previous<C>(i, row, data_of<C>(s_.cells), data_of<C>(s_.cx), h_),
                    data_of<C>(s_.cells) + r * h_, carry_c_ + row * h_, to);
      } else if (cell_ == Cell::Gru) {
        const T* before = walk_.previous<T>(i, row, data_of<T>(s_.output), data_of<T>(s_.hx), p_);
        gru_row<T>(h_, converted<C>(dh, h_, read), carry, g, converted<C>(before, h_, read + h_), to, to_state);
        put(to_state, width_, ds);
      } else {
        elman_row<T>(h_, converted<C>(dh, h_, read), carry, converted<C>(out, h_, read + h_), to, cell_ == Cell::Relu);
      }
      put(to, width_, dx);
    }
  }

  // Sum over all rows of the gates' gradient times the state before. With as many rows in every step the states before
  // are the initial one and the output shifted by a step; else, and where two products would be rounded twice, they are
  // gathered.
  void state_weight(const T* ds, T* to) const {
    const T *initial = data_of<T>(s_.hx), *output = data_of<T>(s_.output);
    const int64_t n = walk_.sequences;
    const auto product = [&](int64_t rows, const T* d, const T* states, C beta) {
      gemm<T>(width_, p_, rows, C(1), {d, 1, stride_}, {states, p_, 1}, beta, to, p_);
    };
    if (walk_.even() && !is_half_type<T>) {
      const int64_t rest = total_ - n;
      product(n, ds + (walk_.reverse ? rest * stride_ : 0), initial, C(0));
      if (rest > 0) product(rest, ds + (walk_.reverse ? 0 : n * stride_), output + (walk_.reverse ? n * p_ : 0), C(1));
      return;
    }
    const Tensor before = empty_tensor({std::max<int64_t>(1, total_ * p_)}, dtype_of_v<T>);
    for (int64_t i = 0; i < walk_.steps; ++i)
      for (int64_t row = 0; row < walk_.count(i); ++row)
        std::copy_n(walk_.previous<T>(i, row, output, initial, p_), p_,
                    target_of<T>(before) + (walk_.first(i) + row) * p_);
    product(total_, ds, data_of<T>(before), C(0));
  }

  const Walk& walk_;
  Cell cell_;
  Saved s_;
  int64_t width_, h_, p_, total_;
  int64_t stride_, kept_;  // from row to row of the gates' gradients and of the gates
  C *carry_, *carry_c_;
  Tensor for_input_, for_state_, for_projection_, full_;
};

}  // namespace

void rnn_layer_grad_cpu(const Tensor& grad_output, const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& input,
                        const Tensor& hx, const Tensor& cx, const Tensor& w_ih, const Tensor& w_hh, const Tensor& w_hr,
                        const Tensor& output, const Tensor& gates, const Tensor& cells, IntSpan batch_sizes,
                        int64_t number, bool reverse, bool input_wanted, bool weights_wanted, const Tensor& input_grad,
                        const Tensor& hx_grad, const Tensor& cx_grad, const Tensor& w_ih_grad, const Tensor& w_hh_grad,
                        const Tensor& b_ih_grad, const Tensor& b_hh_grad, const Tensor& w_hr_grad) {
  const Walk walk(batch_sizes, reverse);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    // The initial gradients of the states: where these are of the type C, where their results are, too.
    const auto carried = [&](const Tensor& from, const Tensor& to) {
      const Tensor wide = is_half_type<T> ? empty_tensor(to.sizes(), dtype_of_v<C>) : to;
      for (int64_t j = 0; j < from.numel(); ++j) target_of<C>(wide)[j] = static_cast<C>(data_of<T>(from)[j]);
      return wide;
    };
    const bool lstm = cx.defined();
    const Tensor carry = carried(grad_hy, hx_grad), carry_c = lstm ? carried(grad_cy, cx_grad) : Tensor();
    const Tensor wide_cx = lstm ? contiguous_as(cx, dtype_of_v<C>) : cx;
    Backward<T> backward(walk, static_cast<Cell>(number),
                         {grad_output, input, hx, wide_cx, w_ih, w_hh, w_hr, output, gates, cells}, target_of<C>(carry),
                         target_of<C>(carry_c));
    backward.run();
    put(data_of<C>(carry), hx.numel(), target_of<T>(hx_grad));
    if (lstm) put(data_of<C>(carry_c), cx.numel(), target_of<T>(cx_grad));
    if (input_wanted) backward.input_gradient(target_of<T>(input_grad));
    if (weights_wanted)
      backward.weight_gradients(target_of<T>(w_ih_grad), target_of<T>(w_hh_grad), target_of<T>(b_ih_grad),
                                target_of<T>(b_hh_grad), target_of<T>(w_hr_grad));
  });
}

}  // namespace tapegrad::cpu::TG_ISA
