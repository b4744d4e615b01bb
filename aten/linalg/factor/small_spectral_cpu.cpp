// The kernels of small_spectral.h. Loops run over whole vectors of fixed length, so that the compiler unrolls them;
// padding is filled with zeros. Every sum has a fixed order: the same bits on every thread.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/linalg/factor/small_spectral.h"
#include "tapegrad/aten/linalg/factor/tridiagonal_ql.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

template <class T>
inline constexpr int64_t kLanes = blocks::kVectorLanes<T>;

template <class T>
void axpy(int64_t first, int64_t padded, T factor, const T* x, T* y) {
  for (int64_t b = first; b < padded; b += kLanes<T>)
    for (int64_t l = 0; l < kLanes<T>; ++l) y[b + l] += factor * x[b + l];
}

template <class T>
T dot(int64_t first, int64_t padded, const T* x, const T* y) {
  T lane[kLanes<T>] = {};
  for (int64_t b = first; b < padded; b += kLanes<T>)
    for (int64_t l = 0; l < kLanes<T>; ++l) lane[l] += x[b + l] * y[b + l];
  for (int64_t width = kLanes<T> / 2; width > 0; width /= 2)
    for (int64_t l = 0; l < width; ++l) lane[l] += lane[l + width];
  return lane[0];
}

// What the reduction works on: columns of fixed distance, in vectors of 64 bytes.
template <class T>
struct alignas(64) Columns {
  T data[kSmallEigen * kSmallEigen];
  T* operator[](int64_t j) { return data + j * kSmallEigen; }
};

// The power of two that brings the largest size of an element to between 1 and 2; 0 if LAPACK should compute this
// matrix.
template <class T>
T scale_of(T largest) {
  constexpr double kLargest = sizeof(T) == 4 ? 1e30 : 1e250;
  if (!(largest > 1 / kLargest && largest < kLargest)) return T(0);
  return std::ldexp(T(1), -std::ilogb(largest));
}

// Sorts the first `n` numbers by `before`; stable.
template <class F>
void sort_few(int64_t n, int* order, F before) {
  for (int i = 0; i < n; ++i) {
    int j = i;
    for (; j > 0 && before(i, order[j - 1]); --j) order[j] = order[j - 1];
    order[j] = i;
  }
}

// The reflector I - tau u u^T that makes (alpha, u) a multiple of its first element, which is number `at`: alpha
// becomes that multiple. u holds zeros before and at `at`, and is scaled to have a one there. Returns tau.
template <class T>
T make_reflector(int64_t at, int64_t padded, T* u, T& alpha) {
  const int64_t first = at / kLanes<T> * kLanes<T>;
  const T below = dot(first, padded, u, u);
  // Squares this small have lost their digits, and the elements do not matter beside 1.
  if (below <= std::numeric_limits<T>::min() / std::numeric_limits<T>::epsilon()) return T(0);
  const T norm = std::sqrt(alpha * alpha + below), beta = alpha < T(0) ? norm : -norm;
  const T tau = (beta - alpha) / beta, scale = T(1) / (alpha - beta);
  for (int64_t b = first; b < padded; b += kLanes<T>)
    for (int64_t l = 0; l < kLanes<T>; ++l) u[b + l] *= scale;
  u[at] = T(1);
  alpha = beta;
  return tau;
}

// a = Q tridiag(d, e) Q^T; reflector k is left in column k of `v` with its factor in tau[k].
template <class T>
void tridiagonal(int64_t n, int64_t padded, Columns<T>& a, Columns<T>& v, T* tau, double* d, double* e) {
  alignas(64) T p[kSmallEigen];
  for (int64_t k = 0; k + 2 < n; ++k) {
    const T* x = a[k];
    T* u = v[k];
    const int64_t first = (k + 1) / kLanes<T> * kLanes<T>;  // the vector that holds row k + 1
    std::fill(u, u + padded, T(0));
    for (int64_t i = k + 2; i < n; ++i) u[i] = x[i];
    d[k] = x[k];
    T beta = x[k + 1];
    tau[k] = make_reflector(k + 1, padded, u, beta);
    e[k] = beta;
    if (tau[k] == T(0)) continue;
    // p = tau a u, then a -= u w^T + w u^T with w = p - tau / 2 (p . u) u.
    std::fill(p, p + padded, T(0));
    int64_t j = k + 1;
    for (; j + 4 <= n; j += 4) {
      const T f0 = tau[k] * u[j], f1 = tau[k] * u[j + 1], f2 = tau[k] * u[j + 2], f3 = tau[k] * u[j + 3];
      const T *c0 = a[j], *c1 = a[j + 1], *c2 = a[j + 2], *c3 = a[j + 3];
      for (int64_t b = first; b < padded; b += kLanes<T>)
        for (int64_t l = b; l < b + kLanes<T>; ++l) p[l] += (f0 * c0[l] + f1 * c1[l]) + (f2 * c2[l] + f3 * c3[l]);
    }
    for (; j < n; ++j) axpy(first, padded, tau[k] * u[j], a[j], p);
    // Rows up to k of these columns are not kept up to date; u is zero there.
    for (int64_t i = first; i <= k; ++i) p[i] = T(0);
    axpy(first, padded, -tau[k] * dot(first, padded, p, u) / T(2), u, p);
    for (j = k + 1; j < n; ++j) {
      const T f = -p[j], g = -u[j];
      T* column = a[j];
      for (int64_t b = first; b < padded; b += kLanes<T>)
        for (int64_t l = b; l < b + kLanes<T>; ++l) column[l] += f * u[l] + g * p[l];
    }
  }
  if (n >= 2) d[n - 2] = a[n - 2][n - 2], e[n - 2] = a[n - 2][n - 1];
  d[n - 1] = a[n - 1][n - 1];
}

// The first columns of the product of the reflectors, of which number k begins at row k + shift.
template <class T>
void product_of_reflectors(int64_t columns, int64_t padded, int64_t count, int64_t shift, Columns<T>& v, const T* tau,
                           Columns<T>& q) {
  for (int64_t j = 0; j < columns; ++j) {
    std::fill(q[j], q[j] + padded, T(0));
    q[j][j] = T(1);
  }
  for (int64_t k = count - 1; k >= 0; --k) {
    if (tau[k] == T(0)) continue;
    const int64_t first = (k + shift) / kLanes<T> * kLanes<T>;
    for (int64_t j = k + shift; j < columns; ++j)
      axpy(first, padded, -tau[k] * dot(first, padded, v[k], q[j]), v[k], q[j]);
  }
}

// Eigenvalues of tridiag(d, e) into d; the columns of q, unless it is null, take part in the rotations.
template <class T>
bool implicit_ql(int64_t n, int64_t padded, double* d, double* e, Columns<T>* q) {
  constexpr double kEps = std::numeric_limits<T>::epsilon() / 2;
  constexpr int kMost = 40;  // steps for one eigenvalue
  e[n - 1] = 0;
  for (int64_t l = 0; l < n; ++l)
    for (int step = 0;; ++step) {
      const int64_t m = ql::end_of_part(l, n, d, e, kEps);
      if (m == l) break;
      if (step == kMost) return false;
      ql::step(l, m, d, e, [=](int64_t i, double c, double s) {
        if (q == nullptr) return;
        const T cs = static_cast<T>(c), sn = static_cast<T>(s);
        T *x = (*q)[i], *y = (*q)[i + 1];
        for (int64_t k = 0; k < padded; k += kLanes<T>)
          for (int64_t t = k; t < k + kLanes<T>; ++t) {
            const T left = x[t], right = y[t];
            y[t] = sn * left + cs * right;
            x[t] = cs * left - sn * right;
          }
      });
    }
  return true;
}

template <class T>
bool eigh(char uplo, int64_t n, const T* from, T* values, T* vectors) {
  Columns<T> a, v, q;
  const int64_t padded = (n + kLanes<T> - 1) / kLanes<T> * kLanes<T>;
  T largest = T(0);
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = n; i < padded; ++i) a[j][i] = T(0);
    for (int64_t i = 0; i <= j; ++i) {
      a[j][i] = a[i][j] = uplo == 'U' ? from[i + j * n] : from[j + i * n];
      largest = std::max(largest, std::abs(a[j][i]));
    }
  }
  const T scale = scale_of(largest);
  if (scale == T(0)) return false;
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < padded; ++i) a[j][i] *= scale;
  double d[kSmallEigen], e[kSmallEigen];
  T tau[kSmallEigen];
  tridiagonal(n, padded, a, v, tau, d, e);
  if (vectors != nullptr) product_of_reflectors(n, padded, n - 2, 1, v, tau, q);
  if (!implicit_ql(n, padded, d, e, vectors != nullptr ? &q : nullptr)) return false;
  int order[kSmallEigen] = {};
  sort_few(n, order, [&](int x, int y) { return d[x] < d[y]; });
  for (int64_t j = 0; j < n; ++j) {
    values[j] = static_cast<T>(d[order[j]] / static_cast<double>(scale));
    if (vectors != nullptr) std::copy(q[order[j]], q[order[j]] + n, vectors + j * n);
  }
  return true;
}

template <class T>
bool qr(int64_t m, int64_t n, const T* from, int64_t columns, T* to, int64_t r_rows, T* r) {
  const int64_t padded = (m + kLanes<T> - 1) / kLanes<T> * kLanes<T>, k = std::min(m, n);
  T largest = T(0);
  for (int64_t i = 0; i < m * n; ++i) {
    const T size = std::abs(from[i]);
    if (!(size <= std::numeric_limits<T>::max())) return false;
    largest = std::max(largest, size);
  }
  const T scale = scale_of(largest);
  if (scale == T(0)) return false;
  Columns<T> a, v, q;
  T tau[kSmallEigen];
  for (int64_t j = 0; j < n; ++j) {
    for (int64_t i = 0; i < m; ++i) a[j][i] = from[i + j * m] * scale;
    std::fill(a[j] + m, a[j] + padded, T(0));
  }
  for (int64_t at = 0; at < k; ++at) {
    T* u = v[at];
    std::fill(u, u + padded, T(0));
    std::copy(a[at] + at + 1, a[at] + m, u + at + 1);
    tau[at] = make_reflector(at, padded, u, a[at][at]);
    if (tau[at] == T(0)) continue;
    const int64_t first = at / kLanes<T> * kLanes<T>;
    for (int64_t j = at + 1; j < n; ++j) axpy(first, padded, -tau[at] * dot(first, padded, u, a[j]), u, a[j]);
  }
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < r_rows; ++i) r[i + j * r_rows] = i <= j ? a[j][i] / scale : T(0);
  if (columns > 0) product_of_reflectors(columns, padded, k, 0, v, tau, q);
  for (int64_t j = 0; j < columns; ++j) std::copy(q[j], q[j] + m, to + j * m);
  return true;
}

// H numbers side by side: one for each pair of columns. (Loops over them come out element by element.)
template <class T, int H>
struct Wide {
  typedef T Type __attribute__((vector_size(H * sizeof(T))));
};

// The columns of a matrix in pairs (x of row r, y of row r) of one round of a tournament; H pairs. The second halves
// of x and y only take what whole vectors carry too far.
template <class T, int H>
struct alignas(64) Pairs {
  using V = typename Wide<T, H>::Type;
  static constexpr int kY = 2 * H;
  T data[kSmallSvd][4 * H];

  T& at(int64_t r, int64_t column, int pairs) {
    return column < pairs ? data[r][column] : data[r][kY + column - pairs];
  }
  void load_row(int64_t r, V& x, V& y) const { load(data[r], x), load(data[r] + kY, y); }

  // Rotates each pair and moves the columns to their places of the next round: the first one stays, the others go
  // round in a circle.
  void rotate(int64_t rows, int pairs, const T* cosines, const T* sines) {
    V c, s, a, b;
    load(cosines, c);
    load(sines, s);
    for (int64_t r = 0; r < rows; ++r) {
      T* row = data[r];
      load_row(r, a, b);
      const V left = c * a - s * b, right = s * a + c * b;
      std::memcpy(row + 1, &left, sizeof(V));
      std::memcpy(row + kY - 1, &right, sizeof(V));
      row[0] = left[0];
      row[kY + pairs - 1] = pairs > 1 ? left[pairs - 1] : right[0];
      row[1] = pairs > 1 ? right[0] : T(0);
    }
  }

 private:
  static void load(const T* from, V& to) { std::memcpy(&to, from, sizeof(V)); }
};

template <class T, int H>
bool svd(int64_t m, int64_t n, const T* from, int64_t row, int64_t col, T* u, int64_t u_row, int64_t u_col, T* values,
         T* v, int64_t v_row, int64_t v_col) {
  constexpr int kSweeps = 30;
  const int pairs = static_cast<int>((n + 1) / 2);
  T largest = T(0);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) largest = std::max(largest, std::abs(from[i * row + j * col]));
  const T scale = scale_of(largest);
  if (scale == T(0)) return false;

  Pairs<T, H> a, w;  // a = from w: becomes u diag(s), and w becomes v
  std::fill(a.data[0], a.data[0] + m * 4 * H, T(0));
  std::fill(w.data[0], w.data[0] + n * 4 * H, T(0));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) a.at(i, j, pairs) = from[i * row + j * col] * scale;
  for (int64_t j = 0; j < n; ++j) w.at(j, j, pairs) = T(1);

  const T tolerance = std::numeric_limits<T>::epsilon() * std::sqrt(static_cast<T>(m));
  const int rounds = pairs == 1 ? 1 : 2 * pairs - 1;  // after them all columns are back where they were
  bool rotated = true;
  for (int sweep = 0; rotated; ++sweep) {
    if (sweep == kSweeps) return false;
    T worst = T(0);
    for (int round = 0; round < rounds; ++round) {
      typename Wide<T, H>::Type x, y, squares_x{}, squares_y{}, products{};
      for (int64_t r = 0; r < m; ++r) {
        a.load_row(r, x, y);
        squares_x += x * x;
        squares_y += y * y;
        products += x * y;
      }
      alignas(64) T xx[H], yy[H], xy[H], c[H], s[H], off[H];
      std::memcpy(xx, &squares_x, sizeof xx);
      std::memcpy(yy, &squares_y, sizeof yy);
      std::memcpy(xy, &products, sizeof xy);
      for (int i = 0; i < H; ++i) {
        const T lengths = std::sqrt(xx[i]) * std::sqrt(yy[i]);
        off[i] = std::abs(xy[i]) > tolerance * lengths ? T(1) : T(0);
        // The tangent of the smaller angle.
        const T zeta = (yy[i] - xx[i]) / (xy[i] == T(0) ? T(1) : 2 * xy[i]);
        const T t = off[i] * std::copysign(T(1), zeta) / (std::abs(zeta) + std::sqrt(1 + zeta * zeta));
        c[i] = 1 / std::sqrt(1 + t * t);
        s[i] = c[i] * t;
      }
      for (int i = 0; i < H; ++i) worst = std::max(worst, off[i]);
      a.rotate(m, pairs, c, s);
      w.rotate(n, pairs, c, s);
    }
    rotated = worst != T(0);
  }

  T lengths[2 * H] = {};
  for (int64_t j = 0; j < n; ++j) {
    T sum = T(0);
    for (int64_t i = 0; i < m; ++i) sum += a.at(i, j, pairs) * a.at(i, j, pairs);
    lengths[j] = std::sqrt(sum);
  }
  int order[2 * H] = {};
  sort_few(n, order, [&](int x, int y) { return lengths[x] > lengths[y]; });
  // Squares of far smaller columns lose digits, and a column of zeros has no direction.
  if (!(lengths[order[n - 1]] > lengths[order[0]] * std::numeric_limits<T>::epsilon())) return false;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t k = order[j];
    values[j] = lengths[k] / scale;
    for (int64_t i = 0; i < m; ++i) u[i * u_row + j * u_col] = a.at(i, k, pairs) / lengths[k];
    for (int64_t i = 0; i < n; ++i) v[j * v_row + i * v_col] = w.at(i, k, pairs);
  }
  return true;
}

// a is m x n with m >= n; for `transposed` it is the transpose of what the caller has, whose u and vt change places.
template <class T>
bool svd_of(int64_t m, int64_t n, const T* a, T* u, T* s, T* vt, int64_t transposed) {
  const int64_t row = transposed != 0 ? n : 1, col = transposed != 0 ? 1 : m;
  // Element (i, j) of the left factor and (j, i) of the right one, where the caller has them.
  T *left = transposed != 0 ? vt : u, *right = transposed != 0 ? u : vt;
  const int64_t left_row = transposed != 0 ? n : 1, left_col = transposed != 0 ? 1 : m;
  const int64_t right_row = transposed != 0 ? n : 1, right_col = transposed != 0 ? 1 : n;
  auto run = [&]<int H>() {
    return svd<T, H>(m, n, a, row, col, left, left_row, left_col, s, right, right_row, right_col);
  };
  return n <= 8 ? run.template operator()<4>() : n <= 16 ? run.template operator()<8>() : run.template operator()<16>();
}

}  // namespace

bool small_eigh_kernel(char uplo, int64_t n, const float* a, float* values, float* vectors);
bool small_eigh_kernel(char uplo, int64_t n, const double* a, double* values, double* vectors);
bool small_svd_kernel(int64_t m, int64_t n, const float* a, float* u, float* s, float* vt, int64_t transposed);
bool small_qr_kernel(int64_t m, int64_t n, const float* a, int64_t columns, float* q, int64_t rows, float* r);
bool small_svd_kernel(int64_t m, int64_t n, const double* a, double* u, double* s, double* vt, int64_t transposed);
bool small_qr_kernel(int64_t m, int64_t n, const double* a, int64_t columns, double* q, int64_t rows, double* r);

bool small_eigh_kernel(char uplo, int64_t n, const float* a, float* values, float* vectors) {
  return eigh(uplo, n, a, values, vectors);
}
bool small_eigh_kernel(char uplo, int64_t n, const double* a, double* values, double* vectors) {
  return eigh(uplo, n, a, values, vectors);
}
bool small_svd_kernel(int64_t m, int64_t n, const float* a, float* u, float* s, float* vt, int64_t transposed) {
  return svd_of(m, n, a, u, s, vt, transposed);
}
bool small_svd_kernel(int64_t m, int64_t n, const double* a, double* u, double* s, double* vt, int64_t transposed) {
  return svd_of(m, n, a, u, s, vt, transposed);
}

bool small_qr_kernel(int64_t m, int64_t n, const float* a, int64_t columns, float* q, int64_t rows, float* r) {
  return qr(m, n, a, columns, q, rows, r);
}
bool small_qr_kernel(int64_t m, int64_t n, const double* a, int64_t columns, double* q, int64_t rows, double* r) {
  return qr(m, n, a, columns, q, rows, r);
}

}  // namespace tapegrad::cpu::TG_ISA
