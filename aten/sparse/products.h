// Products with sparse matrices, powers, and what is made or written, beside operators.h, which all generated code
// includes: this is included by that of families with rows of the kind (aten/gen/__main__.py).
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// The gradient of the values of _coo_solve; autograd/formulas/linalg/sparse.cpp.
Tensor coo_solve_values_grad(const Tensor& grad, const Tensor& indices, const Tensor& values, const Tensor& result,
                             bool upper, bool unitriangular);

namespace sparse {

// Without entries; of values that are not set.
TG_COLD Tensor zeros_like(const Tensor& input, std::optional<DType> dtype, std::optional<Device> device,
                          std::optional<MemoryFormat> memory_format);
TG_COLD Tensor empty_like(const Tensor& input, std::optional<DType> dtype, std::optional<Device> device,
                          std::optional<MemoryFormat> memory_format);
// Of any sizes in the input's layout, without entries.
TG_COLD Tensor new_zeros(const Tensor& input, IntSpan size, std::optional<DType> dtype, std::optional<Device> device);
inline Tensor new_empty(const Tensor& input, IntSpan size, std::optional<DType> dtype, std::optional<Device> device) {
  return sparse::new_zeros(input, size, dtype, device);
}
TG_COLD Tensor pow(const Operand& input, const Operand& exponent);
// Takes over the entries; those of a compressed tensor have its form, sizes and number, and go to its memory where its
// places stay.
TG_COLD const Tensor& copy_(const Tensor& self, const Operand& src, bool non_blocking);
// Writes a result to an `out`, of which one at least or an operand is sparse: in the form that it has.
TG_API TG_COLD void write_to(const char* op, const Tensor& out, const Tensor& result);
TG_COLD Tensor mv(const Tensor& input, const Tensor& vec);
TG_COLD Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha);
TG_COLD Tensor addmv(const Tensor& input, const Tensor& mat, const Tensor& vec, const Scalar& beta,
                     const Scalar& alpha);
TG_COLD std::tuple<Tensor, Tensor> triangular_solve(const Tensor& input, const Tensor& A, bool upper, bool transpose,
                                                    bool unitriangular);
TG_COLD Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias);

}  // namespace sparse
}  // namespace tapegrad
