#include "tapegrad/cuda/conv/direct.h"

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/conv/depthwise.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda::conv_plan {
namespace {

using steps::narrow;
using steps::widen;

// f(point, number) for the elements of a kernel, in order.
template <class F>
TG_DEVICE void for_kernel(const Space& kernel, const F& f) {
  int64_t number = 0;
  for (int64_t z = 0; z < kernel.size[0]; ++z)
    for (int64_t y = 0; y < kernel.size[1]; ++y)
      for (int64_t x = 0; x < kernel.size[2]; ++x, ++number) f(Point{{z, y, x}}, number);
}

// The sum over channels and elements of the kernel of weights times what the element at `there` meets in `from`, a
// plane for each channel; channels of the weight lie `step` elements apart.
template <class T, Side kFrom>
TG_DEVICE compute_t<T> sum_of(const Plan& p, const Point& there, int64_t channels, const T* weight, int64_t step,
                              const T* from) {
  compute_t<T> sum(0);
  for (int64_t c = 0; c < channels; ++c)
    for_kernel(p.kernel, [&](const Point& k, int64_t number) {
      const int64_t place = p.place<kFrom>(there, k);
      if (place >= 0)
        sum = math::add(sum,
                        math::mul(widen<T>(weight[c * step + number]), widen<T>(from[c * p.numel<kFrom>() + place])));
    });
  return sum;
}

template <class T>
struct Forward {
  Plan p;
  const T *x, *w, *bias;
  T* y;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t plane, at, image, channel;
    p.by_out.divide(i, plane, at);
    p.by_oc.divide(plane, image, channel);
    compute_t<T> sum =
        sum_of<T, Side::Input>(p, p.out.point(at), p.icg, w + channel * p.icg * p.kernel_numel, p.kernel_numel,
                               x + (image * p.ic + channel / p.ocg * p.icg) * p.in_numel);
    if (bias != nullptr) sum = math::add(sum, widen<T>(bias[channel]));
    y[i] = narrow<T>(sum);
  }
};

template <class T>
struct InputGrad {
  Plan p;
  const T *y, *w;
  T* x;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t plane, at, image, channel;
    p.by_in.divide(i, plane, at);
    p.by_ic.divide(plane, image, channel);
    const int64_t first = channel / p.icg * p.ocg;  // of the group's output channels
    x[i] = narrow<T>(sum_of<T, Side::Output>(p, p.in.point(at), p.ocg,
                                             w + (first * p.icg + channel % p.icg) * p.kernel_numel,
                                             p.icg * p.kernel_numel, y + (image * p.oc + first) * p.out_numel));
  }
};

// A weight's sum over all images and output elements by a group of threads.
template <class T>
struct WeightGrad {
  Plan p;
  const T *y, *x;
  T* w;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    using C = compute_t<T>;
    int64_t pair, number;
    p.by_kernel.divide(line % (p.icg * p.kernel_numel), pair, number);
    const int64_t out_channel = line / (p.icg * p.kernel_numel), in_channel = out_channel / p.ocg * p.icg + pair;
    const Point k = p.kernel.point(number);
    C sum = C(0);
    for (int64_t i = g.lane(); i < p.n * p.out_numel; i += g.lanes()) {
      int64_t image, at;
      p.by_out.divide(i, image, at);
      const int64_t place = p.input_place(p.out.point(at), k);
      if (place >= 0)
        sum = math::add(sum, math::mul(widen<T>(y[(image * p.oc + out_channel) * p.out_numel + at]),
                                       widen<T>(x[(image * p.ic + in_channel) * p.in_numel + place])));
    }
    sum = g.reduce(sum, steps::Plus());
    g.sync();
    if (g.lane() == 0) w[line] = narrow<T>(sum);
  }
};

template <class T>
T* to(const void* p) {
  return static_cast<T*>(const_cast<void*>(p));
}

}  // namespace

void direct_forward(const Stream& stream, const Plan& p, const Operands& t) {
  if (is_small_depthwise(p)) return depthwise_forward(stream, p, t);
  dispatch_numeric(t.dtype, [&]<class T>() {
    for_elements(stream, p.n * p.oc * p.out_numel,
                 Forward<T>{p, to<const T>(t.x), to<const T>(t.w), to<const T>(t.bias), to<T>(t.y)});
  });
}
void direct_grad_input(const Stream& stream, const Plan& p, const Operands& t) {
  if (is_small_depthwise(p)) return depthwise_grad_input(stream, p, t);
  dispatch_numeric(t.dtype, [&]<class T>() {
    for_elements(stream, p.n * p.ic * p.in_numel, InputGrad<T>{p, to<const T>(t.y), to<const T>(t.w), to<T>(t.x)});
  });
}
void direct_grad_weight(const Stream& stream, const Plan& p, const Operands& t) {
  if (is_small_depthwise(p)) return depthwise_grad_weight(stream, p, t);
  dispatch_numeric(t.dtype, [&]<class T>() {
    for_lines(stream, p.oc * p.icg * p.kernel_numel, p.n * p.out_numel, false,
              WeightGrad<T>{p, to<const T>(t.y), to<const T>(t.x), to<T>(t.w)});
  });
}

}  // namespace tapegrad::cuda::conv_plan
