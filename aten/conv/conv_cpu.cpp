// Convolution kernels: those of single places as products; float32 by oneDNN or, where each channel is a group, on the
// planes as they are; 16-bit types by oneDNN where the processor has instructions for them, else by way of float32;
// everything else (and shapes that oneDNN lacks) as products with the matrix of patches.
#include "tapegrad/aten/conv/columns.h"
#include "tapegrad/aten/conv/depthwise.h"
#include "tapegrad/aten/conv/onednn.h"
#include "tapegrad/aten/conv/parts.h"
#include "tapegrad/aten/conv/patches.h"
#include "tapegrad/aten/conv/pointwise.h"
#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/linalg/product/gemm.h"
#include "tapegrad/aten/onednn/product.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using conv::Geometry;

Tensor widened(const Tensor& t) { return t.defined() ? contiguous_as(t, DType::float32) : t; }

// A plain loop: by the copy kernel a convolution of (4, 8, 32, 32) in bfloat16 takes 198 us and not 184.
void narrow_into(const Tensor& from, const Tensor& to) {
  dispatch_floating(to.dtype(), [&]<class T>() {
    const float* p = data_of<float>(from);
    T* q = target_of<T>(to);
    parallel_for(0, to.numel(), 65536, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) q[i] = T(p[i]);
    });
  });
}

// The matrices of each image and group of channels: the patches of its input, rows x cols, and its output, ocg x cols.
template <class T>
struct Groups {
  const Geometry& g;
  int64_t icg, ocg, rows, cols;
  bool pointwise;  // the input is its own matrix of patches

  explicit Groups(const Geometry& geometry)
      : g(geometry),
        icg(g.ic / g.groups),
        ocg(g.oc / g.groups),
        rows(icg * g.kernel_spatial()),
        cols(g.out_spatial()),
        pointwise(g.is_pointwise()) {}
  // f(image, group, its input, its output, memory for patches) for the images [first, last).
  template <class X, class Y, class F>
  void each(X* x, Y* y, int64_t first, int64_t last, F&& f) const {
    const Tensor scratch = pointwise ? Tensor() : empty_tensor({rows * cols}, dtype_of_v<T>);
    for (int64_t i = first; i < last; ++i)
      for (int64_t group = 0; group < g.groups; ++group)
        f(i, group, x + (i * g.ic + group * icg) * g.in_spatial(), y + (i * g.oc + group * ocg) * cols,
          target_of<T>(scratch));
  }
  const T* patches(const T* image, T* scratch) const {
    if (pointwise) return image;
    image_to_columns(g, icg, image, scratch);
    return scratch;
  }
};

template <class T>
void forward(const Geometry& g, const T* x, const T* w, const T* bias, T* y) {
  const Groups<T> z(g);
  // One image at a time when there is only one: then gemm itself is shared among threads.
  parallel_for(0, g.n, 1, [&](int64_t first, int64_t last) {
    z.each(x, y, first, last, [&](int64_t, int64_t group, const T* image, T* out, T* scratch) {
      const T* columns = z.patches(image, scratch);
      if (bias)
        for (int64_t o = 0; o < z.ocg; ++o) std::fill_n(out + o * z.cols, z.cols, bias[group * z.ocg + o]);
      gemm<T>(z.ocg, z.cols, z.rows, T(1), {w + group * z.ocg * z.rows, z.rows, 1}, {columns, z.cols, 1},
              bias ? T(1) : T(0), out, z.cols);
    });
  });
}

template <class T>
void grad_input(const Geometry& g, const T* y, const T* w, T* x) {
  const Groups<T> z(g);
  parallel_for(0, g.n, 1, [&](int64_t first, int64_t last) {
    z.each(x, y, first, last, [&](int64_t, int64_t group, T* image, const T* out, T* scratch) {
      T* columns = z.pointwise ? image : scratch;
      gemm<T>(z.rows, z.cols, z.ocg, T(1), {w + group * z.ocg * z.rows, 1, z.rows}, {out, z.cols, 1}, T(0), columns,
              z.cols);
      if (z.pointwise) return;
      std::fill_n(image, z.icg * g.in_spatial(), T(0));
      add_columns_to_image(g, z.icg, columns, image);
    });
  });
}

template <class T>
void grad_weight(const Geometry& g, const T* y, const T* x, T* w) {
  const Groups<T> z(g);
  // A fixed number of partial sums.
  const int64_t size = g.weight_numel(), per = (g.n + 7) / 8, count = (g.n + per - 1) / per;
  const Tensor holder = count > 1 ? empty_tensor({count * size}, dtype_of_v<T>) : Tensor();
  T* partial = count > 1 ? target_of<T>(holder) : w;
  parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
    z.each(x, y, first * per, std::min(g.n, last * per),
           [&](int64_t i, int64_t group, const T* image, const T* out, T* scratch) {
             gemm<T>(z.ocg, z.rows, z.cols, T(1), {out, z.cols, 1}, {z.patches(image, scratch), 1, z.cols},
                     i % per == 0 ? T(0) : T(1), partial + i / per * size + group * z.ocg * z.rows, z.rows);
           });
  });
  if (count > 1) conv::add_parts(partial, count, size, w);
}

// Whether tensors are given to oneDNN as they are. For 16-bit ones of which each channel is a group the way by float32
// is faster.
bool for_onednn(const Geometry& g, DType type) {
  return type == DType::float32 || ((g.groups == 1 || g.groups < g.ic) && onednn::multiplies(type));
}

// Whether each channel of the input is a group, of a type for which there are kernels on the planes as they are.
bool for_planes(const Geometry& g, DType type) {
  return g.groups > 1 && g.groups == g.ic && (type == DType::float32 || is_half(type));
}

void fill_zero(const Tensor& t) {
  if (t.numel() > 0) std::memset(t.data_ptr(), 0, static_cast<size_t>(t.nbytes()));
}

}  // namespace

void conv_cpu(const Tensor& any_input, const Tensor& any_weight, const Tensor& bias, IntSpan stride, IntSpan padding,
              IntSpan dilation, int64_t groups, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor weight = contiguous_or_copy(any_weight);
  const DType type = out.dtype();
  Geometry g = conv::make_geometry(any_input.sizes(), weight.sizes(), out.sizes(), stride, padding, dilation, groups);
  if (!out.is_contiguous()) {
    g.channels_innermost = true;
    if (for_onednn(g, type) && g.ic > 0 &&
        onednn::conv_forward(g, type, channels_last_or_copy(any_input).data_ptr(), weight.data_ptr(),
                             bias.defined() ? bias.data_ptr() : nullptr, out.data_ptr()))
      return;
    return in_planes(out, [&](const Tensor& planes) {
      conv_cpu(any_input, weight, bias, stride, padding, dilation, groups, planes);
    });
  }
  const Tensor input = contiguous_or_copy(any_input);
  if (pointwise::forward(g, input, weight, bias, out) || patches::forward(g, input, weight, bias, out)) return;
  if (for_planes(g, type)) {
    const Tensor w = widened(weight), b = widened(bias);
    if (depthwise::forward(g, type, input.data_ptr(), data_of<float>(w), data_of<float>(b), out.data_ptr())) return;
  }
  if (for_onednn(g, type) && g.ic > 0 &&
      onednn::conv_forward(g, type, input.data_ptr(), weight.data_ptr(), bias.defined() ? bias.data_ptr() : nullptr,
                           out.data_ptr()))
    return;
  if (is_half(type)) {
    Tensor wide = empty_tensor(out.sizes(), DType::float32);
    conv_cpu(widened(input), widened(weight), widened(bias), stride, padding, dilation, groups, wide);
    return narrow_into(wide, out);
  }
  dispatch_numeric(out.dtype(), [&]<class T>() {
    if constexpr (!is_half_type<T>)
      forward<T>(g, target_of<T>(input), target_of<T>(weight), target_of<T>(bias), target_of<T>(out));
  });
}

void conv_grad_input_cpu(const Tensor& any_output, const Tensor& any_weight, IntSpan input_size, IntSpan stride,
                         IntSpan padding, IntSpan dilation, int64_t groups, const Tensor& out) {
  if (out.numel() == 0 || any_output.numel() == 0) return fill_zero(out);
  const Tensor weight = contiguous_or_copy(any_weight);
  const DType type = out.dtype();
  Geometry g = conv::make_geometry(input_size, weight.sizes(), any_output.sizes(), stride, padding, dilation, groups);
  if (!out.is_contiguous()) {
    g.channels_innermost = true;
    if (for_onednn(g, type) && g.regular() &&
        onednn::conv_grad_input(g, type, channels_last_or_copy(any_output).data_ptr(), weight.data_ptr(),
                                out.data_ptr()))
      return;
    return in_planes(out, [&](const Tensor& planes) {
      conv_grad_input_cpu(any_output, weight, input_size, stride, padding, dilation, groups, planes);
    });
  }
  const Tensor output = contiguous_or_copy(any_output);
  if (pointwise::grad_input(g, output, weight, out) || patches::grad_input(g, output, weight, out)) return;
  if (g.regular() && for_planes(g, type)) {
    const Tensor w = widened(weight);
    if (depthwise::grad_input(g, type, output.data_ptr(), data_of<float>(w), out.data_ptr())) return;
  }
  if (for_onednn(g, type) && g.regular() &&
      onednn::conv_grad_input(g, type, output.data_ptr(), weight.data_ptr(), out.data_ptr()))
    return;
  if (is_half(type)) {
    Tensor wide = empty_tensor(out.sizes(), DType::float32);
    conv_grad_input_cpu(widened(output), widened(weight), input_size, stride, padding, dilation, groups, wide);
    return narrow_into(wide, out);
  }
  dispatch_numeric(out.dtype(), [&]<class T>() {
    if constexpr (!is_half_type<T>) grad_input<T>(g, target_of<T>(output), target_of<T>(weight), target_of<T>(out));
  });
}

void conv_grad_weight_cpu(const Tensor& any_output, const Tensor& any_input, IntSpan weight_size, IntSpan stride,
                          IntSpan padding, IntSpan dilation, int64_t groups, const Tensor& out) {
  if (out.numel() == 0 || any_output.numel() == 0 || any_input.numel() == 0) return fill_zero(out);
  if (!out.is_contiguous())
    return in_planes(out, [&](const Tensor& rows) {
      conv_grad_weight_cpu(any_output, any_input, weight_size, stride, padding, dilation, groups, rows);
    });
  const DType type = out.dtype();
  Geometry g =
      conv::make_geometry(any_input.sizes(), weight_size, any_output.sizes(), stride, padding, dilation, groups);
  g.channels_innermost = conv::channels_last(any_output) || conv::channels_last(any_input);
  if (g.channels_innermost && for_onednn(g, type) && g.regular() &&
      onednn::conv_grad_weight(g, type, channels_last_or_copy(any_output).data_ptr(),
                               channels_last_or_copy(any_input).data_ptr(), out.data_ptr()))
    return;
  g.channels_innermost = false;
  const Tensor output = contiguous_or_copy(any_output), input = contiguous_or_copy(any_input);
  const Tensor wide = is_half(type) ? empty_tensor(out.sizes(), DType::float32) : out;
  if (pointwise::grad_weight(g, output, input, wide) || patches::grad_weight(g, output, input, wide))
    return is_half(type) ? narrow_into(wide, out) : void();
  if (type == DType::float32 && g.regular() &&
      depthwise::grad_weight(g, target_of<float>(output), target_of<float>(input), target_of<float>(out)))
    return;
  if (for_onednn(g, type) && g.regular() &&
      onednn::conv_grad_weight(g, type, output.data_ptr(), input.data_ptr(), out.data_ptr()))
    return;
  if (is_half(type)) {
    conv_grad_weight_cpu(widened(output), widened(input), weight_size, stride, padding, dilation, groups, wide);
    return narrow_into(wide, out);
  }
  dispatch_numeric(out.dtype(), [&]<class T>() {
    if constexpr (!is_half_type<T>) grad_weight<T>(g, target_of<T>(output), target_of<T>(input), target_of<T>(out));
  });
}

}  // namespace tapegrad::cpu::TG_ISA
