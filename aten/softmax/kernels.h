// The kernels of softmax for one device. Its file has forward<kLog>(input, dim, out) and
// backward<kLog>(grad_output, output, dim, out).
#pragma once

#define TG_SOFTMAX_KERNELS(device)                                                                                   \
  void softmax_##device(const Tensor& input, int64_t dim, const Tensor& out) { forward<false>(input, dim, out); }    \
  void log_softmax_##device(const Tensor& input, int64_t dim, const Tensor& out) { forward<true>(input, dim, out); } \
  void softmax_backward_##device(const Tensor& grad_output, const Tensor& output, int64_t dim, const Tensor& out) {  \
    backward<false>(grad_output, output, dim, out);                                                                  \
  }                                                                                                                  \
  void log_softmax_backward_##device(const Tensor& grad_output, const Tensor& output, int64_t dim,                   \
                                     const Tensor& out) {                                                            \
    backward<true>(grad_output, output, dim, out);                                                                   \
  }
