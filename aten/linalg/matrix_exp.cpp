// The exponential of a matrix by Padé approximants with scaling and squaring (pade.h).
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_solve.h"
#include "tapegrad/aten/kernels_solve.h"
#include "tapegrad/aten/linalg/factor/parallel_factor.h"
#include "tapegrad/aten/linalg/matrices.h"
#include "tapegrad/aten/linalg/pade.h"

namespace tapegrad::cpu {
namespace {

template <class T>
class Exponential {
 public:
  explicit Exponential(int64_t n) : n_(n) {}

  void run(T* x) {
    using R = lapack::real_t<T>;
    double norm = one_norm(x);
    if (!std::isfinite(norm)) {
      std::fill(x, x + n_ * n_, T(std::numeric_limits<R>::quiet_NaN()));
      return;
    }
    const std::span<const pade::Degree> degrees = pade::degrees<R>();
    const pade::Degree* chosen = &degrees.back();
    for (const pade::Degree& d : degrees)
      if (norm <= d.theta) {
        chosen = &d;
        break;
      }
    int squarings = norm > chosen->theta ? static_cast<int>(std::ceil(std::log2(norm / chosen->theta))) : 0;
    if (squarings > 0) {
      for (int64_t i = 0; i < n_ * n_; ++i) x[i] *= static_cast<R>(std::ldexp(1.0, -squarings));
    }
    approximate(*chosen, x);
    std::vector<T> square = matrix();
    for (int s = 0; s < squarings; ++s) {
      multiply(x, x, square.data());
      std::copy(square.begin(), square.end(), x);
    }
  }

 private:
  std::vector<T> matrix() const { return std::vector<T>(static_cast<size_t>(n_ * n_)); }

  double one_norm(const T* x) const {
    double norm = 0;
    for (int64_t j = 0; j < n_; ++j) {
      double sum = 0;
      for (int64_t i = 0; i < n_; ++i) sum += static_cast<double>(std::abs(x[i + j * n_]));
      if (!(sum <= norm)) norm = sum;  // NaN, too
      if (sum != sum) return sum;
    }
    return norm;
  }

  void multiply(const T* a, const T* b, T* c) const {
    double n = static_cast<double>(n_);
    column_blocks(n_, 2 * n * n, [&](int64_t first, int64_t last) {
      lapack::gemm('N', 'N', n_, last - first, n_, T(1), a, n_, b + first * n_, n_, T(0), c + first * n_, n_);
    });
  }

  // y += factor * x; of the identity where x is null.
  void add(double factor, const T* x, std::vector<T>& y) const {
    using R = lapack::real_t<T>;
    if (x) {
      for (size_t i = 0; i < y.size(); ++i) y[i] += static_cast<R>(factor) * x[i];
    } else {
      for (int64_t i = 0; i < n_; ++i) y[static_cast<size_t>(i + i * n_)] += T(static_cast<R>(factor));
    }
  }

  // x = (V - U)^-1 (V + U): even powers in V, odd ones in U.
  void approximate(const pade::Degree& d, T* x) const {
    std::vector<std::vector<T>> even(1, matrix());  // x^2, x^4, ...
    multiply(x, x, even[0].data());
    size_t powers = d.degree == 13 ? 3 : static_cast<size_t>(d.degree / 2);
    while (even.size() < powers) {
      std::vector<T> next = matrix();
      multiply(even[0].data(), even.back().data(), next.data());
      even.push_back(std::move(next));
    }
    std::vector<T> u = matrix(), v = matrix(), odd = matrix();
    if (d.degree == 13) {
      std::vector<T> high = matrix();
      for (size_t p = 0; p < 3; ++p) add(d.b[9 + 2 * p], even[p].data(), high);
      multiply(even[2].data(), high.data(), odd.data());
      std::fill(high.begin(), high.end(), T(0));
      for (size_t p = 0; p < 3; ++p) add(d.b[8 + 2 * p], even[p].data(), high);
      multiply(even[2].data(), high.data(), v.data());
    }
    add(d.b[1], nullptr, odd);
    add(d.b[0], nullptr, v);
    for (size_t p = 0; p < powers; ++p) {
      add(d.b[3 + 2 * p], even[p].data(), odd);
      add(d.b[2 + 2 * p], even[p].data(), v);
    }
    multiply(x, odd.data(), u.data());
    std::vector<int> pivots(static_cast<size_t>(n_));
    for (size_t i = 0; i < u.size(); ++i) {
      x[i] = v[i] + u[i];
      v[i] -= u[i];
    }
    parallel_getrf(n_, n_, v.data(), n_, pivots.data());
    parallel_getrs('N', n_, n_, v.data(), n_, pivots.data(), x, n_);
  }

  int64_t n_;
};

}  // namespace

void matrix_exp(const Tensor& A, const Tensor& out) {
  if (is_half(A.dtype())) {
    raw::copy_(out, raw::linalg_matrix_exp(raw::to(A, DType::float32)));
    return;
  }
  dispatch_lapack(A.dtype(), [&]<class T>() {
    Matrices<const T> a(A, 2);
    Matrices<T> result(out, 2);
    double n = static_cast<double>(a.rows);
    for_each_matrix(a.count, 20 * n * n * n + 2000, [&](int64_t i) {
      if (a.rows == 0) return;
      load_columns(a[i], a.row, a.col, a.rows, a.cols, result[i], a.rows);
      Exponential<T>(a.rows).run(result[i]);
    });
  });
}

}  // namespace tapegrad::cpu
