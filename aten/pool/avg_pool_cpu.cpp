// Means over windows, plain and adaptive, and their gradients.

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/blocks.h"
#include "tapegrad/aten/pool/windows.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using pool::Window;
using pool::Windows;

// Sum of a line, in lanes when it is long.
template <class C, class T>
C line_sum(const T* p, int64_t n) {
  constexpr int64_t kLanes = blocks::kWidth;
  if (n < kLanes) {
    C s = 0;
    for (int64_t i = 0; i < n; ++i) s = math::add(s, static_cast<C>(p[i]));
    return s;
  }
  C lane[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (int64_t l = 0; l < kLanes; ++l) lane[l] = math::add(lane[l], static_cast<C>(p[i + l]));
  for (; i < n; ++i) lane[i % kLanes] = math::add(lane[i % kLanes], static_cast<C>(p[i]));
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) lane[l] = math::add(lane[l], lane[l + width]);
  return lane[0];
}

// What the sum of a window is divided by.
int64_t divisor(const Window& z, const Window& y, const Window& x, int64_t override_) {
  return override_ ? override_ : z.count * y.count * x.count;
}

template <class T>
void mean_windows(const Windows& w, int64_t override_, const T* input, T* output) {
  using C = compute_t<T>;
  // A window over a whole plane of 16-bit integers or such sums in the dtype itself, as PyTorch's does.
  pool::for_rows<WorkCount>(
      w, (w.in_plane() + w.out_plane()) / pool::rows_of_plane(w),
      [&](int64_t p, const Window& wz, const Window& wy, int64_t to, WorkCount& done) {
        const T* x = input + p * w.in_plane();
        T* y = output + to;
        for (const Window& wx : w.table[2]) {
          done(4 + (wz.last - wz.first) * (wy.last - wy.first) * (wx.last - wx.first));
          C sum = 0;
          if (wx.last - wx.first == w.in[2]) {  // whole lines lie side by side
            for (int64_t z = wz.first; z < wz.last; ++z)
              sum = math::add(sum, line_sum<C>(x + (z * w.in[1] + wy.first) * w.in[2], (wy.last - wy.first) * w.in[2]));
          } else {
            for (int64_t z = wz.first; z < wz.last; ++z)
              for (int64_t yy = wy.first; yy < wy.last; ++yy)
                sum = math::add(sum, line_sum<C>(x + (z * w.in[1] + yy) * w.in[2] + wx.first, wx.last - wx.first));
          }
          *y++ = T(pool::mean_of(sum, divisor(wz, wy, wx, override_)));
        }
      });
}

template <class T>
void spread_windows(const Windows& w, int64_t override_, const T* output, T* input) {
  using C = compute_t<T>;
  int64_t work = w.in_plane() + w.out_plane(), n = w.in_plane();
  parallel_for(0, w.planes, 32768 / std::max<int64_t>(work, 1) + 1, [&](int64_t first, int64_t last) {
    std::vector<C> plane(static_cast<size_t>(n));
    WorkCount done;
    for (int64_t p = first; p < last; ++p) {
      std::fill(plane.begin(), plane.end(), C(0));
      const T* y = output + p * w.out_plane();
      for (const Window& wz : w.table[0])
        for (const Window& wy : w.table[1])
          for (const Window& wx : w.table[2]) {
            done(4 + (wz.last - wz.first) * (wy.last - wy.first) * (wx.last - wx.first));
            C g = pool::mean_of(static_cast<C>(*y), divisor(wz, wy, wx, override_));
            ++y;
            for (int64_t z = wz.first; z < wz.last; ++z)
              for (int64_t yy = wy.first; yy < wy.last; ++yy) {
                C* line = plane.data() + (z * w.in[1] + yy) * w.in[2];
                for (int64_t xx = wx.first; xx < wx.last; ++xx) line[xx] = math::add(line[xx], g);
              }
          }
      T* to = input + p * n;
      for (int64_t i = 0; i < n; ++i) to[i] = T(plane[static_cast<size_t>(i)]);
    }
  });
}

}  // namespace

void avg_pool_cpu(const Tensor& input, IntSpan kernel_size, IntSpan stride, IntSpan padding,
                  [[maybe_unused]] bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override,
                  const Tensor& out) {
  if (out.numel() == 0) return;
  Windows w = pool::plain_windows(input.sizes(), out.sizes(), kernel_size, stride, padding, {}, count_include_pad);
  dispatch_real(out.dtype(), [&]<class T>() {
    mean_windows<T>(w, divisor_override.value_or(0), target_of<T>(input), target_of<T>(out));
  });
}

void avg_pool_grad_cpu(const Tensor& output, IntSpan input_size, IntSpan kernel_size, IntSpan stride, IntSpan padding,
                       [[maybe_unused]] bool ceil_mode, bool count_include_pad, std::optional<int64_t> divisor_override,
                       const Tensor& out) {
  if (out.numel() == 0) return;
  Windows w = pool::plain_windows(input_size, output.sizes(), kernel_size, stride, padding, {}, count_include_pad);
  dispatch_real(out.dtype(), [&]<class T>() {
    spread_windows<T>(w, divisor_override.value_or(0), target_of<T>(output), target_of<T>(out));
  });
}

void adaptive_avg_pool_cpu(const Tensor& input, IntSpan output_size, const Tensor& out) {
  if (out.numel() == 0) return;
  Windows w = pool::adaptive_windows(input.sizes(), out.sizes(), output_size.size());
  dispatch_real(out.dtype(), [&]<class T>() { mean_windows<T>(w, 0, target_of<T>(input), target_of<T>(out)); });
}

void adaptive_avg_pool_grad_cpu(const Tensor& output, IntSpan input_size, int64_t spatial, const Tensor& out) {
  if (out.numel() == 0) return;
  Windows w = pool::adaptive_windows(input_size, output.sizes(), static_cast<size_t>(spatial));
  dispatch_real(out.dtype(), [&]<class T>() { spread_windows<T>(w, 0, target_of<T>(output), target_of<T>(out)); });
}

}  // namespace tapegrad::cpu::TG_ISA
