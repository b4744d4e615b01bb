// Softmax and its gradient along any dimension of a contiguous tensor, seen as [outer, n, inner]: three passes over a
// line, of which the second and third find it in the cache.
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/along_dim.h"
#include "tapegrad/aten/softmax/kernels.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

// Lines of n elements that lie `inner` apart.
struct Lines {
  int64_t n, inner;
  TG_DEVICE int64_t base(int64_t line) const { return line / inner * n * inner + line % inner; }
};

template <bool kLog, class T>
struct Forward : Lines {
  const T* x;
  T* out;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    using C = compute_t<T>;
    const int64_t base = Lines::base(line);
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
struct Backward : Lines {
  const T *grad, *y;
  T* out;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    using C = compute_t<T>;
    C sum = 0;
    const int64_t base = Lines::base(line);
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
              Forward<kLog, T>{{e.n, e.inner}, data_of<T>(input), target_of<T>(out)});
  });
}
template <bool kLog>
void backward(const Tensor& grad, const Tensor& y, int64_t dim, const Tensor& out) {
  const Extent e(y, dim);
  const Work work(out.device(), {&grad, &y, &out});
  if (e.n == 0) return;
  dispatch_floating(y.dtype(), [&]<class T>() {
    for_lines(work, e.outer * e.inner, e.n, e.inner > 1,
              Backward<kLog, T>{{e.n, e.inner}, data_of<T>(grad), data_of<T>(y), target_of<T>(out)});
  });
}

}  // namespace

TG_SOFTMAX_KERNELS(cuda)

}  // namespace tapegrad::cuda
