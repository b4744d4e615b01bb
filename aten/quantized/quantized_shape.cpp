// Shapes and checks of the products with factors of 8 and 4 bits.
#include "tapegrad/aten/kernels_quantized.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {
namespace {

void check_matrix(const char* op, const char* name, const Tensor& t) {
  TG_CHECK(t.ndim() == 2, Runtime, "{}: {} must have 2 dimensions: got shape {}", op, name, format_ints(t.sizes()));
}

void check_dtype(const char* op, const char* name, const Tensor& t, DType dtype) {
  TG_CHECK(t.dtype() == dtype, Runtime, "{}: {} must be {}: got {}", op, name, dtype, t.dtype());
}

// What is multiplied by a weight of few bits.
void check_floats(const char* op, const Tensor& input) {
  const DType t = input.dtype();
  TG_CHECK(t == DType::float32 || t == DType::bfloat16 || t == DType::float16, Runtime,
           "{}: input must be float32, bfloat16 or float16: got {}", op, t);
}

void check_inner(const char* op, const Tensor& a, const Tensor& b, int64_t ka, int64_t kb) {
  TG_CHECK(ka == kb, Runtime, "{}: shapes {} and {} cannot be multiplied: inner sizes are {} and {}", op,
           format_ints(a.sizes()), format_ints(b.sizes()), ka, kb);
}

}  // namespace

TensorSpec int_mm_shape(const Tensor& input, const Tensor& mat2) {
  const char* op = "_int_mm";
  check_matrix(op, "input", input);
  check_matrix(op, "mat2", mat2);
  check_inner(op, input, mat2, input.size(1), mat2.size(0));
  TG_CHECK(input.dtype() == DType::int8 || input.dtype() == DType::uint8, Runtime,
           "{}: input must be int8 or uint8: got {}", op, input.dtype());
  check_dtype(op, "mat2", mat2, DType::int8);
  return {{input.size(0), mat2.size(1)}, DType::int32, input.device(), {}};
}

TensorSpec weight_int8pack_mm_shape(const Tensor& input, const Tensor& mat2, const Tensor& scales) {
  const char* op = "_weight_int8pack_mm";
  check_floats(op, input);
  check_matrix(op, "input", input);
  check_dtype(op, "mat2", mat2, DType::int8);
  check_matrix(op, "mat2", mat2);
  check_inner(op, input, mat2, input.size(1), mat2.size(1));
  TG_CHECK(scales.ndim() == 1 && scales.size(0) == mat2.size(0), Runtime,
           "{}: scales must be a vector of {} elements: got shape {}", op, mat2.size(0), format_ints(scales.sizes()));
  check_dtype(op, "scales", scales, input.dtype());
  return {{input.size(0), mat2.size(0)}, input.dtype(), input.device(), {}};
}

TensorSpec convert_weight_to_int4pack_for_cpu_shape(const Tensor& input, int64_t) {
  const char* op = "_convert_weight_to_int4pack_for_cpu";
  check_matrix(op, "input", input);
  check_dtype(op, "input", input, DType::int32);
  TG_CHECK(input.size(0) % 16 == 0 && input.size(1) % 2 == 0, Runtime,
           "{}: input must have a multiple of 16 rows and of 2 columns: got shape {}", op, format_ints(input.sizes()));
  return {{input.size(0), input.size(1) / 2}, DType::uint8, input.device(), {}};
}

TensorSpec weight_int4pack_mm_for_cpu_shape(const Tensor& input, const Tensor& mat2, int64_t group,
                                            const Tensor& scales) {
  const char* op = "_weight_int4pack_mm_for_cpu";
  check_floats(op, input);
  check_matrix(op, "input", input);
  check_dtype(op, "mat2", mat2, DType::uint8);
  check_matrix(op, "mat2", mat2);
  const int64_t k = input.size(1), n = mat2.size(0);
  check_inner(op, input, mat2, k, 2 * mat2.size(1));
  TG_CHECK(n % 16 == 0, Runtime, "{}: mat2 must have a multiple of 16 rows: got shape {}", op,
           format_ints(mat2.sizes()));
  TG_CHECK(group == 32 || group == 64 || group == 128 || group == 256, Runtime,
           "{}: qGroupSize must be 32, 64, 128 or 256: got {}", op, group);
  TG_CHECK(k % group == 0, Runtime, "{}: {} terms are not a multiple of qGroupSize {}", op, k, group);
  TG_CHECK(scales.ndim() == 3 && scales.size(0) == k / group && scales.size(1) == n && scales.size(2) == 2, Runtime,
           "{}: qScaleAndZeros must have the shape [{}, {}, 2]: got shape {}", op, k / group, n,
           format_ints(scales.sizes()));
  check_dtype(op, "qScaleAndZeros", scales, input.dtype());
  return {{input.size(0), n}, input.dtype(), input.device(), {}};
}

TensorSpec dynamic_quantized_linear_shape(const Tensor& input, const Tensor& weight, const Tensor& scale,
                                          const Tensor& bias) {
  const char* op = "dynamic quantized linear";
  check_floats(op, input);
  check_dtype(op, "weight", weight, DType::int8);
  check_matrix(op, "weight", weight);
  TG_CHECK(input.ndim() >= 1 && input.size(-1) == weight.size(1), Runtime,
           "{}: input of shape {} does not fit weight of shape {}\nexpected (*, {})", op, format_ints(input.sizes()),
           format_ints(weight.sizes()), weight.size(1));
  auto check_vector = [&](const char* name, const Tensor& t, bool one) {
    check_dtype(op, name, t, DType::float32);
    TG_CHECK(t.ndim() == 1 && (t.size(0) == weight.size(0) || (one && t.size(0) == 1)), Runtime,
             "{}: {} of shape {} does not fit weight of shape {}", op, name, format_ints(t.sizes()),
             format_ints(weight.sizes()));
  };
  check_vector("scale", scale, true);
  if (bias.defined()) check_vector("bias", bias, false);
  DimVector sizes(IntSpan(input.sizes().data(), input.sizes().size() - 1));
  sizes.push_back(weight.size(0));
  return {std::move(sizes), input.dtype(), input.device(), {}};
}

}  // namespace tapegrad
