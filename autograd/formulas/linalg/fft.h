// Gradients of the real Fourier transforms. Written in tapegrad's own operators.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

Tensor fft_r2c_backward(const Tensor& grad, int64_t n, int64_t dim, double scale, bool onesided);
Tensor fft_c2r_backward(const Tensor& grad, int64_t dim, double scale);

}  // namespace tapegrad
