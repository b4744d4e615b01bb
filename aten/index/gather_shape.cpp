// Checks and shapes of gather and the scatter operators: the index has as many dimensions as the tensor it points
// into and is nowhere larger, except along dim.
#include "tapegrad/aten/iterate/number.h"
#include "tapegrad/aten/kernels_index.h"

namespace tapegrad {

namespace {

void check_index(const Tensor& input, int64_t dim, const Tensor& index, const char* op) {
  const bool bytes_too = op == std::string_view("gather");
  TG_CHECK(
      index.dtype() == DType::int64 || index.dtype() == DType::int32 || (bytes_too && index.dtype() == DType::uint8),
      Runtime, "{}: expected an index of dtype int64 or int32: got {}", op, index.dtype());
  const int64_t d = wrap_dim(dim, input.ndim(), op);
  if (index.numel() == 0) return;
  TG_CHECK(std::max(index.ndim(), 1) == std::max(input.ndim(), 1), Runtime,
           "{}: expected an index with as many dimensions as the input: got sizes {} for {}", op,
           format_ints(index.sizes()), format_ints(input.sizes()));
  for (int k = 0; k < index.ndim() && k < input.ndim(); ++k)
    TG_CHECK(k == d || index.impl()->size(k) <= input.impl()->size(k), Runtime,
             "{}: the index of sizes {} is larger than the input of sizes {} apart from dimension {}", op,
             format_ints(index.sizes()), format_ints(input.sizes()), d);
}

void check_source(const Tensor& input, const Tensor& index, const Tensor& src, const char* op) {
  TG_CHECK(src.dtype() == input.dtype(), Runtime, "{}: expected src to be {} as the input is: got {}", op,
           input.dtype(), src.dtype());
  if (index.numel() == 0) return;
  TG_CHECK(std::max(index.ndim(), 1) == std::max(src.ndim(), 1), Runtime,
           "{}: expected src with as many dimensions as the index: got sizes {} and {}", op, format_ints(src.sizes()),
           format_ints(index.sizes()));
  // A number counts as one element in one dimension.
  for (int k = 0; k < index.ndim(); ++k)
    TG_CHECK(index.impl()->size(k) <= (src.ndim() ? src.impl()->size(k) : 1), Runtime,
             "{}: the index of sizes {} is larger than src of sizes {}", op, format_ints(index.sizes()),
             format_ints(src.sizes()));
  TG_CHECK(src.numel() > 0, Runtime, "{}: src of sizes {} has no element for the index of sizes {}", op,
           format_ints(src.sizes()), format_ints(index.sizes()));
}

TensorSpec like(const Tensor& t) { return {DimVector(t.sizes()), t.dtype(), t.device(), {}}; }

void check_reduce(std::string_view reduce) {
  TG_CHECK(reduce == "add" || reduce == "multiply", Runtime, "scatter: reduce is \"add\" or \"multiply\": got \"{}\"",
           fmt::string_view(reduce.data(), reduce.size()));
}

}  // namespace

TensorSpec gather_shape(const Tensor& input, int64_t dim, const Tensor& index, bool) {
  check_index(input, dim, index, "gather");
  return {DimVector(index.sizes()), input.dtype(), input.device(), {}};
}

TensorSpec scatter_src_shape(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src) {
  check_index(input, dim, index, "scatter");
  check_source(input, index, src, "scatter");
  return like(input);
}

TensorSpec scatter_value_shape(const Tensor& input, int64_t dim, const Tensor& index, const Scalar& value) {
  check_index(input, dim, index, "scatter");
  check_number("scatter", value, input.dtype());
  return like(input);
}

TensorSpec scatter_src_reduce_shape(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src,
                                    std::string_view reduce) {
  check_reduce(reduce);
  return scatter_src_shape(input, dim, index, src);
}

TensorSpec scatter_value_reduce_shape(const Tensor& input, int64_t dim, const Tensor& index, const Scalar& value,
                                      std::string_view reduce) {
  check_reduce(reduce);
  return scatter_value_shape(input, dim, index, value);
}

TensorSpec scatter_add_shape(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src) {
  check_index(input, dim, index, "scatter_add");
  check_source(input, index, src, "scatter_add");
  return like(input);
}

TensorSpec scatter_reduce_shape(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src,
                                std::string_view reduce, bool) {
  TG_CHECK(reduce == "sum" || reduce == "prod" || reduce == "mean" || reduce == "amax" || reduce == "amin", Runtime,
           "scatter_reduce: reduce is sum, prod, mean, amax or amin: got {}",
           fmt::string_view(reduce.data(), reduce.size()));
  TG_CHECK(!is_complex(input.dtype()) || (reduce != "amax" && reduce != "amin"), NotImplemented,
           "scatter_reduce: complex numbers have no order");
  check_index(input, dim, index, "scatter_reduce");
  check_source(input, index, src, "scatter_reduce");
  return like(input);
}

}  // namespace tapegrad
