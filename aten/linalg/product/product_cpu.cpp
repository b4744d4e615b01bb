// Kernels of the matrix products; the work is gemm's.
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/linalg/blas/blas.h"
#include "tapegrad/aten/linalg/product/gemm.h"
#include "tapegrad/aten/linalg/product/skinny.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// The last two dimensions of t.
template <class T>
MatrixRef<T> matrix(const Tensor& t) {
  int d = t.ndim();
  return {data_of<T>(t), t.impl()->stride(d - 2), t.impl()->stride(d - 1)};
}

// out (contiguous, `ndim` dimensions, at most 3) = input broadcast to it.
template <class T>
void broadcast_into(const Tensor& input, const Tensor& out) {
  int64_t size[3] = {1, 1, 1}, stride[3] = {0, 0, 0};
  int shift = 3 - out.ndim();
  for (int d = 0; d < out.ndim(); ++d) size[shift + d] = out.impl()->size(d);
  for (int d = 0; d < input.ndim(); ++d)
    if (input.impl()->size(d) != 1) stride[3 - input.ndim() + d] = input.impl()->stride(d);
  const T* from = data_of<T>(input);
  T* to = target_of<T>(out);
  int64_t rows = size[0] * size[1], n = size[2];
  parallel_for(0, rows, 65536 / std::max<int64_t>(n, 1) + 1, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const T* p = from + r / size[1] * stride[0] + r % size[1] * stride[1];
      T* q = to + r * n;
      if (stride[2] == 1) {
        for (int64_t j = 0; j < n; ++j) q[j] = p[j];
      } else {
        for (int64_t j = 0; j < n; ++j) q[j] = p[j * stride[2]];
      }
    }
  });
}

// Sum of x[i] * y[i]; several lanes, since one chain of additions is slow, merged in fixed order.
template <class T>
compute_t<T> dot_serial(int64_t n, const T* x, int64_t sx, const T* y, int64_t sy) {
  using C = compute_t<T>;
  constexpr int64_t kLanes = blocks::kWidth;
  C lane[kLanes] = {};
  int64_t i = 0;
  if (sx == 1 && sy == 1) {
    for (; i + kLanes <= n; i += kLanes)
      for (int64_t l = 0; l < kLanes; ++l) lane[l] += static_cast<C>(x[i + l]) * static_cast<C>(y[i + l]);
  }
  for (; i < n; ++i) lane[i % kLanes] += static_cast<C>(x[i * sx]) * static_cast<C>(y[i * sy]);
  for (int64_t width = kLanes / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

constexpr int64_t kDotGrain = 32768;

}  // namespace

void mm_cpu(const Tensor& input, const Tensor& mat2, const Tensor& out) {
  int64_t m = input.impl()->size(0), k = input.impl()->size(1), n = mat2.impl()->size(1);
  dispatch_numeric(out.dtype(), [&]<class T>() {
    gemm<T>(m, n, k, compute_t<T>(1), matrix<T>(input), matrix<T>(mat2), compute_t<T>(0), target_of<T>(out), n);
  });
}

void bmm_cpu(const Tensor& input, const Tensor& mat2, const Tensor& out) {
  int64_t batch = input.impl()->size(0), m = input.impl()->size(1), k = input.impl()->size(2), n = mat2.impl()->size(2);
  dispatch_numeric(out.dtype(), [&]<class T>() {
    gemm_batched<T>(batch, m, n, k, compute_t<T>(1), matrix<T>(input), input.impl()->stride(0), matrix<T>(mat2),
                    mat2.impl()->stride(0), compute_t<T>(0), target_of<T>(out), n, m * n);
  });
}

void addmm_cpu(const Tensor& input, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha,
               const Tensor& out) {
  int64_t m = mat1.impl()->size(0), k = mat1.impl()->size(1), n = mat2.impl()->size(1);
  dispatch_numeric(out.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    C b = beta.to<C>();
    if (b != C(0)) broadcast_into<T>(input, out);
    gemm<T>(m, n, k, alpha.to<C>(), matrix<T>(mat1), matrix<T>(mat2), b, target_of<T>(out), n);
  });
}

void baddbmm_cpu(const Tensor& input, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                 const Scalar& alpha, const Tensor& out) {
  int64_t batch = batch1.impl()->size(0), m = batch1.impl()->size(1), k = batch1.impl()->size(2),
          n = batch2.impl()->size(2);
  dispatch_numeric(out.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    C b = beta.to<C>();
    if (b != C(0)) broadcast_into<T>(input, out);
    gemm_batched<T>(batch, m, n, k, alpha.to<C>(), matrix<T>(batch1), batch1.impl()->stride(0), matrix<T>(batch2),
                    batch2.impl()->stride(0), b, target_of<T>(out), n, m * n);
  });
}

void mv_cpu(const Tensor& input, const Tensor& vec, const Tensor& out) {
  int64_t m = input.impl()->size(0), n = input.impl()->size(1);
  int64_t row = input.impl()->stride(0), col = input.impl()->stride(1), inc = vec.impl()->stride(0);
  dispatch_numeric(out.dtype(), [&]<class T>() {
    const T *a = data_of<T>(input), *x = data_of<T>(vec);
    T* y = target_of<T>(out);
    if constexpr (std::is_same_v<T, float> || is_half_type<T>)
      if (const MatrixRef<T> turned{a, col, row}; is_skinny(1, m, n, turned))
        return skinny_product<T>(1, m, n, 1, {x, 0, inc}, turned, 0, y, m);
    int64_t grain = std::max<int64_t>(1, kDotGrain / std::max<int64_t>(n, 1));
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
      // Columns of unit stride: BLAS adds up whole columns. Panels of at least 256 rows keep its loads long.
      bool columns = row == 1 && col >= std::max<int64_t>(m, 1) && n > 1 && m > 8 && col <= blas::kMaxInt && inc > 0 &&
                     n <= blas::kMaxInt && inc <= blas::kMaxInt;
      if (columns) {
        return parallel_for(0, m, std::max<int64_t>(grain, 256), [&](int64_t first, int64_t last) {
          for (int64_t i = first; i < last; i += 1 << 20) {
            int64_t rows = std::min<int64_t>(last - i, 1 << 20);
            blas::gemv(true, n, rows, T(1), a + i, col, x, inc, T(0), y + i, 1);
          }
        });
      }
    }
    parallel_for(0, m, grain, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) y[i] = T(dot_serial<T>(n, a + i * row, col, x, inc));
    });
  });
}

void dot_cpu(const Tensor& input, const Tensor& tensor, const Tensor& out) {
  int64_t n = input.impl()->size(0), sx = input.impl()->stride(0), sy = tensor.impl()->stride(0);
  dispatch_numeric(out.dtype(), [&]<class T>() {
    const T *x = data_of<T>(input), *y = data_of<T>(tensor);
    T* result = target_of<T>(out);
    Split split = split_range(n, kDotGrain);
    if (split.count <= 1) {
      *result = T(dot_serial<T>(n, x, sx, y, sy));
      return;
    }
    std::vector<compute_t<T>> parts(static_cast<size_t>(split.count));
    parallel_for(0, n, kDotGrain, [&](int64_t first, int64_t last, int64_t index) {
      parts[static_cast<size_t>(index)] = dot_serial<T>(last - first, x + first * sx, sx, y + first * sy, sy);
    });
    compute_t<T> sum = parts[0];
    for (size_t i = 1; i < parts.size(); ++i) sum += parts[i];
    *result = T(sum);
  });
}

void linear_cpu(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& out) {
  bool matrix_weight = weight.ndim() == 2;
  int64_t k = weight.impl()->size(weight.ndim() - 1), n = matrix_weight ? weight.impl()->size(0) : 1;
  int64_t m = n == 0 ? 0 : out.numel() / n;
  int64_t weight_row = matrix_weight ? weight.impl()->stride(0) : 0,
          weight_col = weight.impl()->stride(weight.ndim() - 1);
  dispatch_numeric(out.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    T* y = target_of<T>(out);
    if (bias.defined()) {
      const T* b = data_of<T>(bias);
      int64_t step = bias.numel() == 1 ? 0 : bias.impl()->stride(bias.ndim() - 1);
      parallel_for(0, m, 65536 / std::max<int64_t>(n, 1) + 1, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) {
          if (step == 1)
            std::copy_n(b, n, y + i * n);
          else
            for (int64_t j = 0; j < n; ++j) y[i * n + j] = b[j * step];
        }
      });
    }
    gemm<T>(m, n, k, C(1), {data_of<T>(input), k, 1}, {data_of<T>(weight), weight_col, weight_row},
            bias.defined() ? C(1) : C(0), y, n);
  });
}

}  // namespace tapegrad::cpu::TG_ISA
