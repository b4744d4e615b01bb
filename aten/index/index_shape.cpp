// Checks and shapes of the operators that address elements through index tensors.
#include "tapegrad/aten/index/index_plan.h"
#include "tapegrad/aten/iterate/number.h"
#include "tapegrad/aten/kernels_index.h"
#include "tapegrad/aten/linalg/factor/factor.h"

namespace tapegrad {

namespace {

TensorSpec like(const Tensor& t) { return {DimVector(t.sizes()), t.dtype(), t.device(), {}}; }

void check_index_dtype(const Tensor& index, const char* op) {
  TG_CHECK(index.dtype() == DType::int64 || index.dtype() == DType::int32, Runtime,
           "{}: expected an index of dtype int64 or int32: got {}", op, index.dtype());
}

// The dimension, for an index that is a vector (or a number).
int64_t check_vector_index(const Tensor& input, int64_t dim, const Tensor& index, const char* op) {
  check_index_dtype(index, op);
  TG_CHECK(index.ndim() <= 1, Index, "{}: expected an index with at most 1 dimension: got {}", op,
           format_ints(index.sizes()));
  return wrap_dim(dim, input.ndim(), op);
}

void check_same_dtype(const Tensor& input, const Tensor& source, const char* op) {
  TG_CHECK(input.dtype() == source.dtype(), Runtime, "{}: expected the source to be {} as the input is: got {}", op,
           input.dtype(), source.dtype());
}

// A source as index_add and index_copy take it: the input's sizes, with the index's length in `dim`.
void check_source(const Tensor& input, int64_t d, const Tensor& index, const Tensor& source, const char* op,
                  bool number_allowed = false) {
  check_same_dtype(input, source, op);
  DimVector expected(input.sizes());
  if (!expected.empty()) expected[d] = index.numel();
  const bool one = source.numel() == 1 && index.numel() == 1;
  const bool scalar_like =
      one && (expected.empty() ? source.ndim() <= 1 : number_allowed && input.ndim() == 1 && source.ndim() == 0);
  TG_CHECK(
      IntSpan(expected) == source.sizes() || scalar_like, Runtime,
      "{}: source tensor shape must match self tensor shape, excluding the specified dimension: expected sizes {} for "
      "{} indices: got {}",
      op, format_ints(expected), index.numel(), format_ints(source.sizes()));
}

}  // namespace

TensorSpec index_tensor_shape(const Tensor& input, TensorSpan indices) {
  return {plan_index(input, indices, "index").sizes, input.dtype(), input.device(), {}};
}

TensorSpec index_put_shape(const Tensor& input, TensorSpan indices, const Tensor& values, bool) {
  IndexPlan plan = plan_index(input, indices, "index_put");
  check_same_dtype(input, values, "index_put");
  DimVector common = broadcast_sizes(plan.sizes, values.sizes(), "index_put");
  TG_CHECK(common == plan.sizes, Runtime,
           "index_put: shape mismatch: values of shape {} do not broadcast to the indexed shape {}",
           format_ints(values.sizes()), format_ints(plan.sizes));
  return like(input);
}

TensorSpec index_select_shape(const Tensor& input, int64_t dim, const Tensor& index, bool sparse_grad) {
  int64_t d = check_vector_index(input, dim, index, "index_select");
  TG_CHECK(
      !sparse_grad || (d == 0 && input.ndim() > 0), Runtime,
      "index_select: a sparse gradient consists of rows: expected dim 0 of a tensor with dimensions: got dim {} of "
      "sizes {}",
      dim, format_ints(input.sizes()));
  TensorSpec spec = like(input);
  if (input.ndim() == 0)
    TG_CHECK(index.numel() == 1, Index, "index_select: a tensor without dimensions takes one index: got {}",
             index.numel());
  else
    spec.sizes[d] = index.numel();
  checked_numel(spec.sizes, "index_select");
  return spec;
}

TensorSpec index_add_shape(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source,
                           const Scalar& alpha) {
  int64_t d = check_vector_index(input, dim, index, "index_add");
  check_source(input, d, index, source, "index_add");
  product_factor("index_add", "alpha", alpha, input.dtype());
  return like(input);
}

TensorSpec index_copy_shape(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source) {
  TG_CHECK(index.dtype() == DType::int64, Runtime, "index_copy: Expected a long tensor for index: got {}",
           index.dtype());
  int64_t d = check_vector_index(input, dim, index, "index_copy");
  check_source(input, d, index, source, "index_copy", true);
  return like(input);
}

TensorSpec index_fill_shape(const Tensor& input, int64_t dim, const Tensor& index, const Operand& value) {
  TG_CHECK(index.dtype() == DType::int64, Index, "index_fill: Expected dtype int64 for index: got {}", index.dtype());
  check_vector_index(input, dim, index, "index_fill");
  TG_CHECK(value.tensor().ndim() == 0, Runtime, "index_fill: expected a number or a tensor without dimensions: got {}",
           format_ints(value.tensor().sizes()));
  if (value.tensor().is_wrapped_number()) check_number("index_fill", value.tensor().item(), input.dtype());
  return like(input);
}

TensorSpec take_shape(const Tensor& input, const Tensor& index) {
  TG_CHECK(index.dtype() == DType::int64, Runtime, "take: Expected a long tensor for index: got {}", index.dtype());
  return {DimVector(index.sizes()), input.dtype(), input.device(), {}};
}

TensorSpec put_shape(const Tensor& input, const Tensor& index, const Tensor& source, bool) {
  check_index_dtype(index, "put");
  check_same_dtype(input, source, "put");
  TG_CHECK(index.numel() == source.numel(), Runtime, "put: expected as many source elements as indices: got {} and {}",
           source.numel(), index.numel());
  return like(input);
}

TensorSpec embedding_shape(const Tensor& weight, const Tensor& indices, int64_t, bool, bool) {
  check_index_dtype(indices, "embedding");
  TG_CHECK(weight.ndim() == 2, Runtime, "embedding: expected a weight matrix: got sizes {}",
           format_ints(weight.sizes()));
  DimVector sizes(indices.sizes());
  sizes.push_back(weight.size(1));
  checked_numel(sizes, "embedding");
  return {sizes, weight.dtype(), weight.device(), {}};
}

TensorSpec embedding_backward_shape(const Tensor& grad_output, const Tensor& indices, int64_t num_weights, int64_t,
                                    bool) {
  check_index_dtype(indices, "embedding_backward");
  TG_CHECK(grad_output.ndim() == indices.ndim() + 1 && num_weights >= 0, Runtime,
           "embedding_backward: expected a gradient with one dimension more than the indices: got {} and {}",
           format_ints(grad_output.sizes()), format_ints(indices.sizes()));
  for (int d = 0; d < indices.ndim(); ++d)
    TG_CHECK(grad_output.size(d) == indices.size(d), Runtime,
             "embedding_backward: gradient and indices differ in size: {} and {}", format_ints(grad_output.sizes()),
             format_ints(indices.sizes()));
  return {DimVector{num_weights, grad_output.size(-1)}, grad_output.dtype(), grad_output.device(), {}};
}

}  // namespace tapegrad
