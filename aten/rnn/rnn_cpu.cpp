// The pointwise parts of recurrent cells. A row of gates is a few vectors side by side; every loop runs over one
// vector's elements in the compute type.
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

constexpr int64_t kGrain = 4096;  // elements of the state

template <class T>
T* ptr(const Tensor& t) {
  return static_cast<T*>(t.data_ptr());
}

template <class C>
inline C logistic(C x) {
  return C(1) / (C(1) + math::exp(-x));
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
    const T *g = ptr<const T>(gates) + row * 4 * h, *c = ptr<const T>(cx) + row * h;
    T *new_h = ptr<T>(hy) + row * h, *new_c = ptr<T>(cy) + row * h;
    for (int64_t j = 0; j < h; ++j) {
      C in = logistic(static_cast<C>(g[j])), forget = logistic(static_cast<C>(g[h + j]));
      C cell = math::tanh(static_cast<C>(g[2 * h + j])), out = logistic(static_cast<C>(g[3 * h + j]));
      C next = forget * static_cast<C>(c[j]) + in * cell;
      new_c[j] = T(next);
      new_h[j] = T(out * math::tanh(next));
    }
  });
}

void lstm_gates_grad_cpu(const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& gates, const Tensor& cx,
                         const Tensor& gates_grad, const Tensor& cx_grad) {
  each_row(cx, [&]<class T>(int64_t row, int64_t h) {
    using C = compute_t<T>;
    const T *g = ptr<const T>(gates) + row * 4 * h, *c = ptr<const T>(cx) + row * h;
    const T *gh = ptr<const T>(grad_hy) + row * h, *gc = ptr<const T>(grad_cy) + row * h;
    T *gg = ptr<T>(gates_grad) + row * 4 * h, *gx = ptr<T>(cx_grad) + row * h;
    for (int64_t j = 0; j < h; ++j) {
      C in = logistic(static_cast<C>(g[j])), forget = logistic(static_cast<C>(g[h + j]));
      C cell = math::tanh(static_cast<C>(g[2 * h + j])), out = logistic(static_cast<C>(g[3 * h + j]));
      C old = static_cast<C>(c[j]);
      C t = math::tanh(forget * old + in * cell);
      C dh = static_cast<C>(gh[j]);
      C dc = static_cast<C>(gc[j]) + dh * out * (C(1) - t * t);
      gg[j] = T(dc * cell * in * (C(1) - in));
      gg[h + j] = T(dc * old * forget * (C(1) - forget));
      gg[2 * h + j] = T(dc * in * (C(1) - cell * cell));
      gg[3 * h + j] = T(dh * t * out * (C(1) - out));
      gx[j] = T(dc * forget);
    }
  });
}

void gru_gates_cpu(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx, const Tensor& out) {
  each_row(hx, [&]<class T>(int64_t row, int64_t h) {
    using C = compute_t<T>;
    const T *x = ptr<const T>(input_gates) + row * 3 * h, *s = ptr<const T>(hidden_gates) + row * 3 * h;
    const T* old = ptr<const T>(hx) + row * h;
    T* to = ptr<T>(out) + row * h;
    for (int64_t j = 0; j < h; ++j) {
      C reset = logistic(static_cast<C>(x[j]) + static_cast<C>(s[j]));
      C update = logistic(static_cast<C>(x[h + j]) + static_cast<C>(s[h + j]));
      C next = math::tanh(static_cast<C>(x[2 * h + j]) + reset * static_cast<C>(s[2 * h + j]));
      to[j] = T(next + update * (static_cast<C>(old[j]) - next));
    }
  });
}

void gru_gates_grad_cpu(const Tensor& output, const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                        const Tensor& input_gates_grad, const Tensor& hidden_gates_grad, const Tensor& hx_grad) {
  each_row(hx, [&]<class T>(int64_t row, int64_t h) {
    using C = compute_t<T>;
    const T *x = ptr<const T>(input_gates) + row * 3 * h, *s = ptr<const T>(hidden_gates) + row * 3 * h;
    const T *old = ptr<const T>(hx) + row * h, *g = ptr<const T>(output) + row * h;
    T *gx = ptr<T>(input_gates_grad) + row * 3 * h, *gs = ptr<T>(hidden_gates_grad) + row * 3 * h;
    T* gh = ptr<T>(hx_grad) + row * h;
    for (int64_t j = 0; j < h; ++j) {
      C reset = logistic(static_cast<C>(x[j]) + static_cast<C>(s[j]));
      C update = logistic(static_cast<C>(x[h + j]) + static_cast<C>(s[h + j]));
      C part = static_cast<C>(s[2 * h + j]);
      C next = math::tanh(static_cast<C>(x[2 * h + j]) + reset * part);
      C d = static_cast<C>(g[j]);
      C dn = d * (C(1) - update) * (C(1) - next * next);
      C dr = dn * part * reset * (C(1) - reset);
      C du = d * (static_cast<C>(old[j]) - next) * update * (C(1) - update);
      gx[j] = gs[j] = T(dr);
      gx[h + j] = gs[h + j] = T(du);
      gx[2 * h + j] = T(dn);
      gs[2 * h + j] = T(dn * reset);
      gh[j] = T(d * update);
    }
  });
}

}  // namespace tapegrad::cpu::TG_ISA
