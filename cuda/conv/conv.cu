// _conv and its two gradients as products whose one factor is the matrix of patches, made in shared memory strip by
// strip and never written. Each element of a result is one thread's sum in the order of the channels and of the
// kernel's elements; the gradient of the weight, a small matrix with long sums, is cut into parts that are added in
// order. A convolution library (convolution_library.h) is tried first.
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/conv/convolution_library.h"
#include "tapegrad/cuda/conv/direct.h"
#include "tapegrad/cuda/conv/weight_products.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/linalg/tiles.h"

namespace tapegrad::cuda {
namespace {

using conv_plan::Operands;
using conv_plan::Plan;
using conv_plan::Side;
using steps::narrow;
using steps::widen;

// A column of the left-hand sides below is a pair of an image and an element of its plane. The thread's own is fixed.
struct Column {
  bool there;
  int64_t image;
  Point point;
  TG_DEVICE Column(int64_t column, int64_t columns, const Divider& by_plane, const Space& plane)
      : there(column < columns), image(0), point{{0, 0, 0}} {
    if (!there) return;
    int64_t place;
    by_plane.divide(column, image, place);
    point = plane.point(place);
  }
};
TG_DEVICE int64_t own_column(int64_t first) {
  return first + tiles::line_of(static_cast<int>(thread_index()), 0, false);
}

// The patches of such a column, with k over channels and the kernel's elements: elements of `from`, a plane for each
// channel of the other side, and zero where there are none.
template <class T, Side kFrom>
struct Patches {
  static constexpr bool along_k = false;
  const Plan& p;
  Column own;
  const T* from;
  TG_DEVICE compute_t<T> at(int, int64_t kk) const {
    if (!own.there) return compute_t<T>(0);
    int64_t channel, number;
    p.by_kernel.divide(kk, channel, number);
    const int64_t place = p.place<kFrom>(own.point, p.kernel.point(number));
    return place < 0 ? compute_t<T>(0) : widen<T>(from[channel * p.numel<kFrom>() + place]);
  }
};

// Lines of an array [outer, all, inner], from the first of the tile on, with k over outer and inner.
template <class T>
struct MiddleLines {
  static constexpr bool along_k = true;
  const Divider& by_inner;
  const T* from;
  int64_t all, inner, count;
  TG_DEVICE compute_t<T> at(int line, int64_t kk) const {
    if (line >= count) return compute_t<T>(0);
    int64_t outer, place;
    by_inner.divide(kk, outer, place);
    return widen<T>(from[(outer * all + line) * inner + place]);
  }
};

// y (channels of a group) x (images, output elements) = w * patches
template <class T>
struct Forward {
  Plan p;
  const T *x, *w, *bias;
  T* y;
  int64_t m, n, k, parts = 1;

  TG_DEVICE tiles::MatrixLines<T> a(int64_t group, int64_t row) const {
    return {w + (group * m + row) * k, k, 1, m - row, true};
  }
  TG_DEVICE Patches<T, Side::Input> b(int64_t group, int64_t column) const {
    const Column own(own_column(column), n, p.by_out, p.out);
    return {p, own, x + (own.image * p.ic + group * p.icg) * p.in_numel};
  }
  TG_DEVICE void store(int64_t group, int64_t row, int64_t column, int64_t, compute_t<T> sum) const {
    int64_t image, place;
    p.by_out.divide(column, image, place);
    const int64_t channel = group * m + row;
    if (bias != nullptr) sum = math::add(sum, widen<T>(bias[channel]));
    y[(image * p.oc + channel) * p.out_numel + place] = narrow<T>(sum);
  }
};

// x (channels of a group) x (images, input elements)
template <class T>
struct InputGrad {
  Plan p;
  const T *y, *w;
  T* x;
  int64_t m, n, k, parts = 1;

  TG_DEVICE MiddleLines<T> a(int64_t group, int64_t row) const {
    return {p.by_kernel, w + (group * p.ocg * p.icg + row) * p.kernel_numel, p.icg, p.kernel_numel, m - row};
  }
  TG_DEVICE Patches<T, Side::Output> b(int64_t group, int64_t column) const {
    const Column own(own_column(column), n, p.by_in, p.in);
    return {p, own, y + (own.image * p.oc + group * p.ocg) * p.out_numel};
  }
  TG_DEVICE void store(int64_t group, int64_t row, int64_t column, int64_t, compute_t<T> sum) const {
    int64_t image, place;
    p.by_in.divide(column, image, place);
    x[(image * p.ic + group * m + row) * p.in_numel + place] = narrow<T>(sum);
  }
};

// w (output channels of a group) x (input channels, kernel elements); k runs over images and output elements.
template <class T>
struct WeightGrad {
  Plan p;
  const T *y, *x;
  T* w;
  compute_t<T>* partial;  // [parts][weight], when parts > 1
  int64_t m, n, k, parts;

  struct Patches {
    static constexpr bool along_k = true;
    const Plan& p;
    const T* from;
    int64_t first, count;
    TG_DEVICE compute_t<T> at(int line, int64_t kk) const {
      if (line >= count) return compute_t<T>(0);
      int64_t image, place, channel, number;
      p.by_out.divide(kk, image, place);
      p.by_kernel.divide(first + line, channel, number);
      const int64_t at = p.input_place(p.out.point(place), p.kernel.point(number));
      return at < 0 ? compute_t<T>(0) : widen<T>(from[(image * p.ic + channel) * p.in_numel + at]);
    }
  };
  TG_DEVICE MiddleLines<T> a(int64_t group, int64_t row) const {
    return {p.by_out, y + (group * m + row) * p.out_numel, p.oc, p.out_numel, m - row};
  }
  TG_DEVICE Patches b(int64_t group, int64_t column) const {
    return {p, x + group * p.icg * p.in_numel, column, n - column};
  }
  TG_DEVICE void store(int64_t group, int64_t row, int64_t column, int64_t part, const compute_t<T>& sum) const {
    const int64_t at = (group * m + row) * n + column;
    if (parts == 1)
      w[at] = narrow<T>(sum);
    else
      partial[part * p.groups * m * n + at] = sum;
  }
};

template <class T, class Problem>
TG_KERNEL void conv_kernel(Problem problem) {
  using C = compute_t<T>;
  TG_SHARED(C, a_strip, tiles::kStrip);
  TG_SHARED(C, b_strip, tiles::kStrip);
  const int64_t count = tiles::tiles_of(problem.m) * tiles::tiles_of(problem.n), part = block_index() / count;
  const auto [row, column] = tiles::Corner(block_index() % count, problem.m);
  const int64_t each = (problem.k + problem.parts - 1) / problem.parts, end = part * each + each;
  for (int64_t group = block_row(); group < problem.p.groups; group += grid_rows()) {
    tiles::Sums<C> sums;
    sums.add(a_strip, b_strip, problem.a(group, row), problem.b(group, column), part * each,
             end < problem.k ? end : problem.k);
    sums.store([&](int i, int j, const C& sum) {
      if (row + i < problem.m && column + j < problem.n) problem.store(group, row + i, column + j, part, sum);
    });
  }
}

template <class T, class Problem>
void run(const Stream& stream, const Problem& problem) {
  launch_block(stream, &conv_kernel<T, Problem>,
               Grid(tiles::tiles_of(problem.m) * tiles::tiles_of(problem.n) * problem.parts,
                    std::min<int64_t>(problem.p.groups, 65535)),
               tiles::kThreads, 0, problem);
}

template <class T>
struct AddParts {
  const compute_t<T>* partial;
  T* to;
  int64_t n, parts;
  TG_DEVICE void operator()(int64_t i) const {
    compute_t<T> sum = partial[i];
    for (int64_t p = 1; p < parts; ++p) sum = math::add(sum, partial[p * n + i]);
    to[i] = narrow<T>(sum);
  }
};

// What a library leaves to be done: the output with its bias.
template <class T>
struct AddBias {
  const T* bias;
  T* y;
  Divider by_plane, by_channels;
  bool last;  // channels are: each element of a pack has its own
  template <int V>
  TG_DEVICE void operator()(int64_t i) const {
    int64_t plane, place, image, channel;
    by_plane.divide(i, plane, place);
    by_channels.divide(plane, image, channel);
    T v[V];
    load_pieces<T, V>(v, y + i);
    TG_UNROLL
    for (int j = 0; j < V; ++j) v[j] = narrow<T>(math::add(widen<T>(v[j]), widen<T>(bias[channel + (last ? j : 0)])));
    store_pieces<T, V>(y + i, v);
  }
};
void add_bias(const Work& work, const conv::Geometry& g, const Tensor& bias, const Tensor& out, bool channels_last) {
  if (!bias.defined()) return;
  const int64_t plane = channels_last ? 1 : g.out_spatial();
  dispatch_numeric(out.dtype(), [&]<class T>() {
    for_element_packs<T>(work, out.numel(), channels_last ? g.oc : plane, {&out},
                         AddBias<T>{data_of<T>(bias), target_of<T>(out), Divider(plane, out.numel()),
                                    Divider(g.oc, out.numel() / plane), channels_last});
  });
}

// So many that a few blocks per processor have work, of at least 256 elements along k.
int64_t weight_parts(const Plan& p) {
  const int64_t blocks = tiles::tiles_of(p.ocg) * tiles::tiles_of(p.icg * p.kernel_numel) * p.groups;
  return std::clamp<int64_t>(std::min(512 / blocks, p.n * p.out_numel / 256), 1, 64);
}

// Tensors in rows.
void forward(const Work& work, const Plan& p, const Tensor& input, const Tensor& weight, const Tensor& bias,
             const Tensor& out) {
  if (p.ocg <= conv_plan::kFewChannels)
    return conv_plan::direct_forward(
        work, p,
        {out.dtype(), input.data_ptr(), weight.data_ptr(), bias.defined() ? bias.data_ptr() : nullptr, out.data_ptr()});
  dispatch_numeric(out.dtype(), [&]<class T>() {
    run<T>(work, Forward<T>{p, data_of<T>(input), data_of<T>(weight), data_of<T>(bias), target_of<T>(out), p.ocg,
                            p.n * p.out_numel, p.icg * p.kernel_numel});
  });
}

void grad_input(const Work& work, const Plan& p, const Tensor& output, const Tensor& weight, const Tensor& out) {
  if (p.icg <= conv_plan::kFewChannels)
    return conv_plan::direct_grad_input(work, p,
                                        {out.dtype(), out.data_ptr(), weight.data_ptr(), nullptr, output.data_ptr()});
  dispatch_numeric(out.dtype(), [&]<class T>() {
    run<T>(work, InputGrad<T>{p, data_of<T>(output), data_of<T>(weight), target_of<T>(out), p.icg, p.n * p.in_numel,
                              p.ocg * p.kernel_numel});
  });
}

void grad_weight(const Work& work, const Plan& p, const Tensor& output, const Tensor& input, const Tensor& out) {
  if (p.ocg * p.icg * p.kernel_numel <= conv_plan::kFewWeights)
    return conv_plan::direct_grad_weight(work, p,
                                         {out.dtype(), input.data_ptr(), out.data_ptr(), nullptr, output.data_ptr()});
  const int64_t parts = weight_parts(p), numel = out.numel();
  dispatch_numeric(out.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Workspace partial(parts > 1 ? static_cast<size_t>(parts * numel) * sizeof(C) : 0, work);
    C* sums = parts > 1 ? static_cast<C*>(partial.data()) : nullptr;
    run<T>(work, WeightGrad<T>{p, data_of<T>(output), data_of<T>(input), target_of<T>(out), sums, p.ocg,
                               p.icg * p.kernel_numel, p.n * p.out_numel, parts});
    if (parts > 1) for_elements(work, numel, AddParts<T>{sums, target_of<T>(out), numel, parts});
  });
}

// --- layouts ---

// A tensor in rows or with its channels last, itself where it lies so.
Tensor laid_out(const Tensor& t, bool channels_last) {
  if (!channels_last) return contiguous_or_copy(t);
  if (t.impl()->is_contiguous(MemoryFormat::ChannelsLast)) return t;
  const Tensor copy = empty_tensor(TensorSpec{t.sizes(), t.dtype(), t.device(), channels_last_strides(t.sizes())});
  copy_any(copy, t, false);
  return copy;
}

// A place for what is computed in a layout, which may be the result's own.
Tensor target_in(const Tensor& out, bool channels_last) {
  const bool fits = channels_last ? out.impl()->is_contiguous(MemoryFormat::ChannelsLast) : out.is_contiguous();
  if (fits) return out;
  return empty_tensor(TensorSpec{out.sizes(), out.dtype(), out.device(),
                                 channels_last ? channels_last_strides(out.sizes()) : DimVector()});
}
void deliver(const Tensor& out, const Tensor& computed) {
  if (out.impl() != computed.impl()) copy_any(out, computed, false);
}

// Tries a layout with the library. `wanted` is written, the two others are read. False: nothing was done.
bool by_library(Wanted wanted, const conv::Geometry& g, bool channels_last, const Tensor& input, const Tensor& weight,
                const Tensor& output, const Tensor& bias = {}) {
  if (!has_convolution_library()) return false;
  const auto prepare = [&](Wanted part, const Tensor& t) {
    return part == wanted ? target_in(t, channels_last) : laid_out(t, channels_last);
  };
  const Tensor x = prepare(Wanted::Input, input), w = prepare(Wanted::Weight, weight),
               y = prepare(Wanted::Output, output);
  const Work work(x.device(), {&x, &w, &y, &bias});
  if (!library_convolution(work, {wanted, x.dtype(), channels_last, g, x.data_ptr(), w.data_ptr(), y.data_ptr()}))
    return false;
  if (wanted == Wanted::Output) add_bias(work, g, bias, y, channels_last);
  if (wanted == Wanted::Input)
    deliver(input, x);
  else if (wanted == Wanted::Weight)
    deliver(weight, w);
  else
    deliver(output, y);
  return true;
}

}  // namespace

void conv_cuda(const Tensor& any_input, const Tensor& any_weight, const Tensor& bias, IntSpan stride, IntSpan padding,
               IntSpan dilation, int64_t groups, const Tensor& out) {
  if (out.numel() == 0) return;
  const conv::Geometry g =
      conv::make_geometry(any_input.sizes(), any_weight.sizes(), out.sizes(), stride, padding, dilation, groups);
  if (by_library(Wanted::Output, g, conv::channels_last(any_input), any_input, any_weight, out, bias)) return;
  const Tensor input = laid_out(any_input, false), weight = laid_out(any_weight, false), rows = target_in(out, false);
  const Work work(out.device(), {&input, &weight, &bias, &rows});
  forward(work, Plan(g), input, weight, bias, rows);
  deliver(out, rows);
}

void conv_grad_input_cuda(const Tensor& any_output, const Tensor& any_weight, IntSpan input_size, IntSpan stride,
                          IntSpan padding, IntSpan dilation, int64_t groups, const Tensor& out) {
  if (out.numel() == 0) return;
  if (any_output.numel() == 0) return zero_dense(out);
  const conv::Geometry g =
      conv::make_geometry(input_size, any_weight.sizes(), any_output.sizes(), stride, padding, dilation, groups);
  if (by_library(Wanted::Input, g, conv::channels_last(any_output), out, any_weight, any_output)) return;
  const Tensor output = laid_out(any_output, false), weight = laid_out(any_weight, false), rows = target_in(out, false);
  const Work work(out.device(), {&output, &weight, &rows});
  grad_input(work, Plan(g), output, weight, rows);
  deliver(out, rows);
}

// The gradient of the weight is always in rows.
void conv_grad_weight_cuda(const Tensor& any_output, const Tensor& any_input, IntSpan weight_size, IntSpan stride,
                           IntSpan padding, IntSpan dilation, int64_t groups, const Tensor& out) {
  if (out.numel() == 0) return;
  if (any_output.numel() == 0 || any_input.numel() == 0) return zero_dense(out);
  const conv::Geometry g =
      conv::make_geometry(any_input.sizes(), weight_size, any_output.sizes(), stride, padding, dilation, groups);
  if (weight_grad_by_products(g, any_output, any_input, out)) return;
  if (by_library(Wanted::Weight, g, conv::channels_last(any_input), any_input, out, any_output)) return;
  const Tensor output = laid_out(any_output, false), input = laid_out(any_input, false);
  const Work work(out.device(), {&output, &input, &out});
  grad_weight(work, Plan(g), output, input, out);
}

}  // namespace tapegrad::cuda
