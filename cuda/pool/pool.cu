// Means and maxima of windows: an output element per thread, or per group of threads where windows are large. The
// gradient of means is gathered: an input element finds the windows that hold it.
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/pool/fractional.h"
#include "tapegrad/aten/pool/windows.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/pool/planes.h"

namespace tapegrad::cuda {
namespace {

using pool::Rule;
using pool::Window;

// Element i of all outputs: its plane's first input element, its windows.
struct Box {
  int64_t base;
  Window z, y, x;
  TG_DEVICE Box(const Planes& p, int64_t i) {
    int64_t plane, at;
    p.by_out.divide(i, plane, at);
    base = plane * p.in.numel();
    const Point o = p.out.point(at);
    z = p.rule[0].window(o.at[0]);
    y = p.rule[1].window(o.at[1]);
    x = p.rule[2].window(o.at[2]);
  }
};

template <class T>
struct Mean {
  Planes p;
  int64_t override_;
  const T* from;
  T* to;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t i) const {
    using C = compute_t<T>;
    const Box box(p, i);
    C sum = C(0);
    if (g.lanes() == 1) {
      for (int64_t z = box.z.first; z < box.z.last; ++z)
        for (int64_t y = box.y.first; y < box.y.last; ++y)
          for (int64_t x = box.x.first; x < box.x.last; ++x)
            sum = math::add(sum, steps::widen<T>(from[box.base + p.in.place(z, y, x)]));
    } else {
      const int64_t ny = box.y.last - box.y.first, nx = box.x.last - box.x.first;
      const int64_t n = (box.z.last - box.z.first) * ny * nx;
      for (int64_t e = g.lane(); e < n; e += g.lanes()) {
        const int64_t row = e / nx,
                      place = p.in.place(box.z.first + row / ny, box.y.first + row % ny, box.x.first + e % nx);
        sum = math::add(sum, steps::widen<T>(from[box.base + place]));
      }
      sum = g.reduce(sum, steps::Plus());
      g.sync();
    }
    if (g.lane() != 0) return;
    to[i] = steps::narrow<T>(pool::mean_of(sum, override_ != 0 ? override_ : box.z.count * box.y.count * box.x.count));
  }
};

template <class T>
struct MeanGrad {
  Planes p;
  int64_t override_;
  const T* output;
  T* input;
  TG_DEVICE void operator()(int64_t i) const {
    using C = compute_t<T>;
    int64_t plane, at, first[3], last[3];
    p.by_in.divide(i, plane, at);
    const Point here = p.in.point(at);
    for (int d = 0; d < 3; ++d) p.rule[d].holding(here.at[d], first[d], last[d]);
    const T* from = output + plane * p.out.numel();
    C sum = C(0);
    for (int64_t z = first[0]; z < last[0]; ++z)
      for (int64_t y = first[1]; y < last[1]; ++y)
        for (int64_t x = first[2]; x < last[2]; ++x) {
          const int64_t count = override_ != 0
                                    ? override_
                                    : p.rule[0].window(z).count * p.rule[1].window(y).count * p.rule[2].window(x).count;
          sum = math::add(sum, pool::mean_of(steps::widen<T>(from[p.out.place(z, y, x)]), count));
        }
    input[i] = steps::narrow<T>(sum);
  }
};

// The largest element so far and its place: equal ones keep the first, a NaN wins.
template <class T>
struct Best {
  compute_t<T> value;
  int64_t at;
  TG_DEVICE void look(const T* plane, int64_t place) {
    const compute_t<T> v = steps::widen<T>(plane[place]);
    if (!(v > value) && v == v) return;
    value = v;
    at = place;
  }
  TG_DEVICE static compute_t<T> lowest() {
    using L = std::numeric_limits<compute_t<T>>;
    return L::has_infinity ? -L::infinity() : L::lowest();
  }
};

template <class T>
struct Max {
  Planes p;
  const T* from;
  T* values;
  int64_t* indices;
  TG_DEVICE void operator()(int64_t i) const {
    const Box box(p, i);
    Best<T> best{Best<T>::lowest(), p.in.place(box.z.first, box.y.first, box.x.first)};
    for (int64_t z = box.z.first; z < box.z.last; z += p.rule[0].step)
      for (int64_t y = box.y.first; y < box.y.last; y += p.rule[1].step)
        for (int64_t x = box.x.first; x < box.x.last; x += p.rule[2].step)
          best.look(from + box.base, p.in.place(z, y, x));
    values[i] = steps::narrow<T>(best.value);
    indices[i] = best.at;
  }
};

template <class T>
struct FractionalMax {
  Space in, out;
  Divider by_out;
  int64_t kernel[3], spatial;
  const T* from;
  const T* samples;
  T* values;
  int64_t* indices;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t plane, at, first[3];
    by_out.divide(i, plane, at);
    const Point o = out.point(at);
    for (int64_t d = 0; d < 3; ++d)
      first[d] = d < 3 - spatial
                     ? 0
                     : pool::fractional_start(steps::widen<T>(samples[pool::fractional_sample(plane, d, spatial)]),
                                              o.at[d], in.size[d], out.size[d], kernel[d]);
    const T* x = from + plane * in.numel();
    Best<T> best{Best<T>::lowest(), in.place(first[0], first[1], first[2])};
    for (int64_t z = 0; z < kernel[0]; ++z)
      for (int64_t y = 0; y < kernel[1]; ++y)
        for (int64_t k = 0; k < kernel[2]; ++k) best.look(x, in.place(first[0] + z, first[1] + y, first[2] + k));
    values[i] = steps::narrow<T>(best.value);
    indices[i] = best.at;
  }
};

void means(const pool::Windows& w, int64_t override_, const Tensor& any_input, const Tensor& out) {
  const Tensor input = contiguous_or_copy(any_input);
  const Work work(out.device(), {&input, &out});
  int64_t most = 1;  // elements of the first window
  for (const Rule& r : w.rule) most *= r.window(0).last - r.window(0).first;
  dispatch_real(out.dtype(), [&]<class T>() {
    for_lines(work, out.numel(), most, most < 2 * kWarp,
              Mean<T>{Planes(w), override_, data_of<T>(input), target_of<T>(out)});
  });
}
void mean_grads(const pool::Windows& w, int64_t override_, const Tensor& any_output, const Tensor& out) {
  const Tensor output = contiguous_or_copy(any_output);
  const Work work(out.device(), {&output, &out});
  dispatch_real(out.dtype(), [&]<class T>() {
    for_elements(work, out.numel(), MeanGrad<T>{Planes(w), override_, data_of<T>(output), target_of<T>(out)});
  });
}
void maxima(const pool::Windows& w, const Tensor& any_input, const Tensor& values, const Tensor& indices) {
  const Tensor input = contiguous_or_copy(any_input);
  const Work work(input.device(), {&input, &values, &indices});
  dispatch_real(input.dtype(), [&]<class T>() {
    for_elements(work, values.numel(),
                 Max<T>{Planes(w), data_of<T>(input), target_of<T>(values), target_of<int64_t>(indices)});
  });
}

}  // namespace

void max_pool_cuda(const Tensor& input, IntSpan kernel_size, IntSpan stride, IntSpan padding, IntSpan dilation, bool,
                   const Tensor& values, const Tensor& indices) {
  if (values.numel() == 0) return;
  maxima(pool::plain_rules(input.sizes(), values.sizes(), kernel_size, stride, padding, dilation, true), input, values,
         indices);
}
void adaptive_max_pool_cuda(const Tensor& input, IntSpan output_size, const Tensor& values, const Tensor& indices) {
  if (values.numel() == 0) return;
  maxima(pool::sized_windows(input.sizes(), values.sizes(), output_size.size()), input, values, indices);
}

void avg_pool_cuda(const Tensor& input, IntSpan kernel_size, IntSpan stride, IntSpan padding, bool,
                   bool count_include_pad, std::optional<int64_t> divisor_override, const Tensor& out) {
  if (out.numel() == 0) return;
  means(pool::plain_rules(input.sizes(), out.sizes(), kernel_size, stride, padding, {}, count_include_pad),
        divisor_override.value_or(0), input, out);
}
void avg_pool_grad_cuda(const Tensor& output, IntSpan input_size, IntSpan kernel_size, IntSpan stride, IntSpan padding,
                        bool, bool count_include_pad, std::optional<int64_t> divisor_override, const Tensor& out) {
  if (out.numel() == 0) return;
  mean_grads(pool::plain_rules(input_size, output.sizes(), kernel_size, stride, padding, {}, count_include_pad),
             divisor_override.value_or(0), output, out);
}
void adaptive_avg_pool_cuda(const Tensor& input, IntSpan output_size, const Tensor& out) {
  if (out.numel() == 0) return;
  means(pool::sized_windows(input.sizes(), out.sizes(), output_size.size()), 0, input, out);
}
void adaptive_avg_pool_grad_cuda(const Tensor& output, IntSpan input_size, int64_t spatial, const Tensor& out) {
  if (out.numel() == 0) return;
  mean_grads(pool::sized_windows(input_size, output.sizes(), static_cast<size_t>(spatial)), 0, output, out);
}

void fractional_max_pool_cuda(const Tensor& input, IntSpan kernel_size, IntSpan output_size,
                              const Tensor& random_samples, const Tensor& values, const Tensor& indices) {
  if (values.numel() == 0) return;
  const size_t spatial = kernel_size.size();
  const pool::Windows w = pool::sized_windows(input.sizes(), values.sizes(), spatial);
  int64_t kernel[3] = {1, 1, 1};
  for (size_t d = 0; d < output_size.size(); ++d) kernel[3 - spatial + d] = kernel_size[d];
  const Work work(input.device(), {&input, &random_samples, &values, &indices});
  dispatch_floating(input.dtype(), [&]<class T>() {
    for_elements(work, values.numel(),
                 FractionalMax<T>{{w.in[0], w.in[1], w.in[2]},
                                  {w.out[0], w.out[1], w.out[2]},
                                  Divider(w.out_plane(), values.numel()),
                                  {kernel[0], kernel[1], kernel[2]},
                                  static_cast<int64_t>(spatial),
                                  data_of<T>(input),
                                  data_of<T>(random_samples),
                                  target_of<T>(values),
                                  target_of<int64_t>(indices)});
  });
}

}  // namespace tapegrad::cuda
