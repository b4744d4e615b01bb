// Shared code of the kernels over class labels: reading a label as int64 with its check, and sums of losses that have
// the same bits for any number of threads. Included by kernel files only.
#pragma once

#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA::label {

// The labels as int64; raises IndexError for one that is neither a class nor the one to be ignored.
inline std::vector<int64_t> read(const Tensor& target, int64_t classes, int64_t ignore, const char* op) {
  std::vector<int64_t> labels(static_cast<size_t>(target.numel()));
  dispatch_dtype(target.dtype(), [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      const T* p = static_cast<const T*>(target.data_ptr());
      for (size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<int64_t>(p[i]);
    }
  });
  for (int64_t t : labels)
    TG_CHECK(t == ignore || (t >= 0 && t < classes), Index, "{}: target {} is out of bounds for {} classes", op, t,
             classes);
  return labels;
}

// Pairwise, so that the error grows with the logarithm of the count.
template <class C>
C pairwise_sum(const C* p, size_t n) {
  if (n <= 64) {
    C s = 0;
    for (size_t i = 0; i < n; ++i) s += p[i];
    return s;
  }
  return pairwise_sum(p, n / 2) + pairwise_sum(p + n / 2, n - n / 2);
}

// Writes the losses, reduced as requested, and the sum of the weights.
template <class T, class C>
void write_reduced(const std::vector<C>& losses, const std::vector<C>& weights, int64_t reduction, const Tensor& out,
                   const Tensor& out_total) {
  T* o = static_cast<T*>(out.data_ptr());
  const C total = pairwise_sum(weights.data(), weights.size());
  if (reduction == 0) {
    for (size_t i = 0; i < losses.size(); ++i) o[i] = T(losses[i]);
  } else {
    const C s = pairwise_sum(losses.data(), losses.size());
    o[0] = T(reduction == 1 ? s / total : s);
  }
  *static_cast<T*>(out_total.data_ptr()) = T(total);
}

// The factor of each sample's gradient.
template <class T>
struct GradientScale {
  using C = compute_t<T>;
  const T* grad;
  int64_t reduction;
  C total;
  GradientScale(const Tensor& grad_output, const Tensor& total_weight, int64_t r)
      : grad(static_cast<const T*>(grad_output.data_ptr())),
        reduction(r),
        total(static_cast<C>(*static_cast<const T*>(total_weight.data_ptr()))) {}
  C operator()(int64_t sample) const {
    const C g = static_cast<C>(grad[reduction == 0 ? sample : 0]);
    return reduction == 1 ? g / total : g;
  }
};

}  // namespace tapegrad::cpu::TG_ISA::label
