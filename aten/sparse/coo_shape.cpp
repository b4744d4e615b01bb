// Checks of the kernels on indices and values.
#include "tapegrad/aten/kernels_sparse.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad {

TensorSpec coo_mm_shape(const Tensor& indices, const Tensor& values, const Tensor& dense, int64_t rows) {
  const bool blocks = values.ndim() == 3;
  TG_CHECK(indices.ndim() == 2 && indices.size(0) == 2 && indices.dtype() == DType::int64 &&
               (values.ndim() == 1 || blocks) && values.size(0) == indices.size(1),
           Runtime, "sparse mm: expected indices (2, nnz) and values (nnz) or (nnz, height, width): got {} and {}",
           format_ints(indices.sizes()), format_ints(values.sizes()));
  TG_CHECK(dense.ndim() == 2 && rows >= 0 &&
               (!blocks || (values.numel() > 0 ? rows % values.size(1) == 0 && dense.size(0) % values.size(2) == 0
                                               : values.size(0) == 0)),
           Runtime, "sparse mm: expected a dense matrix: got {}", format_ints(dense.sizes()));
  TG_CHECK(values.dtype() == dense.dtype() && (dense.is_floating_point() || dense.is_complex()), Runtime,
           "sparse mm: expected two matrices of one floating or complex dtype: got {} and {}", values.dtype(),
           dense.dtype());
  return {{rows, dense.size(1)}, dense.dtype(), dense.device(), {}};
}

TensorSpec coo_solve_shape(const Tensor& indices, const Tensor& values, const Tensor& B, bool, bool) {
  TG_CHECK(indices.ndim() == 2 && indices.size(0) == 2 && indices.dtype() == DType::int64 && values.ndim() == 1 &&
               values.size(0) == indices.size(1),
           Runtime, "sparse triangular_solve: expected indices (2, nnz) and values (nnz): got {} and {}",
           format_ints(indices.sizes()), format_ints(values.sizes()));
  TG_CHECK(B.ndim() == 2 && values.dtype() == B.dtype() && (B.is_floating_point() || B.is_complex()), Runtime,
           "sparse triangular_solve: expected two matrices of one floating or complex dtype: got {} and {} of sizes {}",
           values.dtype(), B.dtype(), format_ints(B.sizes()));
  return {DimVector(B.sizes()), B.dtype(), B.device(), {}};
}

}  // namespace tapegrad
