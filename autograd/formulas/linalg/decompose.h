// Gradients of the factorisations, for real and complex matrices. Written in tapegrad's own operators. Sources: M. B.
// Giles, An extended collection of matrix derivative results for forward and reverse mode algorithmic differentiation
// (2008); S. F. Walter and L. Lehmann, Algorithmic differentiation of linear algebra functions with application in
// optimum experimental design (2010); J. Townsend, Differentiating the singular value decomposition (2016); I. Murray,
// Differentiation of the Cholesky decomposition (2016). Undefined gradients are left out of the sums, so that
// eigenvalues alone may be differentiated where vectors are not unique.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// matmul(a, b) of adjoints, spelled as in the papers: a^H b and a b^H.
Tensor adjoint_times(const Tensor& a, const Tensor& b);
Tensor times_adjoint(const Tensor& a, const Tensor& b);

Tensor cholesky_backward(const Tensor& grad, const Tensor& L, bool upper);
Tensor lu_factor_backward(const Tensor& grad, const Tensor& LU, const Tensor& pivots);
Tensor qr_backward(const Tensor& grad_Q, const Tensor& grad_R, const Tensor& Q, const Tensor& R, std::string_view mode);
Tensor svd_backward(const Tensor& grad_U, const Tensor& grad_S, const Tensor& grad_Vh, const Tensor& U, const Tensor& S,
                    const Tensor& Vh);
Tensor eigh_backward(const Tensor& grad_L, const Tensor& grad_V, const Tensor& L, const Tensor& V);
Tensor eig_backward(const Tensor& grad_L, const Tensor& grad_V, const Tensor& L, const Tensor& V, DType dtype);
// Raises NotImplemented: for operators whose derivative is not implemented.
[[noreturn]] Tensor no_derivative(const char* op);

}  // namespace tapegrad
