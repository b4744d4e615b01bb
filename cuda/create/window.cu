// Windows and frequencies (rows of fft.toml), computed in double as on the CPU.
#include "tapegrad/aten/fft/window_values.h"
#include "tapegrad/cuda/create/sequence.h"
#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {
namespace {

template <class F>
void fill_window(const Tensor& out, bool periodic, const F& value) {
  sequence<double>(out, windows::Samples<F>(value, out.numel(), periodic));
}

}  // namespace

void hann_window_cuda(int64_t, bool periodic, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill_window(out, periodic, windows::Hann());
}
void hamming_window_cuda(int64_t, bool periodic, double alpha, double beta, std::optional<DType>, std::optional<Device>,
                         const Tensor& out) {
  fill_window(out, periodic, windows::Hamming{alpha, beta});
}
void blackman_window_cuda(int64_t, bool periodic, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill_window(out, periodic, windows::Blackman());
}
void bartlett_window_cuda(int64_t, bool periodic, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  fill_window(out, periodic, windows::Bartlett());
}
void kaiser_window_cuda(int64_t, bool periodic, double beta, std::optional<DType>, std::optional<Device>,
                        const Tensor& out) {
  fill_window(out, periodic, windows::Kaiser(beta));
}
void fftfreq_cuda(int64_t n, double d, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  sequence<double>(out, windows::Frequencies(n, d, false));
}
void rfftfreq_cuda(int64_t n, double d, std::optional<DType>, std::optional<Device>, const Tensor& out) {
  sequence<double>(out, windows::Frequencies(n, d, true));
}

}  // namespace tapegrad::cuda
