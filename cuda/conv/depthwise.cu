#include "tapegrad/cuda/conv/depthwise.h"

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda::conv_plan {
namespace {

using steps::narrow;
using steps::widen;

struct Planes {
  int32_t in_y, in_x, out_y, out_x, kernel_y, kernel_x, stride_y, stride_x, pad_y, pad_x, dilation_y, dilation_x;
  int32_t in_numel, out_numel, weights, channels, group;  // channels: of the input; group: output channels of each
  FastDivide by_in, by_in_x, by_out, by_out_x, by_out_channels, by_channels, by_group, by_stride_y, by_stride_x;
  uint32_t in_total, out_total;

  explicit Planes(const Plan& p) {
    const auto small = [](int64_t n) { return static_cast<int32_t>(n); };
    const auto divide = [](int64_t n) { return FastDivide(static_cast<uint32_t>(n)); };
    in_y = small(p.in.size[1]), in_x = small(p.in.size[2]), out_y = small(p.out.size[1]), out_x = small(p.out.size[2]);
    kernel_y = small(p.kernel.size[1]), kernel_x = small(p.kernel.size[2]);
    stride_y = small(p.stride[1]), stride_x = small(p.stride[2]), pad_y = small(p.pad[1]), pad_x = small(p.pad[2]);
    dilation_y = small(p.dilation[1]), dilation_x = small(p.dilation[2]);
    in_numel = in_y * in_x, out_numel = out_y * out_x, weights = kernel_y * kernel_x;
    channels = small(p.ic), group = small(p.ocg);
    by_in = divide(in_numel), by_in_x = divide(in_x), by_out = divide(out_numel), by_out_x = divide(out_x);
    by_out_channels = divide(p.oc), by_channels = divide(p.ic), by_group = divide(group);
    by_stride_y = divide(stride_y), by_stride_x = divide(stride_x);
    in_total = static_cast<uint32_t>(p.n * p.ic * in_numel), out_total = static_cast<uint32_t>(p.n * p.oc * out_numel);
  }
};

template <class T>
struct Forward {
  Planes p;
  const T *x, *w, *bias;
  T* y;
  TG_DEVICE void operator()(int64_t i) const {
    using C = compute_t<T>;
    uint32_t plane, at, row, column, image, channel;
    p.by_out.divide(static_cast<uint32_t>(i), plane, at);
    p.by_out_x.divide(at, row, column);
    p.by_out_channels.divide(plane, image, channel);
    const uint32_t from = p.by_group.quotient(channel);
    const T* const plane_x = x + (static_cast<int64_t>(image) * p.channels + from) * p.in_numel;
    const T* const weight = w + static_cast<int64_t>(channel) * p.weights;
    const int32_t first_y = static_cast<int32_t>(row) * p.stride_y - p.pad_y;
    const int32_t first_x = static_cast<int32_t>(column) * p.stride_x - p.pad_x;
    C sum(0);
    for (int32_t ky = 0; ky < p.kernel_y; ++ky) {
      const int32_t iy = first_y + ky * p.dilation_y;
      if (iy < 0 || iy >= p.in_y) continue;
      for (int32_t kx = 0; kx < p.kernel_x; ++kx) {
        const int32_t ix = first_x + kx * p.dilation_x;
        if (ix < 0 || ix >= p.in_x) continue;
        sum = math::add(sum, math::mul(widen<T>(weight[ky * p.kernel_x + kx]), widen<T>(plane_x[iy * p.in_x + ix])));
      }
    }
    if (bias != nullptr) sum = math::add(sum, widen<T>(bias[channel]));
    y[i] = narrow<T>(sum);
  }
};

template <class T>
struct InputGrad {
  Planes p;
  const T *y, *w;
  T* x;
  // The output row or column that meets the input's at this distance, or -1.
  TG_DEVICE static int32_t met(int32_t distance, int32_t stride, const FastDivide& by_stride, int32_t count) {
    if (distance < 0) return -1;
    uint32_t at = static_cast<uint32_t>(distance), rest = 0;
    if (stride != 1) by_stride.divide(static_cast<uint32_t>(distance), at, rest);
    return rest == 0 && at < static_cast<uint32_t>(count) ? static_cast<int32_t>(at) : -1;
  }
  TG_DEVICE void operator()(int64_t i) const {
    using C = compute_t<T>;
    uint32_t plane, at, row, column, image, channel;
    p.by_in.divide(static_cast<uint32_t>(i), plane, at);
    p.by_in_x.divide(at, row, column);
    p.by_channels.divide(plane, image, channel);
    C sum(0);
    for (int32_t g = 0; g < p.group; ++g) {
      const int64_t out = static_cast<int64_t>(channel) * p.group + g;
      const T* const plane_y = y + (static_cast<int64_t>(image) * p.channels * p.group + out) * p.out_numel;
      const T* const weight = w + out * p.weights;
      for (int32_t ky = 0; ky < p.kernel_y; ++ky) {
        const int32_t oy =
            met(static_cast<int32_t>(row) + p.pad_y - ky * p.dilation_y, p.stride_y, p.by_stride_y, p.out_y);
        if (oy < 0) continue;
        for (int32_t kx = 0; kx < p.kernel_x; ++kx) {
          const int32_t ox =
              met(static_cast<int32_t>(column) + p.pad_x - kx * p.dilation_x, p.stride_x, p.by_stride_x, p.out_x);
          if (ox < 0) continue;
          sum = math::add(sum, math::mul(widen<T>(weight[ky * p.kernel_x + kx]), widen<T>(plane_y[oy * p.out_x + ox])));
        }
      }
    }
    x[i] = narrow<T>(sum);
  }
};

// The sums of all weights of an output channel over a part of the images, [parts, channels, weights].
template <class T>
struct WeightSums {
  Planes p;
  const T *y, *x;
  compute_t<T>* sums;
  int32_t images, part;  // part: images of a block
};
template <class T, int kSide>
TG_KERNEL void weight_sums_kernel(WeightSums<T> a) {
  using C = compute_t<T>;
  constexpr int kWeights = kSide * kSide;
  TG_SHARED(C, scratch, kWarp);
  const Planes& p = a.p;
  const int32_t channel = static_cast<int32_t>(block_index()), out_channels = p.channels * p.group;
  const auto from = static_cast<int32_t>(p.by_group.quotient(static_cast<uint32_t>(channel)));
  const int32_t first = static_cast<int32_t>(block_row()) * a.part;
  const int32_t last = first + a.part < a.images ? first + a.part : a.images;
  C sum[kWeights];
  TG_UNROLL
  for (int k = 0; k < kWeights; ++k) sum[k] = C(0);
  const auto count = static_cast<uint32_t>((last - first) * p.out_numel);
  for (uint32_t i = thread_index(); i < count; i += block_size()) {
    uint32_t image, at, row, column;
    p.by_out.divide(i, image, at);
    p.by_out_x.divide(at, row, column);
    const int64_t n = first + static_cast<int64_t>(image);
    const C g = widen<T>(a.y[(n * out_channels + channel) * p.out_numel + at]);
    const T* const plane = a.x + (n * p.channels + from) * p.in_numel;
    const int32_t first_y = static_cast<int32_t>(row) * p.stride_y - p.pad_y;
    const int32_t first_x = static_cast<int32_t>(column) * p.stride_x - p.pad_x;
    TG_UNROLL
    for (int ky = 0; ky < kSide; ++ky) {
      const int32_t iy = first_y + ky * p.dilation_y;
      const bool in_rows = ky < p.kernel_y && iy >= 0 && iy < p.in_y;
      TG_UNROLL
      for (int kx = 0; kx < kSide; ++kx) {
        const int32_t ix = first_x + kx * p.dilation_x;
        if (in_rows && kx < p.kernel_x && ix >= 0 && ix < p.in_x)
          sum[ky * kSide + kx] = math::add(sum[ky * kSide + kx], math::mul(g, widen<T>(plane[iy * p.in_x + ix])));
      }
    }
  }
  C* const to = a.sums + (static_cast<int64_t>(block_row()) * out_channels + channel) * p.weights;
  TG_UNROLL
  for (int k = 0; k < kWeights; ++k) {
    const C total = block_reduce(sum[k], steps::Plus(), scratch);
    block_sync();
    const int ky = k / kSide, kx = k % kSide;
    if (thread_index() == 0 && ky < p.kernel_y && kx < p.kernel_x) to[ky * p.kernel_x + kx] = total;
  }
}
template <class T>
struct AddParts {
  const compute_t<T>* sums;
  int64_t parts, count;
  T* w;
  TG_DEVICE void operator()(int64_t i) const {
    compute_t<T> sum(0);
    for (int64_t p = 0; p < parts; ++p) sum = math::add(sum, sums[p * count + i]);
    w[i] = narrow<T>(sum);
  }
};

template <class T>
T* to(const void* p) {
  return static_cast<T*>(const_cast<void*>(p));
}

}  // namespace

bool is_small_depthwise(const Plan& p) {
  constexpr int64_t kLimit = int64_t{1} << 31;
  const int64_t side = std::max(p.kernel.size[1], p.kernel.size[2]);
  return p.icg == 1 && p.in.size[0] == 1 && p.out.size[0] == 1 && p.kernel.size[0] == 1 && p.pad[0] == 0 && side <= 5 &&
         p.n * p.ic * p.in_numel < kLimit && p.n * p.oc * p.out_numel < kLimit && p.kernel_numel > 0;
}

void depthwise_forward(const Stream& stream, const Plan& p, const Operands& t) {
  const Planes planes(p);
  dispatch_numeric(t.dtype, [&]<class T>() {
    for_elements(stream, planes.out_total,
                 Forward<T>{planes, to<const T>(t.x), to<const T>(t.w), to<const T>(t.bias), to<T>(t.y)});
  });
}
void depthwise_grad_input(const Stream& stream, const Plan& p, const Operands& t) {
  const Planes planes(p);
  dispatch_numeric(t.dtype, [&]<class T>() {
    for_elements(stream, planes.in_total, InputGrad<T>{planes, to<const T>(t.y), to<const T>(t.w), to<T>(t.x)});
  });
}
void depthwise_grad_weight(const Stream& stream, const Plan& p, const Operands& t) {
  constexpr int64_t kWanted = 1024, kLeast = 2048;  // blocks; output elements of a block
  const Planes planes(p);
  // As many images for a block as give it enough to do, but no more than leave enough blocks: numbers of sizes alone.
  const int64_t enough = (kLeast + p.out_numel - 1) / p.out_numel;
  const int64_t share = (p.n * p.oc + kWanted - 1) / kWanted;
  const int64_t part = std::clamp<int64_t>(std::max(enough, share), 1, p.n);
  const int64_t parts = (p.n + part - 1) / part, count = p.oc * p.kernel_numel;
  dispatch_numeric(t.dtype, [&]<class T>() {
    using C = compute_t<T>;
    const Workspace sums(static_cast<size_t>(parts * count) * sizeof(C), stream);
    const WeightSums<T> args{planes,
                             to<const T>(t.y),
                             to<const T>(t.x),
                             static_cast<C*>(sums.data()),
                             static_cast<int32_t>(p.n),
                             static_cast<int32_t>(part)};
    const auto kernel =
        std::max(planes.kernel_y, planes.kernel_x) <= 3 ? &weight_sums_kernel<T, 3> : &weight_sums_kernel<T, 5>;
    launch_block(stream, kernel, Grid(p.oc, parts), kBlock, 0, args);
    for_elements(stream, count, AddParts<T>{static_cast<const C*>(sums.data()), parts, count, to<T>(t.w)});
  });
}

}  // namespace tapegrad::cuda::conv_plan
