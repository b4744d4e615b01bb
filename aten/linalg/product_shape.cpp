// Shapes and checks of the matrix products.
#include <limits>

#include "tapegrad/aten/iterate/number.h"
#include "tapegrad/aten/kernels_linalg.h"
#include "tapegrad/aten/linalg/factor.h"
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

}  // namespace

Scalar product_factor(const char* op, const char* name, const Scalar& value, DType dtype) {
  TG_CHECK(is_complex(dtype) || !value.is_complex(), Runtime, "{}: for dtype {} {} must be real: got {}", op, dtype,
           name, to_string(value));
  const bool fits = number_fits(value, compute_dtype(dtype));
  TG_CHECK(fits, Runtime, "{}: for dtype {} {} is out of range: got {}", op, dtype, name, to_string(value));
  return is_integral(dtype) ? Scalar(value.to<int64_t>()) : value;
}

TensorSpec mm_shape(const Tensor& input, const Tensor& mat2) {
  check_ndim("mm", input, 2, "input");
  check_ndim("mm", mat2, 2, "mat2");
  check_factors("mm", input, mat2);
  check_inner("mm", input, mat2, input.size(1), mat2.size(0));
  return {{input.size(0), mat2.size(1)}, input.dtype(), input.device(), {}};
}

TensorSpec bmm_shape(const Tensor& input, const Tensor& mat2) {
  check_ndim("bmm", input, 3, "input");
  check_ndim("bmm", mat2, 3, "mat2");
  check_factors("bmm", input, mat2);
  TG_CHECK(input.size(0) == mat2.size(0), Runtime, "bmm: batch sizes differ: shapes {} and {}",
           format_ints(input.sizes()), format_ints(mat2.sizes()));
  check_inner("bmm", input, mat2, input.size(2), mat2.size(1));
  return {{input.size(0), input.size(1), mat2.size(2)}, input.dtype(), input.device(), {}};
}

TensorSpec addmm_shape(const Tensor& input, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                       const Scalar& alpha) {
  check_ndim("addmm", mat1, 2, "mat1");
  check_ndim("addmm", mat2, 2, "mat2");
  check_factors("addmm", mat1, mat2);
  check_inner("addmm", mat1, mat2, mat1.size(1), mat2.size(0));
  TensorSpec spec{{mat1.size(0), mat2.size(1)}, mat1.dtype(), mat1.device(), {}};
  check_addend("addmm", input, spec.sizes, spec.dtype);
  product_factor("addmm", "beta", beta, spec.dtype);
  product_factor("addmm", "alpha", alpha, spec.dtype);
  return spec;
}

TensorSpec baddbmm_shape(const Tensor& input, const Tensor& batch1, const Tensor& batch2, const Scalar& beta,
                         const Scalar& alpha) {
  check_ndim("baddbmm", batch1, 3, "batch1");
  check_ndim("baddbmm", batch2, 3, "batch2");
  check_factors("baddbmm", batch1, batch2);
  TG_CHECK(batch1.size(0) == batch2.size(0), Runtime, "baddbmm: batch sizes differ: shapes {} and {}",
           format_ints(batch1.sizes()), format_ints(batch2.sizes()));
  check_inner("baddbmm", batch1, batch2, batch1.size(2), batch2.size(1));
  TensorSpec spec{{batch1.size(0), batch1.size(1), batch2.size(2)}, batch1.dtype(), batch1.device(), {}};
  check_addend("baddbmm", input, spec.sizes, spec.dtype);
  product_factor("baddbmm", "beta", beta, spec.dtype);
  product_factor("baddbmm", "alpha", alpha, spec.dtype);
  return spec;
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
    bool fits =
        weight.ndim() == 2 ? bias.ndim() == 1 && bias.size(0) == weight.size(0) : bias.numel() == 1 && bias.ndim() <= 1;
    // A 1-D weight gives one number per row, and a bias of one number.
    TG_CHECK(fits, Runtime, "linear: bias of shape {} does not fit weight of shape {}", format_ints(bias.sizes()),
             format_ints(weight.sizes()));
    TG_CHECK(bias.dtype() == input.dtype(), Runtime, "linear: bias of dtype {} and input of dtype {}", bias.dtype(),
             input.dtype());
    TG_CHECK(bias.device() == input.device(), Runtime, "linear: bias on {} and input on {}", bias.device(),
             input.device());
  }
  return {std::move(sizes), input.dtype(), input.device(), {}};
}

}  // namespace tapegrad
