// Eigenvalues and eigenvectors of general matrices: by the library if it accepts them, else a block of threads per
// matrix, from a Schur form (block_schur.h). Conventions are LAPACK's: vectors have length 1, the largest element of a
// complex one is real, and eigenvalues of real matrices come in conjugate pairs, of positive imaginary part first.
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/linalg/block_schur.h"
#include "tapegrad/cuda/linalg/spectral.h"

namespace tapegrad::cuda {
namespace {

template <class T>
using Complex = std::complex<real_t<T>>;

template <class T>
struct EigArgs {
  MatrixBatch<T> a;
  bool with_vectors;
  MatrixBatch<Complex<T>> vectors;  // by columns of leading size `ld`
  int64_t ld;
  Complex<T>* values;  // n per matrix, dense
  int* infos;
  // Of each block: a matrix, two with vectors, and 2 n elements; a row, with vectors a matrix more; n numbers.
  T* matrices;
  Complex<T>* complexes;
  int64_t* orders;
};
TG_HD inline int64_t matrix_elements(int64_t n, bool with_vectors) { return (with_vectors ? 2 * n : n) * n + 2 * n; }
TG_HD inline int64_t complex_elements(int64_t n, bool with_vectors) { return with_vectors ? n * n + n : n; }

template <class R>
TG_DEVICE std::complex<R> product(R a, const std::complex<R>& x) {
  return times(a, x);
}
template <class R>
TG_DEVICE std::complex<R> product(const std::complex<R>& a, const std::complex<R>& x) {
  return math::mul(a, x);
}
template <class T>
TG_DEVICE bool begins_pair(const T* t, int64_t n, int64_t i) {
  return !is_complex_type<T> && i + 1 < n && real_part(t[i + 1 + i * n]) != 0;
}

// The diagonal of a Schur form, and the eigenvalues of its blocks.
template <class T>
TG_DEVICE Complex<T> eigenvalue_of(const T* t, int64_t n, int64_t i) {
  using R = real_t<T>;
  const T x = t[i + i * n];
  const bool first = begins_pair(t, n, i);
  if (!first && !(i > 0 && begins_pair(t, n, i - 1))) return Complex<T>(real_part(x), imag_part(x));
  const int64_t j = first ? i : i - 1;
  const R im = std::sqrt(math::abs(t[j + (j + 1) * n])) * std::sqrt(math::abs(t[j + 1 + j * n]));
  return Complex<T>(real_part(x), first ? im : -im);
}

// y = m^-1 b for elements up to about 1; a second pivot smaller than `least` is taken for `least`.
template <class C, class R>
TG_DEVICE void solve_pair(const C (&m)[2][2], const C (&b)[2], R least, C (&y)[2]) {
  int row = 0, col = 0;
  for (int i = 0; i < 2; ++i)
    for (int j = 0; j < 2; ++j)
      if (taxicab(m[i][j]) > taxicab(m[row][col])) row = i, col = j;
  const C factor = math::div(m[1 - row][col], m[row][col]);
  C pivot = minus_product(m[1 - row][1 - col], factor, m[row][1 - col]);
  if (!(taxicab(pivot) >= least)) pivot = C(least, R(0));
  y[1 - col] = math::div(minus_product(b[1 - row], factor, b[row]), pivot);
  y[col] = math::div(minus_product(b[row], m[row][1 - col], y[1 - col]), m[row][col]);
}

// x = the vector of eigenvalue k (the first of a pair) of the Schur form t, by a warp: from row k upwards, of size
// about
// 1. Pivots are kept from vanishing, and x is scaled where it would overflow, as LAPACK's trevc does.
template <class T>
TG_DEVICE void warp_eigenvector(const T* t, int64_t n, int64_t k, Complex<T> value, Complex<T>* x) {
  using R = real_t<T>;
  using C = Complex<T>;
  constexpr R kEps = std::numeric_limits<R>::epsilon(), kTiny = std::numeric_limits<R>::min() / kEps;
  const R near = kEps * taxicab(value), least = near > kTiny * static_cast<R>(n) ? near : kTiny * static_cast<R>(n);
  const bool pair = begins_pair(t, n, k);
  const int64_t last = pair ? k + 1 : k;
  C head(R(1), R(0)), second(R(0), R(0));
  if (pair) {
    const R above = real_part(t[k + (k + 1) * n]), below = real_part(t[k + 1 + k * n]), im = value.imag();
    if (math::magnitude(above) >= math::magnitude(below))
      second = C(R(0), im / above);
    else
      head = C(R(0), im / below), second = C(R(1), R(0));
  }
  for (int64_t p = warp_lane(); p < n; p += kWarp) {
    if (p < k) {
      C sum = product(t[p + k * n], head);
      if (pair) sum = math::add(sum, product(t[p + (k + 1) * n], second));
      x[p] = math::neg(sum);
    } else {
      x[p] = p == k ? head : pair && p == k + 1 ? second : C(R(0), R(0));
    }
  }
  warp_sync();
  for (int64_t j = k - 1; j >= 0;) {
    const bool two = j > 0 && begins_pair(t, n, j - 1);
    const int64_t i = two ? j - 1 : j;  // rows i to j
    C b[2] = {x[i], x[j]}, y[2] = {C(R(0), R(0)), C(R(0), R(0))};
    const R size = taxicab(b[0]) > taxicab(b[1]) ? taxicab(b[0]) : taxicab(b[1]);
    R scale = 1;
    if (size > 0) {
      C m[2][2];
      R largest = 0;
      for (int r = 0; r < 2; ++r)
        for (int c = 0; c < 2; ++c) {
          const int64_t at = (r == 0 ? i : j) + (c == 0 ? i : j) * n;
          const C element(real_part(t[at]), imag_part(t[at]));
          m[r][c] = r == c ? math::sub(element, value) : element;
          largest = taxicab(m[r][c]) > largest ? taxicab(m[r][c]) : largest;
        }
      if (!two) largest = taxicab(m[0][0]);
      if (!(largest >= least)) {
        largest = least;
        for (int r = 0; r < 2; ++r)
          for (int c = 0; c < 2; ++c) m[r][c] = C(r == c ? least : R(0), R(0));
      }
      // Both sides as numbers about 1, so that y is 2^power times what is solved for.
      const int of_b = std::ilogb(size), of_m = std::ilogb(largest);
      for (C& e : b) e = C(std::ldexp(e.real(), -of_b), std::ldexp(e.imag(), -of_b));
      for (auto& row : m)
        for (C& e : row) e = C(std::ldexp(e.real(), -of_m), std::ldexp(e.imag(), -of_m));
      if (two) {
        const R scaled = std::ldexp(least, -of_m);
        solve_pair(m, b, scaled > kTiny ? scaled : kTiny, y);
      } else {
        y[0] = y[1] = math::div(b[0], m[0][0]);
      }
      const R length = taxicab(y[0]) > taxicab(y[1]) ? taxicab(y[0]) : taxicab(y[1]);
      int power = of_b - of_m;
      const int of_y = std::ilogb(length) + power;
      if (of_y > 0) {
        scale = std::ldexp(R(1), -of_y);
        power -= of_y;
      }
      for (C& e : y) e = C(std::ldexp(e.real(), power), std::ldexp(e.imag(), power));
    }
    warp_sync();  // all have read
    for (int64_t p = warp_lane(); p <= last; p += kWarp) {
      if (p == j) {
        x[p] = y[1];
      } else if (p == i) {
        x[p] = y[0];
      } else {
        C sum = times(scale, x[p]);
        if (p < i) {
          sum = math::sub(sum, product(t[p + j * n], y[1]));
          if (two) sum = math::sub(sum, product(t[p + i * n], y[0]));
        }
        x[p] = sum;
      }
    }
    warp_sync();
    j = i - 1;
  }
}

// v (a column of n elements) gets length 1; for `turned` its largest element becomes real and positive, else it is
// real.
template <class R>
TG_DEVICE void warp_normalise(std::complex<R>* v, int64_t n, bool turned) {
  using C = std::complex<R>;
  R largest = 0;
  for (int64_t i = warp_lane(); i < n; i += kWarp) {
    const R size = math::abs(v[i]);
    largest = size > largest ? size : largest;
  }
  largest = warp_reduce(largest, Largest());
  if (!(largest > 0)) return;
  R sum = 0;
  int64_t at = -n;  // of the first element as large as that, negative
  for (int64_t i = warp_lane(); i < n; i += kWarp) {
    const R size = math::abs(v[i]);
    if (size == largest && -i > at) at = -i;
    sum += size / largest * (size / largest);
  }
  at = -warp_reduce(at, Largest());
  const R length = std::sqrt(warp_reduce(sum, Sum()));
  const C top = v[at];
  const C turn(top.real() / largest, -top.imag() / largest);
  warp_sync();
  for (int64_t i = warp_lane(); i < n; i += kWarp) {
    const C x(v[i].real() / largest / length, v[i].imag() / largest / length);
    if (!turned)
      v[i] = C(x.real(), R(0));
    else
      v[i] = i == at ? C(R(1) / length, R(0)) : math::mul(turn, x);
  }
}

template <class T>
TG_KERNEL void eig_kernel(EigArgs<T> args) {
  using R = real_t<T>;
  using C = Complex<T>;
  TG_SHARED(R, scratch, kWarp);
  TG_SHARED(double, sums, kWarp);
  TG_SHARED(int64_t, found, kWarp);
  const int64_t n = args.a.rows, warps = block_size() / kWarp;
  T* const t = args.matrices + block_index() * matrix_elements(n, args.with_vectors);
  T *const tau = t + n * n, *const q = args.with_vectors ? tau + 2 * n : nullptr;
  R* const d = reinterpret_cast<R*>(tau + n);
  C* const values = args.complexes + block_index() * complex_elements(n, args.with_vectors);
  C* const x = values + n;
  int64_t* const order = args.orders + block_index() * n;
  for (int64_t m = block_index(); m < args.a.count; m += grid_size()) {
    const T* from = args.a[m];
    const auto read = [&](int64_t i, int64_t j) { return from[i * args.a.row + j * args.a.col]; };
    const R scale = block_load_scaled(t, n, n, read, scratch);
    if (scale == 0) {
      if (thread_index() == 0) args.infos[m] = kNotFiniteInfo;
      continue;
    }
    const Active active = block_isolate(t, n, order, found);
    block_balance(t, n, active, d, sums);
    block_hessenberg(t, n, active, q, tau, scratch);
    const int info = block_schur(t, n, active, q, found);
    if (thread_index() == 0) args.infos[m] = info;
    if (info != 0) continue;
    for (int64_t i = thread_index(); i < n; i += block_size()) {
      const C value = values[i] = eigenvalue_of(t, n, i);
      args.values[m * n + i] = C(value.real() / scale, value.imag() / scale);
    }
    block_sync();
    if (!args.with_vectors) continue;
    C* const to = args.vectors[m];
    // The second vector of a pair is the conjugate of the first.
    for (int64_t k = warp_index(); k < n; k += warps)
      if (k == 0 || !begins_pair(t, n, k - 1)) warp_eigenvector(t, n, k, values[k], x + k * n);
    block_sync();
    each_element(0, n, 0, n, [&](int64_t i, int64_t k) {
      if (k > 0 && begins_pair(t, n, k - 1)) return;
      C sum(R(0), R(0));
      const int64_t end = begins_pair(t, n, k) ? k + 2 : k + 1;
      for (int64_t p = 0; p < end; ++p) sum = math::add(sum, product(q[i + p * n], x[p + k * n]));
      to[order[i] + k * args.ld] = times(d[i], sum);
    });
    block_sync();
    for (int64_t k = warp_index(); k < n; k += warps) {
      if (k > 0 && begins_pair(t, n, k - 1)) continue;
      C* const v = to + k * args.ld;
      const bool pair = begins_pair(t, n, k);
      warp_normalise(v, n, is_complex_type<T> || pair);
      warp_sync();
      if (pair)
        for (int64_t i = warp_lane(); i < n; i += kWarp) v[i + args.ld] = math::conj(v[i]);
    }
    block_sync();
  }
}

void eigen_general(const char* op, const Tensor& A, const Tensor& values, const Tensor* vectors) {
  if (values.numel() == 0) return;
  const Tensor info = empty_tensor(batch_of(A), DType::int32, A.device());
  {
    const Work work(A.device(), {&A, &values, &info});
    if (vectors != nullptr) work.use(*vectors);
    if (!library_eig(work, A, values, vectors, info)) {
      dispatch_lapack(A.dtype(), [&]<class T>() {
        using C = Complex<T>;
        const bool with_vectors = vectors != nullptr;
        const MatrixBatch<T> a(A, 2);
        const MatrixBatch<C> v(with_vectors ? *vectors : values, with_vectors ? 2 : 1);
        const int64_t n = a.rows, blocks = blocks_for(a.count, n * n);
        const auto bytes = [&](int64_t of_block, size_t size) { return static_cast<size_t>(blocks * of_block) * size; };
        const Workspace matrices(bytes(matrix_elements(n, with_vectors), sizeof(T)), work);
        const Workspace complexes(bytes(complex_elements(n, with_vectors), sizeof(C)), work);
        const Workspace orders(bytes(n, sizeof(int64_t)), work);
        const uint32_t block = static_cast<uint32_t>(std::min<int64_t>((n + kWarp - 1) / kWarp * kWarp, kBlock));
        launch_block(work, &eig_kernel<T>, Grid(blocks), block, 0,
                     EigArgs<T>{a, with_vectors, v, v.leading(), target_of<C>(values), target_of<int>(info),
                                static_cast<T*>(matrices.data()), static_cast<C*>(complexes.data()),
                                static_cast<int64_t*>(orders.data())});
      });
    }
  }
  check_convergence(op, info);
}

}  // namespace

void eig_cuda(const Tensor& A, const Tensor& values, const Tensor& vectors) {
  eigen_general("linalg.eig", A, values, &vectors);
}
void eigvals_cuda(const Tensor& A, const Tensor& values) { eigen_general("linalg.eigvals", A, values, nullptr); }

}  // namespace tapegrad::cuda
