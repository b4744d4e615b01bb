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
  bool packed;
  TG_DEVICE int64_t base(int64_t line) const { return inner == 1 ? line * n : line / inner * n * inner + line % inner; }
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
    for_packs<T>(g, n, packed, [&]<int V>(int64_t i) {
      const auto v = load_values<V>(x + base + i * inner);
      TG_UNROLL
      for (int j = 0; j < V; ++j) top = v.v[j] > top ? v.v[j] : top;
    });
    top = g.reduce(top, Largest());
    C sum = 0;
    for_packs<T>(g, n, packed, [&]<int V>(int64_t i) {
      const auto v = load_values<V>(x + base + i * inner);
      TG_UNROLL
      for (int j = 0; j < V; ++j) sum += math::exp(v.v[j] - top);
    });
    sum = g.reduce(sum, Sum());
    const C total = kLog ? math::log(sum) : C(1) / sum;
    for_packs<T>(g, n, packed, [&]<int V>(int64_t i) {
      auto v = load_values<V>(x + base + i * inner);
      TG_UNROLL
      for (int j = 0; j < V; ++j) {
        const C d = v.v[j] - top;
        v.v[j] = kLog ? d - total : math::exp(d) * total;
      }
      store_values<V>(out + base + i * inner, v);
    });
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
    for_packs<T>(g, n, packed, [&]<int V>(int64_t i) {
      const auto v = load_values<V>(grad + base + i * inner);
      if constexpr (kLog) {
        TG_UNROLL
        for (int j = 0; j < V; ++j) sum += v.v[j];
      } else {
        const auto p = load_values<V>(y + base + i * inner);
        TG_UNROLL
        for (int j = 0; j < V; ++j) sum += v.v[j] * p.v[j];
      }
    });
    sum = g.reduce(sum, Sum());
    for_packs<T>(g, n, packed, [&]<int V>(int64_t i) {
      auto v = load_values<V>(grad + base + i * inner);
      const auto p = load_values<V>(y + base + i * inner);
      TG_UNROLL
      for (int j = 0; j < V; ++j) v.v[j] = kLog ? v.v[j] - math::exp(p.v[j]) * sum : p.v[j] * (v.v[j] - sum);
      store_values<V>(out + base + i * inner, v);
    });
  }
};

template <bool kLog>
void forward(const Tensor& input, int64_t dim, const Tensor& out) {
  const Extent e(input, dim);
  const Work work(out.device(), {&input, &out});
  if (e.n == 0) return;
  dispatch_floating(input.dtype(), [&]<class T>() {
    const Lines lines{e.n, e.inner, e.inner == 1 && in_packs(e.n, {&input, &out})};
    for_lines(work, e.outer * e.inner, e.n, e.inner > 1, Forward<kLog, T>{lines, data_of<T>(input), target_of<T>(out)});
  });
}
template <bool kLog>
void backward(const Tensor& grad, const Tensor& y, int64_t dim, const Tensor& out) {
  const Extent e(y, dim);
  const Work work(out.device(), {&grad, &y, &out});
  if (e.n == 0) return;
  dispatch_floating(y.dtype(), [&]<class T>() {
    const Lines lines{e.n, e.inner, e.inner == 1 && in_packs(e.n, {&grad, &y, &out})};
    for_lines(work, e.outer * e.inner, e.n, e.inner > 1,
              Backward<kLog, T>{lines, data_of<T>(grad), data_of<T>(y), target_of<T>(out)});
  });
}

}  // namespace

TG_SOFTMAX_KERNELS(cuda)

}  // namespace tapegrad::cuda
