// mm, bmm, addmm, baddbmm, linear by gemm; mv and dot by reductions of rows.
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/dispatch/float32_precision.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/linalg/product_library.h"

namespace tapegrad::cuda {
namespace {

// The last two dimensions of t, and the one before.
Matrix matrix(const Tensor& t) {
  const int d = t.ndim();
  return {t.data_ptr(), t.impl()->stride(d - 2), t.impl()->stride(d - 1), d > 2 ? t.impl()->stride(0) : 0};
}

void multiply(const Tensor& a, const Tensor& b, const Tensor& input, const Scalar& beta, const Scalar& alpha,
              const Tensor& out) {
  const bool add = input.defined() && !(beta == Scalar(0));
  if (add) copy_any(out, input, true);  // broadcasts
  const Work work(out.device(), {&a, &b, &out});
  const int d = a.ndim();
  gemm(work, out.dtype(), d > 2 ? a.size(0) : 1, a.size(d - 2), b.size(d - 1), a.size(d - 1), alpha, matrix(a),
       matrix(b), add ? beta : Scalar(0), out.data_ptr());
}

template <class T>
struct RowTimesVector {
  const T* a;
  const T* x;
  T* out;
  int64_t n, row, col, inc;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    using C = compute_t<T>;
    C sum = C(0);
    for (int64_t i = g.lane(); i < n; i += g.lanes())
      sum = math::add(sum, math::mul(steps::widen<T>(a[line * row + i * col]), steps::widen<T>(x[i * inc])));
    sum = g.reduce(sum, steps::Plus());
    if (g.lane() == 0) out[line] = steps::narrow<T>(sum);
  }
};
void rows_times_vector(const Tensor& a, int64_t rows, int64_t row, int64_t col, const Tensor& x, const Tensor& out) {
  const Work work(out.device(), {&a, &x, &out});
  const int64_t n = x.size(0);
  dispatch_numeric(out.dtype(), [&]<class T>() {
    for_lines(work, rows, n, rows >= 32 && row == 1 && col != 1,
              RowTimesVector<T>{data_of<T>(a), data_of<T>(x), target_of<T>(out), n, row, col, x.stride(0)});
  });
}

}  // namespace

void mm_cuda(const Tensor& input, const Tensor& mat2, const Tensor& out) { multiply(input, mat2, {}, 0, 1, out); }
void bmm_cuda(const Tensor& input, const Tensor& mat2, const Tensor& out) { multiply(input, mat2, {}, 0, 1, out); }
void addmm_cuda(const Tensor& input, const Tensor& mat1, const Tensor& mat2, const Scalar& beta, const Scalar& alpha,
                const Tensor& out) {
  multiply(mat1, mat2, input, beta, alpha, out);
}
void baddbmm_cuda(const Tensor& input, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                  const Scalar& alpha, const Tensor& out) {
  multiply(batch1, batch2, input, beta, alpha, out);
}
void mv_cuda(const Tensor& input, const Tensor& vec, const Tensor& out) {
  rows_times_vector(input, input.size(0), input.stride(0), input.stride(1), vec, out);
}
void dot_cuda(const Tensor& input, const Tensor& tensor, const Tensor& out) {
  rows_times_vector(input, 1, 0, input.stride(0), tensor, out);
}

void linear_cuda(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& out) {
  const bool matrix_weight = weight.ndim() == 2;
  const int64_t k = weight.size(weight.ndim() - 1), n = matrix_weight ? weight.size(0) : 1;
  const int64_t m = n == 0 ? 0 : out.numel() / n;
  if (m == 0) return;
  const Matrix a{input.data_ptr(), k, 1};
  const Matrix b{weight.data_ptr(), weight.stride(weight.ndim() - 1), matrix_weight ? weight.stride(0) : 0};
  const Work work(out.device(), {&input, &weight, &out});
  if (bias.defined()) {
    work.use(bias);
    const bool row = bias.ndim() == 1 && bias.size(0) == n && (n == 1 || bias.stride(0) == 1);
    if (row && library_product(work, {out.dtype(), 1, m, n, k, 1, a, b, 0, out.data_ptr(), bias.data_ptr()})) return;
    copy_any(out, bias, true);
  }
  gemm(work, out.dtype(), 1, m, n, k, 1, a, b, bias.defined() ? 1 : 0, out.data_ptr());
}

// The library adds the columns up while it reads them for the product. Not with sizes for which it would be slow, nor
// in TF32, in which the sums might be made of rounded numbers.
void linear_parameter_grads_cuda(const Tensor& grad, const Tensor& input, const Tensor& weight_grad,
                                 const Tensor& bias_grad) {
  const DType dtype = grad.dtype();
  const int64_t n = grad.size(1), k = input.size(1), item = static_cast<int64_t>(element_size(dtype));
  const Work work(grad.device(), {&grad, &input, &weight_grad, &bias_grad});
  const Matrix a{grad.data_ptr(), grad.stride(1), grad.stride(0)}, b = matrix(input);
  const bool exact = is_half(dtype) || (dtype == DType::float32 && !allow_tf32());
  if (exact && n * k > 0 && n * item % 16 == 0 && k * item % 16 == 0 &&
      library_product(work, {dtype, 1, n, k, grad.size(0), 1, a, b, 0, weight_grad.data_ptr(), nullptr, 0, nullptr,
                             bias_grad.data_ptr()}))
    return;
  gemm(work, dtype, 1, n, k, grad.size(0), 1, a, b, 0, weight_grad.data_ptr());
  const int64_t rows[] = {0};
  raw::sum_out(grad, OptionalInts(IntSpan(rows, 1)), false, std::nullopt, bias_grad);
}

}  // namespace tapegrad::cuda
