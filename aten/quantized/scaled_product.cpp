#include "tapegrad/aten/quantized/scaled_product.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/iterate/limits.h"
#include "tapegrad/aten/kernels_quantized.h"

namespace tapegrad {
namespace {

int64_t parts_of(int64_t n, int64_t part) { return (n + part - 1) / part; }

// How many of `size` lines or terms share a scale where there are `count` of these; 0: that is none of the ways.
int64_t shared(int64_t count, int64_t size, bool terms) {
  if (count == 1) return std::max<int64_t>(size, 1);
  if (count == size && !terms) return 1;
  return count == parts_of(size, 128) ? 128 : terms && count == parts_of(size, 32) ? 32 : 0;
}

void check_scale(const char* name, const Tensor& scale, int64_t lines, int64_t terms, bool lines_first) {
  TG_CHECK(scale.dtype() == DType::float32 || scale.dtype() == DType::float8_e8m0fnu, Runtime,
           "_scaled_mm: {} must be float32 or float8_e8m0fnu: got {}", name, scale.dtype());
  if (scale.numel() == 1) return;
  const bool fits = scale.ndim() == 2 && shared(scale.size(lines_first ? 0 : 1), lines, false) != 0 &&
                    shared(scale.size(lines_first ? 1 : 0), terms, true) != 0;
  TG_CHECK(
      fits, Runtime,
      "_scaled_mm: {} of shape {} does not fit {} {} of {} terms\nexpected one number, one for each, or one for 128 "
      "or 32 terms of each or of 128 of them",
      name, format_ints(scale.sizes()), lines, lines_first ? "rows" : "columns", terms);
}

// float32, with as many elements in each dimension as the matrix has, or one.
Tensor spread(const Tensor& scale, const Tensor& matrix, bool lines_first) {
  Tensor s = raw::to(scale, DType::float32);
  if (s.numel() == 1) return raw::reshape(s, {1, 1});
  for (int64_t d : {0, 1}) {
    const int64_t size = matrix.size(d);
    if (s.size(d) == 1 || s.size(d) == size) continue;
    s = raw::_repeat_interleave_int(s, shared(s.size(d), size, lines_first == (d == 1)), d);
    s = raw::narrow(s, d, 0, size);
  }
  return s;
}

}  // namespace

TensorSpec scaled_mm_shape(const Tensor& input, const Tensor& mat2, const Tensor& scale_a, const Tensor& scale_b,
                           const Tensor& bias, const Tensor& scale_result, std::optional<DType> out_dtype, bool) {
  const DType to = out_dtype.value_or(input.dtype());
  for (const Tensor* t : {&input, &mat2})
    TG_CHECK(t->ndim() == 2 && is_float8(t->dtype()) && t->dtype() != DType::float8_e8m0fnu, Runtime,
             "_scaled_mm: expected matrices of float8: got {} of shape {}", t->dtype(), format_ints(t->sizes()));
  const int64_t n = input.size(0), k = input.size(1), m = mat2.size(1);
  TG_CHECK(k == mat2.size(0), Runtime, "_scaled_mm: shapes {} and {} cannot be multiplied: inner sizes are {} and {}",
           format_ints(input.sizes()), format_ints(mat2.sizes()), k, mat2.size(0));
  check_scale("scale_a", scale_a, n, k, true);
  check_scale("scale_b", scale_b, m, k, false);
  TG_CHECK(!bias.defined() || (bias.ndim() == 1 && bias.size(0) == m), Runtime,
           "_scaled_mm: bias must be a vector of {} elements: got shape {}", m, format_ints(bias.sizes()));
  TG_CHECK(!scale_result.defined() || (scale_result.numel() == 1 && scale_result.dtype() == DType::float32), Runtime,
           "_scaled_mm: scale_result must be one number of float32: got {} of shape {}", scale_result.dtype(),
           format_ints(scale_result.sizes()));
  TG_CHECK(is_floating_point(to) || is_float8(to), Runtime, "_scaled_mm: out_dtype must be a floating dtype: got {}",
           to);
  return {{n, m}, to, input.device(), {}};
}

bool ScaledProduct::of_terms() const {
  return (a_scale.numel() != 1 && a_scale.size(1) != 1) || (b_scale.numel() != 1 && b_scale.size(0) != 1);
}

void finish_scaled(const ScaledProduct& p, const Tensor& sums, bool scaled) {
  if (!scaled) {
    raw::mul_(sums, spread(p.a_scale, p.out, true));
    raw::mul_(sums, spread(p.b_scale, p.out, false));
  }
  if (p.bias.defined()) raw::add_(sums, raw::to(p.bias, DType::float32));
  if (is_float8(p.out.dtype())) {
    if (p.result_scale.defined()) raw::mul_(sums, p.result_scale);
    const double most = largest_number(p.out.dtype());
    raw::clamp_(sums, Scalar(-most), Scalar(most));
  }
  raw::copy_(p.out, sums);
}

void widened_product(const ScaledProduct& p) {
  Tensor a = raw::to(p.a, DType::float32), b = raw::to(p.b, DType::float32);
  if (p.of_terms()) {
    raw::mul_(a, spread(p.a_scale, a, true));
    raw::mul_(b, spread(p.b_scale, b, false));
  }
  finish_scaled(p, raw::mm(a, b), p.of_terms());
}

namespace cpu {

void scaled_mm_cpu(const Tensor& input, const Tensor& mat2, const Tensor& scale_a, const Tensor& scale_b,
                   const Tensor& bias, const Tensor& scale_result, std::optional<DType>, bool, const Tensor& out) {
  widened_product({input, mat2, scale_a, scale_b, bias, scale_result, out});
}

}  // namespace cpu
}  // namespace tapegrad
