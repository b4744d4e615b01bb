// Kernels of windows and frequencies. Values are computed in double and rounded once.
#include "tapegrad/aten/fft/window_values.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_fft.h"
#include "tapegrad/aten/kernels_fft.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu {
namespace {

template <class F>
void fill(const Tensor& out, F&& value) {
  int64_t n = out.numel();
  dispatch_floating(out.dtype(), [&]<class T>() {
    T* to = static_cast<T*>(out.data_ptr());
    parallel_for(0, n, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[i] = T(value(i));
    });
  });
}

}  // namespace

#define TG_NAMED(name) name
TG_WINDOW_KERNELS(TG_NAMED, fill)

}  // namespace tapegrad::cpu
