// Softmax and its gradient along any dimension of a contiguous tensor, seen as [outer, n, inner]: three passes over a
// line, of which the second and third find it in the cache.
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/along_dim.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

template <bool kLog, class T>
struct Forward {
  const T* x;
  T* out;
  int64_t n, inner;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    using C = compute_t<T>;
    const int64_t base = line / inner * n * inner + line % inner;
    C top = -std::numeric_limits<C>::infinity();
    for (int64_t i = g.lane(); i < n; i += g.lanes()) {
      const C v = load_value(x + base + i * inner);
      top = v > top ? v : top;
    }
    top = g.reduce(top, Largest());
    C sum = 0;
    for (int64_t i = g.lane(); i < n; i += g.lanes()) sum += math::exp(load_value(x + base + i * inner) - top);
    sum = g.reduce(sum, Sum());
    const C total = kLog ? math::log(sum) : C(1) / sum;
    for (int64_t i = g.lane(); i < n; i += g.lanes()) {
      const C v = load_value(x + base + i * inner) - top;
      store_value(out + base + i * inner, kLog ? v - total : math::exp(v) * total);
    }
  }
};

template <bool kLog, class T>
struct Backward {
  const T* grad;
  const T* y;
  T* out;
  int64_t n, inner;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    using C = compute_t<T>;
    const int64_t base = line / inner * n * inner + line % inner;
    C sum = 0;
    for (int64_t i = g.lane(); i < n; i += g.lanes()) {
      const C v = load_value(grad + base + i * inner);
      sum += kLog ? v : v * load_value(y + base + i * inner);
    }
    sum = g.reduce(sum, Sum());
    for (int64_t i = g.lane(); i < n; i += g.lanes()) {
      const C v = load_value(grad + base + i * inner), p = load_value(y + base + i * inner);
      store_value(out + base + i * inner, kLog ? v - math::exp(p) * sum : p * (v - sum));
    }
  }
};

template <bool kLog>
void forward(const Tensor& input, int64_t dim, const Tensor& out) {
  const Extent e(input, dim);
  const Work work(out.device(), {&input, &out});
  if (e.n == 0) return;
  dispatch_floating(input.dtype(), [&]<class T>() {
    for_lines(work, e.outer * e.inner, e.n, e.inner > 1,
              Forward<kLog, T>{data_of<T>(input), target_of<T>(out), e.n, e.inner});
  });
}
template <bool kLog>
void backward(const Tensor& grad, const Tensor& y, int64_t dim, const Tensor& out) {
  const Extent e(y, dim);
  const Work work(out.device(), {&grad, &y, &out});
  if (e.n == 0) return;
  dispatch_floating(y.dtype(), [&]<class T>() {
    for_lines(work, e.outer * e.inner, e.n, e.inner > 1,
              Backward<kLog, T>{data_of<T>(grad), data_of<T>(y), target_of<T>(out), e.n, e.inner});
  });
}

}  // namespace

void softmax_cuda(const Tensor& input, int64_t dim, const Tensor& out) { forward<false>(input, dim, out); }
void log_softmax_cuda(const Tensor& input, int64_t dim, const Tensor& out) { forward<true>(input, dim, out); }
void softmax_backward_cuda(const Tensor& grad, const Tensor& y, int64_t dim, const Tensor& out) {
  backward<false>(grad, y, dim, out);
}
void log_softmax_backward_cuda(const Tensor& grad, const Tensor& y, int64_t dim, const Tensor& out) {
  backward<true>(grad, y, dim, out);
}

}  // namespace tapegrad::cuda
