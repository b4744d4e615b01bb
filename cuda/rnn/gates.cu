// The pointwise parts of recurrent cells, an element of the state per thread.
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/rnn/steps.h"

namespace tapegrad::cuda {
namespace {

// Element j of each of the vectors of `h` elements that lie side by side in row `row` of p.
template <class T, int kVectors>
struct Row {
  T* p;
  int64_t h;
  TG_DEVICE Row(T* data, int64_t i, int64_t width) : p(data + i / width * kVectors * width + i % width), h(width) {}
  TG_DEVICE auto get(int v) const { return load_value(p + v * h); }
  TG_DEVICE void put(int v, compute_t<std::remove_const_t<T>> x) const { store_value(p + v * h, x); }
};

template <class T>
TG_DEVICE cells::Lstm<compute_t<T>> lstm_of(const T* gates, int64_t i, int64_t h) {
  const Row<const T, 4> g(gates, i, h);
  return cells::Lstm<compute_t<T>>::from_sums(g.get(0), g.get(1), g.get(2), g.get(3));
}
template <class T>
TG_DEVICE cells::Gru<compute_t<T>> gru_of(const T* input, const T* hidden, int64_t i, int64_t h) {
  const Row<const T, 3> x(input, i, h), s(hidden, i, h);
  return cells::Gru<compute_t<T>>::from_sums(x.get(0), x.get(1), x.get(2), s.get(0), s.get(1), s.get(2));
}

template <class T>
struct LstmForward {
  const T *gates, *cx;
  T *hy, *cy;
  int64_t h;
  TG_DEVICE void operator()(int64_t i) const {
    const auto g = lstm_of(gates, i, h);
    const auto next = g.next(load_value(cx + i));
    store_value(cy + i, next);
    store_value(hy + i, g.hidden(next));
  }
};
template <class T>
struct LstmBackward {
  const T *grad_hy, *grad_cy, *gates, *cx;
  T *gates_grad, *cx_grad;
  int64_t h;
  TG_DEVICE void operator()(int64_t i) const {
    const auto g = lstm_of(gates, i, h);
    const auto before = load_value(cx + i);
    const cells::LstmGrad<compute_t<T>> d(g, before, g.next(before), load_value(grad_hy + i), load_value(grad_cy + i));
    const Row<T, 4> to(gates_grad, i, h);
    to.put(0, d.in);
    to.put(1, d.forget);
    to.put(2, d.cell);
    to.put(3, d.out);
    store_value(cx_grad + i, d.before);
  }
};

template <class T>
struct GruForward {
  const T *input_gates, *hidden_gates, *hx;
  T* out;
  int64_t h;
  TG_DEVICE void operator()(int64_t i) const {
    store_value(out + i, gru_of(input_gates, hidden_gates, i, h).hidden(load_value(hx + i)));
  }
};
template <class T>
struct GruBackward {
  const T *grad, *input_gates, *hidden_gates, *hx;
  T *input_grad, *hidden_grad, *hx_grad;
  int64_t h;
  TG_DEVICE void operator()(int64_t i) const {
    const cells::GruGrad<compute_t<T>> d(gru_of(input_gates, hidden_gates, i, h), load_value(hx + i),
                                         load_value(grad + i));
    const Row<T, 3> x(input_grad, i, h), s(hidden_grad, i, h);
    x.put(0, d.reset);
    x.put(1, d.update);
    x.put(2, d.next);
    s.put(0, d.reset);
    s.put(1, d.update);
    s.put(2, d.part);
    store_value(hx_grad + i, d.before);
  }
};

}  // namespace

void lstm_gates_cuda(const Tensor& gates, const Tensor& cx, const Tensor& hy, const Tensor& cy) {
  const Work work(cx.device(), {&gates, &cx, &hy, &cy});
  dispatch_floating(cx.dtype(), [&]<class T>() {
    for_elements(work, cx.numel(),
                 LstmForward<T>{data_of<T>(gates), data_of<T>(cx), target_of<T>(hy), target_of<T>(cy), cx.size(1)});
  });
}
void lstm_gates_grad_cuda(const Tensor& grad_hy, const Tensor& grad_cy, const Tensor& gates, const Tensor& cx,
                          const Tensor& gates_grad, const Tensor& cx_grad) {
  const Work work(cx.device(), {&grad_hy, &grad_cy, &gates, &cx, &gates_grad, &cx_grad});
  dispatch_floating(cx.dtype(), [&]<class T>() {
    for_elements(work, cx.numel(),
                 LstmBackward<T>{data_of<T>(grad_hy), data_of<T>(grad_cy), data_of<T>(gates), data_of<T>(cx),
                                 target_of<T>(gates_grad), target_of<T>(cx_grad), cx.size(1)});
  });
}
void gru_gates_cuda(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx, const Tensor& out) {
  const Work work(hx.device(), {&input_gates, &hidden_gates, &hx, &out});
  dispatch_floating(hx.dtype(), [&]<class T>() {
    for_elements(work, hx.numel(),
                 GruForward<T>{data_of<T>(input_gates), data_of<T>(hidden_gates), data_of<T>(hx), target_of<T>(out),
                               hx.size(1)});
  });
}
void gru_gates_grad_cuda(const Tensor& output, const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                         const Tensor& input_gates_grad, const Tensor& hidden_gates_grad, const Tensor& hx_grad) {
  const Work work(hx.device(),
                  {&output, &input_gates, &hidden_gates, &hx, &input_gates_grad, &hidden_gates_grad, &hx_grad});
  dispatch_floating(hx.dtype(), [&]<class T>() {
    for_elements(work, hx.numel(),
                 GruBackward<T>{data_of<T>(output), data_of<T>(input_gates), data_of<T>(hidden_gates), data_of<T>(hx),
                                target_of<T>(input_gates_grad), target_of<T>(hidden_gates_grad), target_of<T>(hx_grad),
                                hx.size(1)});
  });
}

}  // namespace tapegrad::cuda
