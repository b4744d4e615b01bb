// Gradients of inverses, determinants and solvers, for real and complex matrices. Written in tapegrad's own operators.
// Sources: Giles (2008), see decompose.h; G. H. Golub and V. Pereyra, The differentiation of pseudo-inverses and
// nonlinear least squares problems whose variables separate, SIAM J. Numer. Anal. 10 (1973).
#pragma once

#include <array>
#include <tuple>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

using GradPair = std::tuple<Tensor, Tensor>;

Tensor inverse_backward(const Tensor& grad, const Tensor& inverse);
Tensor det_backward(const Tensor& grad, const Tensor& det, const Tensor& A, const Tensor& LU, const Tensor& pivots);
Tensor slogdet_backward(const Tensor& grad_sign, const Tensor& grad_logabsdet, const Tensor& A, const Tensor& sign,
                        const Tensor& LU, const Tensor& pivots);
GradPair solve_backward(const Tensor& grad, const Tensor& X, const Tensor& A, IntSpan B_sizes, const Tensor& LU,
                        const Tensor& pivots, std::array<bool, 2> mask);
GradPair lu_solve_backward(const Tensor& grad, const Tensor& X, const Tensor& LU, const Tensor& pivots, IntSpan B_sizes,
                           bool adjoint, std::array<bool, 2> mask);
GradPair solve_triangular_backward(const Tensor& grad, const Tensor& X, const Tensor& A, IntSpan B_sizes, bool upper,
                                   bool unitriangular, std::array<bool, 2> mask);
GradPair lstsq_backward(const Tensor& grad, const Tensor& A, const Tensor& B, std::array<bool, 2> mask);
Tensor pinv_backward(const Tensor& grad, const Tensor& pinv, const Tensor& A);
Tensor matrix_exp_backward(const Tensor& grad, const Tensor& A);

}  // namespace tapegrad
