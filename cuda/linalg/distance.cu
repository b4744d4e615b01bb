#include "tapegrad/aten/linalg/distance_steps.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

using steps::narrow;
using steps::widen;

// One pair of points for each thread; neighbours share the point of x1.
template <class T, class Steps>
struct Distance {
  const T *x1, *x2;
  T* out;
  int64_t n, m, d;
  Steps steps;
  TG_DEVICE void operator()(int64_t i) const {
    const T *a = x1 + i / m * d, *b = x2 + (i / (n * m) * m + i % m) * d;
    auto sum = widen<T>(T(0));
    for (int64_t k = 0; k < d; ++k) sum = steps.step(sum, widen<T>(a[k]) - widen<T>(b[k]));
    out[i] = narrow<T>(steps.end(sum));
  }
};

// One coordinate of a point of x2 for each thread.
template <class T, class Steps>
struct Slopes {
  const T *grad, *x1, *x2, *distances;
  T* out;
  int64_t n, m, d;
  Steps steps;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t k = i % d, j = i / d % m, b = i / (d * m);
    T sum = T(0);
    for (int64_t r = 0; r < n; ++r) {
      const int64_t pair = (b * n + r) * m + j;
      sum += steps.slope(steps.share(grad[pair], distances[pair]), x2[i] - x1[(b * n + r) * d + k], distances[pair]);
    }
    out[i] = sum;
  }
};

}  // namespace

void cdist_grad_cuda(const Tensor& grad_output, const Tensor& x1, const Tensor& x2, const Tensor& distances, double p,
                     const Tensor& out) {
  const Work work(out.device(), {&grad_output, &x1, &x2, &distances, &out});
  auto run = [&]<class T>() {
    distance::dispatch_slopes(p, [&]<class Steps>(const Steps& steps) {
      for_elements(work, out.numel(),
                   Slopes<T, Steps>{data_of<T>(grad_output), data_of<T>(x1), data_of<T>(x2), data_of<T>(distances),
                                    target_of<T>(out), x1.size(1), x2.size(1), x1.size(2), steps});
    });
  };
  out.dtype() == DType::float64 ? run.template operator()<double>() : run.template operator()<float>();
}

void cdist_cuda(const Tensor& x1, const Tensor& x2, double p, const Tensor& out) {
  const Work work(out.device(), {&x1, &x2, &out});
  dispatch_floating(out.dtype(), [&]<class T>() {
    distance::dispatch(p, [&]<class Steps>(const Steps& steps) {
      for_elements(work, out.numel(),
                   Distance<T, Steps>{data_of<T>(x1), data_of<T>(x2), target_of<T>(out), x1.size(1), x2.size(1),
                                      x1.size(2), steps});
    });
  });
}

}  // namespace tapegrad::cuda
