// Implicit QL steps with Wilkinson's shift on a symmetric tridiagonal matrix, of diagonal d and of e beside it (Golub
// and Van Loan, Matrix Computations, 8.3; Dubrulle 1970). The scalars are doubles for matrices of any type: a step is a
// chain of them. For the kernels of host (small_spectral_cpu.cpp) and device (cuda/linalg/block_eigen.h). Nothing here
// is visible to the linker, since the host's are compiled once per instruction set: `rotate` is a lambda.
#pragma once

#include <cmath>
#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad::ql {

// The last row of the unreduced block that begins with row l; l itself is an eigenvalue then. `eps` is that of the
// matrix's type.
TG_HD static inline int64_t end_of_part(int64_t l, int64_t n, const double* d, const double* e, double eps) {
  int64_t m = l;
  for (; m < n - 1; ++m)
    if (e[m] * e[m] <= eps * eps * (std::fabs(d[m] * d[m + 1]) + eps * eps)) break;
  return m;
}

// One step of the part [l, m]: rotate(i, cosine, sine) is called for the columns i and i + 1, from m - 1 down to the
// number that is returned.
template <class F>
TG_HD inline int64_t step(int64_t l, int64_t m, double* d, double* e, F&& rotate) {
  double g = (d[l + 1] - d[l]) / (2 * e[l]);
  double r = std::sqrt(g * g + 1);
  g = d[m] - d[l] + e[l] / (g + (g < 0 ? -r : r));
  double s = 1, c = 1, p = 0;
  for (int64_t i = m - 1; i >= l; --i) {
    const double f = s * e[i], b = c * e[i];
    r = std::sqrt(f * f + g * g);
    e[i + 1] = r;
    if (r == 0) {
      d[i + 1] -= p;
      e[m] = 0;
      return i + 1;
    }
    const double inverse = 1 / r;
    s = f * inverse;
    c = g * inverse;
    g = d[i + 1] - p;
    r = (d[i] - g) * s + 2 * c * b;
    p = s * r;
    d[i + 1] = g + p;
    g = c * r - b;
    rotate(i, c, s);
  }
  d[l] -= p;
  e[l] = g;
  e[m] = 0;
  return l;
}

}  // namespace tapegrad::ql
