// Shapes and checks of the matrix products.

#include "tapegrad/aten/iterate/number.h"
#include "tapegrad/aten/kernels_linalg.h"
#include "tapegrad/aten/linalg/factor/factor.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {
namespace {

void check_factors(const char* op, const Tensor& a, const Tensor& b) {
  TG_CHECK(a.dtype() == b.dtype(), Runtime, "{}: factors of dtypes {} and {}\nconvert one of them with .to()", op,
           a.dtype(), b.dtype());
  TG_CHECK(a.dtype() != DType::bool_, NotImplemented, "{}: not implemented for bool", op);
  TG_CHECK(a.device() == b.device(), Runtime, "{}: factors on {} and {}", op, a.device(), b.device());
}

void check_ndim(const char* op, const Tensor& t, int ndim, const char* name) {
  TG_CHECK(t.ndim() == ndim, Runtime, "{}: {} must have {} dimension{}: got shape {}", op, name, ndim,
           ndim == 1 ? "" : "s", format_ints(t.sizes()));
}

void check_inner(const char* op, const Tensor& a, const Tensor& b, int64_t ka, int64_t kb) {
  TG_CHECK(ka == kb, Runtime, "{}: shapes {} and {} cannot be multiplied: inner sizes are {} and {}", op,
           format_ints(a.sizes()), format_ints(b.sizes()), ka, kb);
}

// input must broadcast to the result's shape.
void check_addend(const char* op, const Tensor& input, IntSpan sizes, DType dtype) {
  bool fits = input.sizes().size() <= sizes.size();
  for (size_t i = 0; fits && i < input.sizes().size(); ++i) {
    int64_t have = input.sizes()[input.sizes().size() - 1 - i], want = sizes[sizes.size() - 1 - i];
    fits = have == want || have == 1;
  }
  TG_CHECK(fits, Runtime, "{}: input of shape {} does not broadcast to the product's shape {}", op,
           format_ints(input.sizes()), format_ints(sizes));
  TG_CHECK(input.dtype() == dtype, Runtime, "{}: input of dtype {} and factors of dtype {}", op, input.dtype(), dtype);
}

TensorSpec matrix_product(const char* op, const Tensor& a, const char* a_name, const Tensor& b, const char* b_name) {
  check_ndim(op, a, 2, a_name);
  check_ndim(op, b, 2, b_name);
  check_factors(op, a, b);
  check_inner(op, a, b, a.size(1), b.size(0));
  return {{a.size(0), b.size(1)}, a.dtype(), a.device(), {}};
}

TensorSpec batched_product(const char* op, const Tensor& a, const char* a_name, const Tensor& b, const char* b_name) {
  check_ndim(op, a, 3, a_name);
  check_ndim(op, b, 3, b_name);
  check_factors(op, a, b);
  TG_CHECK(a.size(0) == b.size(0), Runtime, "{}: batch sizes differ: shapes {} and {}", op, format_ints(a.sizes()),
           format_ints(b.sizes()));
  check_inner(op, a, b, a.size(2), b.size(1));
  return {{a.size(0), a.size(1), b.size(2)}, a.dtype(), a.device(), {}};
}

TensorSpec with_addend(const char* op, const Tensor& input, TensorSpec product, const Scalar& beta,
                       const Scalar& alpha) {
  check_addend(op, input, product.sizes, product.dtype);
  product_factor(op, "beta", beta, product.dtype);
  product_factor(op, "alpha", alpha, product.dtype);
  return product;
}

}  // namespace

Scalar product_factor(const char* op, const char* name, const Scalar& value, DType dtype) {
  TG_CHECK(is_complex(dtype) || !value.is_complex(), Runtime, "{}: for dtype {} {} must be real: got {}", op, dtype,
           name, to_string(value));
  const bool fits = number_fits(value, compute_dtype(dtype));
  TG_CHECK(fits, Runtime, "{}: for dtype {} {} is out of range: got {}", op, dtype, name, to_string(value));
  return is_integral(dtype) ? Scalar(value.to<int64_t>()) : value;
}

TensorSpec mm_shape(const Tensor& input, const Tensor& mat2) {
  return matrix_product("mm", input, "input", mat2, "mat2");
}

TensorSpec bmm_shape(const Tensor& input, const Tensor& mat2) {
  return batched_product("bmm", input, "input", mat2, "mat2");
}

TensorSpec addmm_shape(const Tensor& input, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                       const Scalar& alpha) {
  return with_addend("addmm", input, matrix_product("addmm", mat1, "mat1", mat2, "mat2"), beta, alpha);
}

TensorSpec baddbmm_shape(const Tensor& input, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                         const Scalar& alpha) {
  return with_addend("baddbmm", input, batched_product("baddbmm", batch1, "batch1", batch2, "batch2"), beta, alpha);
}

TensorSpec mv_shape(const Tensor& input, const Tensor& vec) {
  check_ndim("mv", input, 2, "input");
  check_ndim("mv", vec, 1, "vec");
  check_factors("mv", input, vec);
  check_inner("mv", input, vec, input.size(1), vec.size(0));
  return {{input.size(0)}, input.dtype(), input.device(), {}};
}

TensorSpec dot_shape(const Tensor& input, const Tensor& tensor) {
  check_ndim("dot", input, 1, "input");
  check_ndim("dot", tensor, 1, "tensor");
  check_factors("dot", input, tensor);
  TG_CHECK(input.size(0) == tensor.size(0), Runtime, "dot: vectors of {} and {} elements", input.size(0),
           tensor.size(0));
  return {{}, input.dtype(), input.device(), {}};
}

namespace {
// A 1-D weight gives one number per row, and a bias of one number. With a 2-D one the bias is a vector, or what
// PyTorch's addmm makes one: a row or a number.
bool bias_fits(const Tensor& bias, const Tensor& weight, int64_t input_dims) {
  const int64_t outputs = weight.ndim() == 2 ? weight.size(0) : 1;
  if (bias.ndim() == 1 && bias.size(0) == outputs) return true;
  const bool is_row = bias.ndim() == 2 && weight.ndim() == 2 && input_dims >= 2 && bias.size(0) == 1;
  const int64_t last = bias.ndim() == 0 ? 1 : bias.size(bias.ndim() - 1);
  return (bias.ndim() <= 1 || is_row) && (last == outputs || last == 1);
}
}  // namespace

TensorSpec linear_shape(const Tensor& input, const Tensor& weight, const Tensor& bias) {
  TG_CHECK(weight.ndim() == 2 || weight.ndim() == 1, Runtime,
           "linear: weight must have 1 or 2 dimensions: got shape {}", format_ints(weight.sizes()));
  TG_CHECK(input.ndim() >= 1, Runtime, "linear: input must have at least 1 dimension: got shape {}",
           format_ints(input.sizes()));
  int64_t features = weight.size(weight.ndim() - 1);
  TG_CHECK(input.size(-1) == features, Runtime,
           "linear: input of shape {} does not fit weight of shape {}\nexpected (*, {})", format_ints(input.sizes()),
           format_ints(weight.sizes()), features);
  check_factors("linear", input, weight);
  DimVector sizes(IntSpan(input.sizes().data(), input.sizes().size() - 1));
  if (weight.ndim() == 2) sizes.push_back(weight.size(0));
  if (bias.defined()) {
    TG_CHECK(bias_fits(bias, weight, input.ndim()), Runtime, "linear: bias of shape {} does not fit weight of shape {}",
             format_ints(bias.sizes()), format_ints(weight.sizes()));
    TG_CHECK(bias.dtype() == input.dtype(), Runtime, "linear: bias of dtype {} and input of dtype {}", bias.dtype(),
             input.dtype());
    TG_CHECK(bias.device() == input.device(), Runtime, "linear: bias on {} and input on {}", bias.device(),
             input.device());
  }
  return {std::move(sizes), input.dtype(), input.device(), {}};
}

std::array<TensorSpec, 2> linear_parameter_grads_shape(const Tensor& grad_output, const Tensor& input) {
  const int64_t n = grad_output.size(1);
  return {TensorSpec{{n, input.size(1)}, input.dtype(), input.device(), {}},
          TensorSpec{{n}, input.dtype(), input.device(), {}}};
}

}  // namespace tapegrad
