// Sampling at given positions and its gradients.
#include "tapegrad/aten/typed.h"
#include "tapegrad/aten/upsample/grid_taps.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using grid::Sampling;
using grid::Taps;

int64_t product(IntSpan sizes, size_t first) {
  int64_t n = 1;
  for (size_t d = first; d < sizes.size(); ++d) n *= sizes[d];
  return n;
}

}  // namespace

void grid_sample_cpu(const Tensor& input, const Tensor& grid, std::string_view mode, std::string_view padding_mode,
                     bool align_corners, const Tensor& out) {
  if (out.numel() == 0) return;
  const Sampling s(mode, padding_mode, align_corners);
  const grid::Image shape(input.sizes());
  int64_t channels = input.size(1), plane = product(input.sizes(), 2), positions = product(out.sizes(), 2),
          n = input.ndim() - 2;
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T *from = static_cast<const T*>(input.data_ptr()), *at = static_cast<const T*>(grid.data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    parallel_for(0, input.size(0) * positions, 4096 / (channels + 4) + 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        Taps<C> taps(s, at + i * n, shape);
        int64_t image = i / positions, p = i % positions;
        for (int64_t c = 0; c < channels; ++c) {
          const T* x = from + (image * channels + c) * plane;
          C sum = 0;
          for (int k = 0; k < taps.count; ++k) sum += taps.weight[k] * static_cast<C>(x[taps.offset[k]]);
          to[(image * channels + c) * positions + p] = T(sum);
        }
      }
    });
  });
}

void grid_sample_grad_cpu(const Tensor& output, const Tensor& input, const Tensor& grid, std::string_view mode,
                          std::string_view padding_mode, bool align_corners, const Tensor& input_grad,
                          const Tensor& grid_grad) {
  const Sampling s(mode, padding_mode, align_corners);
  const grid::Image shape(input.sizes());
  int64_t channels = input.size(1), plane = product(input.sizes(), 2), positions = product(output.sizes(), 2),
          n = input.ndim() - 2;
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T *from = static_cast<const T*>(input.data_ptr()), *at = static_cast<const T*>(grid.data_ptr());
    const T* g = static_cast<const T*>(output.data_ptr());
    T *to = static_cast<T*>(input_grad.data_ptr()), *to_grid = static_cast<T*>(grid_grad.data_ptr());
    // Positions may share neighbours, so an image is one thread's.
    parallel_for(0, input.size(0), 4096 / (channels * positions + channels * plane + 1) + 1,
                 [&](int64_t first, int64_t last) {
                   std::vector<C> sums(static_cast<size_t>(channels * plane));
                   WorkCount done;
                   for (int64_t image = first; image < last; ++image) {
                     std::fill(sums.begin(), sums.end(), C(0));
                     for (int64_t p = 0; p < positions; ++p) {
                       int64_t i = image * positions + p;
                       done(16 * channels);
                       Taps<C> taps(s, at + i * n, shape);
                       C d[3] = {};
                       for (int64_t c = 0; c < channels; ++c) {
                         const T* x = from + (image * channels + c) * plane;
                         C* sum = sums.data() + c * plane;
                         C here = static_cast<C>(g[(image * channels + c) * positions + p]);
                         for (int k = 0; k < taps.count; ++k) {
                           sum[taps.offset[k]] += here * taps.weight[k];
                           C value = here * static_cast<C>(x[taps.offset[k]]);
                           for (int a = 0; a < 3; ++a) d[a] += value * taps.slope[a][k];
                         }
                       }
                       for (int64_t a = 0; a < n; ++a) to_grid[i * n + a] = T(d[a]);
                     }
                     for (int64_t i = 0; i < channels * plane; ++i)
                       to[image * channels * plane + i] = T(sums[static_cast<size_t>(i)]);
                   }
                 });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
