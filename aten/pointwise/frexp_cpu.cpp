#include <cmath>

#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

void frexp_cpu(const Tensor& input, const Tensor& mantissa, const Tensor& exponent) {
  int32_t* to_exponent = static_cast<int32_t*>(exponent.data_ptr());
  dispatch_floating(input.dtype(), [&]<class T>() {
    const T* from = static_cast<const T*>(input.data_ptr());
    T* to = static_cast<T*>(mantissa.data_ptr());
    parallel_for(0, input.numel(), 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        int power = 0;  // unspecified for infinities and NaN otherwise
        const compute_t<T> x = static_cast<compute_t<T>>(from[i]);
        const compute_t<T> m = std::frexp(x, &power);
        to[i] = static_cast<T>(m);
        to_exponent[i] = std::isfinite(x) ? power : 0;
      }
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
