// Products with sparse matrices, beside operators.h: included by the generated code of the rows of linalg.toml alone.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::sparse {

TG_COLD Tensor mv(const Tensor& input, const Tensor& vec);
TG_COLD Tensor addmm(const Tensor& input, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha);
TG_COLD Tensor linear(const Tensor& input, const Tensor& weight, const Tensor& bias);

}  // namespace tapegrad::sparse
