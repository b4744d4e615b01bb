#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_index.h"

namespace tapegrad {

namespace {
TensorSpec triangle_spec(const Tensor& input, const char* op) {
  TG_CHECK(input.ndim() >= 2, Runtime, "{}: expected at least 2 dimensions: got {}", op, format_ints(input.sizes()));
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}
}  // namespace

TensorSpec tril_shape(const Tensor& input, int64_t) { return triangle_spec(input, "tril"); }
TensorSpec triu_shape(const Tensor& input, int64_t) { return triangle_spec(input, "triu"); }

TensorSpec diag_embed_shape(const Tensor& input, int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t ndim = input.ndim() + 1;
  TG_CHECK(input.ndim() > 0, Runtime, "diag_embed: expected at least 1 dimension");
  const int64_t a = wrap_dim(dim1, ndim, "diag_embed"), b = wrap_dim(dim2, ndim, "diag_embed");
  TG_CHECK(a != b, Runtime, "diag_embed: the two dimensions must differ: got {} and {}", dim1, dim2);
  int64_t size;
  const int64_t length = offset < 0 ? -std::max(offset, -INT64_MAX) : offset;
  TG_CHECK(!__builtin_add_overflow(input.size(-1), length, &size), Runtime,
           "diag_embed: the offset is out of range: got {}", offset);
  DimVector sizes(input.sizes());
  sizes.erase(sizes.size() - 1);
  sizes.insert(static_cast<size_t>(std::min(a, b)), size);
  sizes.insert(static_cast<size_t>(std::max(a, b)), size);
  return {sizes, input.dtype(), input.device(), {}};
}

namespace cpu {

void diag_embed_cpu(const Tensor& input, int64_t offset, int64_t dim1, int64_t dim2, const Tensor& out) {
  raw::fill_(out, 0);
  raw::copy_(raw::diagonal(out, offset, dim1, dim2), input);
}

}  // namespace cpu

}  // namespace tapegrad
