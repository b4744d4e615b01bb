// The exponential of a matrix by Padé approximants with scaling and squaring: N. J. Higham, The scaling and squaring
// method for the matrix exponential revisited, SIAM J. Matrix Anal. Appl. 26 (2005). Bounds and coefficients are those
// of its tables 2.3 and 10.4.
#include "tapegrad/aten/kernels_solve.h"
#include "tapegrad/aten/linalg/matrices.h"
#include "tapegrad/aten/linalg/parallel_factor.h"

namespace tapegrad::cpu {
namespace {

constexpr double kB3[] = {120, 60, 12, 1};
constexpr double kB5[] = {30240, 15120, 3360, 420, 30, 1};
constexpr double kB7[] = {17297280, 8648640, 1995840, 277200, 25200, 1512, 56, 1};
constexpr double kB9[] = {17643225600., 8821612800., 2075673600, 302702400, 30270240, 2162160, 110880, 3960, 90, 1};
constexpr double kB13[] = {64764752532480000.,
                           32382376266240000.,
                           7771770303897600.,
                           1187353796428800.,
                           129060195264000.,
                           10559470521600.,
                           670442572800.,
                           33522128640.,
                           1323241920,
                           40840800,
                           960960,
                           16380,
                           182,
                           1};

struct Degree {
  int degree;
  double theta;  // the largest 1-norm for which the approximant is exact to rounding
  const double* b;
};
constexpr Degree kDouble[] = {{3, 1.495585217958292e-2, kB3},
                              {5, 2.539398330063230e-1, kB5},
                              {7, 9.504178996162932e-1, kB7},
                              {9, 2.097847961257068, kB9},
                              {13, 5.371920351148152, kB13}};
constexpr Degree kSingle[] = {{3, 4.258730016922831e-1, kB3}, {5, 1.880152677804762, kB5}, {7, 3.925724783138660, kB7}};

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
    std::span<const Degree> degrees = std::is_same_v<R, float> ? std::span<const Degree>(kSingle) : kDouble;
    const Degree* chosen = &degrees.back();
    for (const Degree& d : degrees)
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
  void approximate(const Degree& d, T* x) const {
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
