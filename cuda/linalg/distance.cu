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

}  // namespace

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
