// The pointwise parts of recurrent cells. A row of gates is a few vectors side by side; every loop runs over one
// vector's elements in the compute type.
#include "tapegrad/aten/rnn/cells.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

constexpr int64_t kGrain = 4096;  // elements of the state

namespace cells = rnn::cells;

// Element 0 of the gates' sums, which lie h apart.
template <class T>
cells::Lstm<compute_t<T>> lstm_of(const T* g, int64_t h) {
  using C = compute_t<T>;
  return cells::Lstm<C>::from_sums(static_cast<C>(g[0]), static_cast<C>(g[h]), static_cast<C>(g[2 * h]),
                                   static_cast<C>(g[3 * h]));
}
template <class T>
cells::Gru<compute_t<T>> gru_of(const T* x, const T* s, int64_t h) {
  using C = compute_t<T>;
  return cells::Gru<C>::from_sums(static_cast<C>(x[0]), static_cast<C>(x[h]), static_cast<C>(x[2 * h]),
                                  static_cast<C>(s[0]), static_cast<C>(s[h]), static_cast<C>(s[2 * h]));
}

// f(row, T()) for each row of a state (n, h).
template <class F>
void each_row(const Tensor& state, F&& f) {
  int64_t h = state.size(1);
  if (state.numel() == 0) return;
  dispatch_floating(state.dtype(), [&]<class T>() {
    parallel_for(0, state.size(0), kGrain / h + 1, [&](int64_t first, int64_t last) {
      for (int64_t row = first; row < last; ++row) f.template operator()<T>(row, h);
    });
  });
}

}  // namespace

void lstm_gates_cpu(const Tensor& gates, const Tensor& cx, const Tensor& hy, const Tensor& cy) {
  each_row(cx, [&]<class T>(int64_t row, int64_t h) {
    using C = compute_t<T>;
    const T *g = data_of<T>(gates) + row * 4 * h, *c = data_of<T>(cx) + row * h;
    T *new_h = target_of<T>(hy) + row * h, *new_c = target_of<T>(cy) + row * h;
    for (int64_t j = 0; j < h; ++j) {
      const auto x = lstm_of(g + j, h);
      const C next = x.next(static_cast<C>(c[j]));
      new_c[j] = T(next);
      new_h[j] = T(x.hidden(next));
    }
  });
}

void lstm_gates_grad_cpu(const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& gates, const Tensor& cx,
                         const Tensor& gates_grad, const Tensor& cx_grad) {
  each_row(cx, [&]<class T>(int64_t row, int64_t h) {
    using C = compute_t<T>;
    const T *g = data_of<T>(gates) + row * 4 * h, *c = data_of<T>(cx) + row * h;
    const T *gh = data_of<T>(grad_hy) + row * h, *gc = data_of<T>(grad_cy) + row * h;
    T *gg = target_of<T>(gates_grad) + row * 4 * h, *gx = target_of<T>(cx_grad) + row * h;
    for (int64_t j = 0; j < h; ++j) {
      const auto x = lstm_of(g + j, h);
      const C old = static_cast<C>(c[j]);
      const cells::LstmGrad<C> to(x, old, x.next(old), static_cast<C>(gh[j]), static_cast<C>(gc[j]));
      gg[j] = T(to.in);
      gg[h + j] = T(to.forget);
      gg[2 * h + j] = T(to.cell);
      gg[3 * h + j] = T(to.out);
      gx[j] = T(to.before);
    }
  });
}

void gru_gates_cpu(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx, const Tensor& out) {
  each_row(hx, [&]<class T>(int64_t row, int64_t h) {
    using C = compute_t<T>;
    const T *x = data_of<T>(input_gates) + row * 3 * h, *s = data_of<T>(hidden_gates) + row * 3 * h;
    const T* old = data_of<T>(hx) + row * h;
    T* to = target_of<T>(out) + row * h;
    for (int64_t j = 0; j < h; ++j) {
      to[j] = T(gru_of(x + j, s + j, h).hidden(static_cast<C>(old[j])));
    }
  });
}

void gru_gates_grad_cpu(const Tensor& output, const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                        const Tensor& input_gates_grad, const Tensor& hidden_gates_grad, const Tensor& hx_grad) {
  each_row(hx, [&]<class T>(int64_t row, int64_t h) {
    using C = compute_t<T>;
    const T *x = data_of<T>(input_gates) + row * 3 * h, *s = data_of<T>(hidden_gates) + row * 3 * h;
    const T *old = data_of<T>(hx) + row * h, *g = data_of<T>(output) + row * h;
    T *gx = target_of<T>(input_gates_grad) + row * 3 * h, *gs = target_of<T>(hidden_gates_grad) + row * 3 * h;
    T* gh = target_of<T>(hx_grad) + row * h;
    for (int64_t j = 0; j < h; ++j) {
      const cells::GruGrad<C> to(gru_of(x + j, s + j, h), static_cast<C>(old[j]), static_cast<C>(g[j]));
      gx[j] = gs[j] = T(to.reset);
      gx[h + j] = gs[h + j] = T(to.update);
      gx[2 * h + j] = T(to.next);
      gs[2 * h + j] = T(to.part);
      gh[j] = T(to.before);
    }
  });
}

}  // namespace tapegrad::cpu::TG_ISA
