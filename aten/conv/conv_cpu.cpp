// Convolution kernels: float32 by oneDNN, 16-bit types by way of float32, everything else (and shapes that
// oneDNN lacks) as products with the matrix of patches.
#include "tapegrad/aten/conv/columns.h"
#include "tapegrad/aten/conv/onednn.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/linalg/gemm.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using conv::Geometry;

template <class T>
T* ptr(const Tensor& t) {
  return t.defined() ? static_cast<T*>(t.data_ptr()) : nullptr;
}

// A float32 copy of a 16-bit tensor.
Tensor widened(const Tensor& t) {
  if (!t.defined()) return t;
  Tensor r = empty_tensor(t.sizes(), DType::float32);
  float* to = ptr<float>(r);
  dispatch_floating(t.dtype(), [&]<class T>() {
    const T* from = ptr<T>(t);
    parallel_for(0, t.numel(), 65536, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) to[i] = static_cast<float>(from[i]);
    });
  });
  return r;
}

void narrow_into(const Tensor& from, const Tensor& to) {
  const float* p = ptr<float>(from);
  dispatch_floating(to.dtype(), [&]<class T>() {
    T* q = ptr<T>(to);
    parallel_for(0, to.numel(), 65536, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) q[i] = T(p[i]);
    });
  });
}

// Patches of one group: none are needed for a 1x1 kernel, the image is its own matrix.
bool is_pointwise(const Geometry& g) {
  for (int d = 0; d < 3; ++d)
    if (g.kernel[d] != 1 || g.stride[d] != 1 || g.pad[d] != 0 || g.in[d] != g.out[d]) return false;
  return true;
}

template <class T>
void forward(const Geometry& g, const T* x, const T* w, const T* bias, T* y) {
  int64_t icg = g.ic / g.groups, ocg = g.oc / g.groups, rows = icg * g.kernel_spatial(), cols = g.out_spatial();
  bool pointwise = is_pointwise(g);
  // One image at a time when there is only one: then gemm itself is shared among threads.
  parallel_for(0, g.n, 1, [&](int64_t first, int64_t last) {
    Tensor holder;
    if (!pointwise) holder = empty_tensor({rows * cols}, dtype_of_v<T>);
    for (int64_t i = first; i < last; ++i)
      for (int64_t group = 0; group < g.groups; ++group) {
        const T* image = x + (i * g.ic + group * icg) * g.in_spatial();
        T* out = y + (i * g.oc + group * ocg) * cols;
        const T* columns = image;
        if (!pointwise) {
          T* c = ptr<T>(holder);
          image_to_columns(g, icg, image, c);
          columns = c;
        }
        if (bias)
          for (int64_t o = 0; o < ocg; ++o) std::fill_n(out + o * cols, cols, bias[group * ocg + o]);
        gemm<T>(ocg, cols, rows, T(1), {w + group * ocg * rows, rows, 1}, {columns, cols, 1}, bias ? T(1) : T(0), out,
                cols);
      }
  });
}

template <class T>
void grad_input(const Geometry& g, const T* y, const T* w, T* x) {
  int64_t icg = g.ic / g.groups, ocg = g.oc / g.groups, rows = icg * g.kernel_spatial(), cols = g.out_spatial();
  bool pointwise = is_pointwise(g);
  parallel_for(0, g.n, 1, [&](int64_t first, int64_t last) {
    Tensor holder;
    if (!pointwise) holder = empty_tensor({rows * cols}, dtype_of_v<T>);
    for (int64_t i = first; i < last; ++i)
      for (int64_t group = 0; group < g.groups; ++group) {
        T* image = x + (i * g.ic + group * icg) * g.in_spatial();
        const T* out = y + (i * g.oc + group * ocg) * cols;
        T* columns = pointwise ? image : ptr<T>(holder);
        gemm<T>(rows, cols, ocg, T(1), {w + group * ocg * rows, 1, rows}, {out, cols, 1}, T(0), columns, cols);
        if (!pointwise) {
          std::fill_n(image, icg * g.in_spatial(), T(0));
          add_columns_to_image(g, icg, columns, image);
        }
      }
  });
}

template <class T>
void grad_weight(const Geometry& g, const T* y, const T* x, T* w) {
  int64_t icg = g.ic / g.groups, ocg = g.oc / g.groups, rows = icg * g.kernel_spatial(), cols = g.out_spatial();
  int64_t size = g.weight_numel();
  bool pointwise = is_pointwise(g);
  // A fixed number of partial sums, added in order.
  int64_t per = (g.n + 7) / 8, count = (g.n + per - 1) / per;
  Tensor partial_holder;
  T* partial = w;
  if (count > 1) {
    partial_holder = empty_tensor({count * size}, dtype_of_v<T>);
    partial = ptr<T>(partial_holder);
  }
  parallel_for(0, count, 1, [&](int64_t first, int64_t last) {
    Tensor holder;
    if (!pointwise) holder = empty_tensor({rows * cols}, dtype_of_v<T>);
    for (int64_t p = first; p < last; ++p)
      for (int64_t i = p * per; i < std::min(g.n, (p + 1) * per); ++i)
        for (int64_t group = 0; group < g.groups; ++group) {
          const T* image = x + (i * g.ic + group * icg) * g.in_spatial();
          const T* columns = image;
          if (!pointwise) {
            T* c = ptr<T>(holder);
            image_to_columns(g, icg, image, c);
            columns = c;
          }
          gemm<T>(ocg, rows, cols, T(1), {y + (i * g.oc + group * ocg) * cols, cols, 1}, {columns, 1, cols},
                  i == p * per ? T(0) : T(1), partial + p * size + group * ocg * rows, rows);
        }
  });
  if (count > 1)
    parallel_for(0, size, 32768, [&](int64_t first, int64_t last) {
      for (int64_t j = first; j < last; ++j) {
        T s = partial[j];
        for (int64_t p = 1; p < count; ++p) s = static_cast<T>(s + partial[p * size + j]);
        w[j] = s;
      }
    });
}

void fill_zero(const Tensor& t) {
  if (t.numel() > 0) std::memset(t.data_ptr(), 0, static_cast<size_t>(t.nbytes()));
}

}  // namespace

void conv_cpu(const Tensor& any_input, const Tensor& any_weight, const Tensor& bias, IntSpan stride, IntSpan padding,
              IntSpan dilation, int64_t groups, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor input = contiguous_or_copy(any_input), weight = contiguous_or_copy(any_weight);
  if (is_half(out.dtype())) {
    Tensor wide = empty_tensor(out.sizes(), DType::float32);
    conv_cpu(widened(input), widened(weight), widened(bias), stride, padding, dilation, groups, wide);
    return narrow_into(wide, out);
  }
  Geometry g = conv::make_geometry(input.sizes(), weight.sizes(), out.sizes(), stride, padding, dilation, groups);
  if (out.dtype() == DType::float32 && g.ic > 0 &&
      onednn::conv_forward(g, ptr<float>(input), ptr<float>(weight), ptr<float>(bias), ptr<float>(out)))
    return;
  dispatch_numeric(out.dtype(), [&]<class T>() {
    if constexpr (!is_half_type<T>) forward<T>(g, ptr<T>(input), ptr<T>(weight), ptr<T>(bias), ptr<T>(out));
  });
}

void conv_grad_input_cpu(const Tensor& any_output, const Tensor& any_weight, IntSpan input_size, IntSpan stride,
                         IntSpan padding, IntSpan dilation, int64_t groups, const Tensor& out) {
  if (out.numel() == 0 || any_output.numel() == 0) return fill_zero(out);
  const Tensor output = contiguous_or_copy(any_output), weight = contiguous_or_copy(any_weight);
  if (is_half(out.dtype())) {
    Tensor wide = empty_tensor(out.sizes(), DType::float32);
    conv_grad_input_cpu(widened(output), widened(weight), input_size, stride, padding, dilation, groups, wide);
    return narrow_into(wide, out);
  }
  Geometry g = conv::make_geometry(input_size, weight.sizes(), output.sizes(), stride, padding, dilation, groups);
  if (out.dtype() == DType::float32 && g.regular() &&
      onednn::conv_grad_input(g, ptr<float>(output), ptr<float>(weight), ptr<float>(out)))
    return;
  dispatch_numeric(out.dtype(), [&]<class T>() {
    if constexpr (!is_half_type<T>) grad_input<T>(g, ptr<T>(output), ptr<T>(weight), ptr<T>(out));
  });
}

void conv_grad_weight_cpu(const Tensor& any_output, const Tensor& any_input, IntSpan weight_size, IntSpan stride,
                          IntSpan padding, IntSpan dilation, int64_t groups, const Tensor& out) {
  if (out.numel() == 0 || any_output.numel() == 0 || any_input.numel() == 0) return fill_zero(out);
  const Tensor output = contiguous_or_copy(any_output), input = contiguous_or_copy(any_input);
  if (is_half(out.dtype())) {
    Tensor wide = empty_tensor(out.sizes(), DType::float32);
    conv_grad_weight_cpu(widened(output), widened(input), weight_size, stride, padding, dilation, groups, wide);
    return narrow_into(wide, out);
  }
  Geometry g = conv::make_geometry(input.sizes(), weight_size, output.sizes(), stride, padding, dilation, groups);
  if (out.dtype() == DType::float32 && g.regular() &&
      onednn::conv_grad_weight(g, ptr<float>(output), ptr<float>(input), ptr<float>(out)))
    return;
  dispatch_numeric(out.dtype(), [&]<class T>() {
    if constexpr (!is_half_type<T>) grad_weight<T>(g, ptr<T>(output), ptr<T>(input), ptr<T>(out));
  });
}

}  // namespace tapegrad::cpu::TG_ISA
