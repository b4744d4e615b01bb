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

template <class F>
void fill_window(const Tensor& out, bool periodic, const F& value) {
  fill(out, windows::Samples<F>(value, out.numel(), periodic));
}

}  // namespace

void hann_window(int64_t, bool periodic, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill_window(out, periodic, windows::Hann());
}

void hamming_window(int64_t, bool periodic, double alpha, double beta, std::optional<DType>, std::optional<Device>,
                    const Tensor& out) {
  fill_window(out, periodic, windows::Hamming{alpha, beta});
}

void blackman_window(int64_t, bool periodic, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill_window(out, periodic, windows::Blackman());
}

void bartlett_window(int64_t, bool periodic, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill_window(out, periodic, windows::Bartlett());
}

void kaiser_window(int64_t, bool periodic, double beta, std::optional<DType>, std::optional<Device>,
                   const Tensor& out) {
  fill_window(out, periodic, windows::Kaiser(beta));
}

void fftfreq(int64_t n, double d, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill(out, windows::Frequencies(n, d, false));
}

void rfftfreq(int64_t n, double d, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill(out, windows::Frequencies(n, d, true));
}

}  // namespace tapegrad::cpu
