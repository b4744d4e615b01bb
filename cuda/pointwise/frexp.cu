#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

TG_DEVICE float split(float x, int* power) { return ::frexpf(x, power); }
TG_DEVICE double split(double x, int* power) { return ::frexp(x, power); }

template <class T>
struct Frexp {
  const T* from;
  T* mantissa;
  int32_t* exponent;
  TG_DEVICE void operator()(int64_t i) const {
    int power = 0;  // unspecified for infinities and NaN otherwise
    const auto x = load_value(from + i);
    store_value(mantissa + i, split(x, &power));
    exponent[i] = math::isfinite(x) ? power : 0;
  }
};

}  // namespace

void frexp_cuda(const Tensor& input, const Tensor& mantissa, const Tensor& exponent) {
  const Work work(input.device(), {&input, &mantissa, &exponent});
  dispatch_floating(input.dtype(), [&]<class T>() {
    for_elements(work, input.numel(),
                 Frexp<T>{data_of<T>(input), target_of<T>(mantissa), target_of<int32_t>(exponent)});
  });
}

}  // namespace tapegrad::cuda
