#include <cstring>

#include "tapegrad/aten/loss/label.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

// The number of elements after the class dimension.
int64_t inner_size(IntSpan sizes) {
  int64_t n = 1;
  for (size_t d = 2; d < sizes.size(); ++d) n *= sizes[d];
  return n;
}

}  // namespace

void nll_loss_cpu(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t reduction,
                  int64_t ignore_index, const Tensor& out, const Tensor& out_total) {
  const int64_t classes = input.size(1), inner = inner_size(input.sizes());
  const std::vector<int64_t> labels = label::read(target, classes, ignore_index, "nll_loss");
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T* x = static_cast<const T*>(input.data_ptr());
    const T* w = weight.defined() ? static_cast<const T*>(weight.data_ptr()) : nullptr;
    std::vector<C> losses(labels.size()), weights(labels.size());
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == ignore_index) continue;
      const auto n = static_cast<int64_t>(i) / inner, k = static_cast<int64_t>(i) % inner;
      weights[i] = w ? static_cast<C>(w[labels[i]]) : C(1);
      losses[i] = -weights[i] * static_cast<C>(x[(n * classes + labels[i]) * inner + k]);
    }
    label::write_reduced<T, C>(losses, weights, reduction, out, out_total);
  });
}

void nll_loss_backward_cpu(const Tensor& grad_output, const Tensor& target, const Tensor& weight,
                           const Tensor& total_weight, IntSpan sizes, int64_t reduction, int64_t ignore_index,
                           const Tensor& out) {
  const int64_t classes = sizes[1], inner = inner_size(sizes);
  const std::vector<int64_t> labels = label::read(target, classes, ignore_index, "nll_loss");
  if (out.numel() > 0) std::memset(out.data_ptr(), 0, static_cast<size_t>(out.nbytes()));
  dispatch_floating(grad_output.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const label::GradientScale<T> scale(grad_output, total_weight, reduction);
    const T* w = weight.defined() ? static_cast<const T*>(weight.data_ptr()) : nullptr;
    T* o = static_cast<T*>(out.data_ptr());
    for (size_t i = 0; i < labels.size(); ++i) {
      if (labels[i] == ignore_index) continue;
      const auto n = static_cast<int64_t>(i) / inner, k = static_cast<int64_t>(i) % inner;
      const C wi = w ? static_cast<C>(w[labels[i]]) : C(1);
      o[(n * classes + labels[i]) * inner + k] = T(-wi * scale(static_cast<int64_t>(i)));
    }
  });
}

}  // namespace tapegrad::cpu::TG_ISA
