// Sampling at given positions and its gradients.
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/aten/upsample/grid_taps.h"
#include "tapegrad/c10/tensor/product.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using grid::Sampling;
using grid::Taps;

struct Sizes {
  int64_t channels, plane, positions, spatial;  // positions: of an image
  Sizes(const Tensor& input, const Tensor& output)
      : channels(input.size(1)),
        plane(product(input.sizes().subspan(2))),
        positions(product(output.sizes().subspan(2))),
        spatial(input.ndim() - 2) {}
};

}  // namespace

void grid_sample_cpu(const Tensor& input, const Tensor& grid, std::string_view mode, std::string_view padding_mode,
                     bool align_corners, const Tensor& out) {
  if (out.numel() == 0) return;
  const Sampling s(mode, padding_mode, align_corners);
  const grid::Image shape(input.sizes());
  const Sizes z(input, out);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T *from = data_of<T>(input), *at = data_of<T>(grid);
    T* to = target_of<T>(out);
    parallel_for(0, input.size(0) * z.positions, 4096 / (z.channels + 4) + 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        Taps<C> taps(s, at + i * z.spatial, shape);
        int64_t image = i / z.positions, p = i % z.positions;
        for (int64_t c = 0; c < z.channels; ++c) {
          const T* x = from + (image * z.channels + c) * z.plane;
          C sum = 0;
          for (int k = 0; k < taps.count; ++k) sum += taps.weight[k] * static_cast<C>(x[taps.offset[k]]);
          to[(image * z.channels + c) * z.positions + p] = T(sum);
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
  const Sizes z(input, output);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T *from = data_of<T>(input), *at = data_of<T>(grid), *g = data_of<T>(output);
    T *to = target_of<T>(input_grad), *to_grid = target_of<T>(grid_grad);
    // Positions may share neighbours, so an image is one thread's.
    parallel_for(0, input.size(0), 4096 / (z.channels * z.positions + z.channels * z.plane + 1) + 1,
                 [&](int64_t first, int64_t last) {
                   std::vector<C> sums(static_cast<size_t>(z.channels * z.plane));
                   WorkCount done;
                   for (int64_t image = first; image < last; ++image) {
                     std::fill(sums.begin(), sums.end(), C(0));
                     for (int64_t p = 0; p < z.positions; ++p) {
                       int64_t i = image * z.positions + p;
                       done(16 * z.channels);
                       Taps<C> taps(s, at + i * z.spatial, shape);
                       C d[3] = {};
                       for (int64_t c = 0; c < z.channels; ++c) {
                         const T* x = from + (image * z.channels + c) * z.plane;
                         C* sum = sums.data() + c * z.plane;
                         C here = static_cast<C>(g[(image * z.channels + c) * z.positions + p]);
                         for (int k = 0; k < taps.count; ++k) {
                           sum[taps.offset[k]] += here * taps.weight[k];
                           C value = here * static_cast<C>(x[taps.offset[k]]);
                           for (int a = 0; a < 3; ++a) d[a] += value * taps.slope[a][k];
                         }
                       }
                       for (int64_t a = 0; a < z.spatial; ++a) to_grid[i * z.spatial + a] = T(d[a]);
                     }
                     convert_line(to + image * z.channels * z.plane, sums.data(), z.channels * z.plane);
                   }
                 });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
