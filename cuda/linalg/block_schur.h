// Schur forms of general matrices by the threads of a block: balancing (Parlett and Reinsch 1969; its 2-norms: James,
// Langou and Lowery 2014), Householder's reduction to Hessenberg form, and QR steps (Golub and Van Loan, Matrix
// Computations, 7.4 and 7.5): Francis's two shifts at once for real matrices, so that their complex eigenvalues come in
// exact pairs, Wilkinson's one for complex ones. Matrices are n x n, dense, by columns, of elements up to about 1. All
// threads of the block must call these functions, which end with a barrier and return the same value in all threads.
#pragma once

#include "tapegrad/cuda/linalg/block_eigen.h"
#include "tapegrad/cuda/pointwise/complex.h"

namespace tapegrad::cuda {

// |re| + |im|
template <class T>
TG_HD inline real_t<T> taxicab(const T& x) {
  if constexpr (is_complex_type<T>)
    return math::magnitude(x.real()) + math::magnitude(x.imag());
  else
    return math::magnitude(x);
}
template <class T>
TG_HD inline void exchange(T& a, T& b) {
  const T old = a;
  a = b;
  b = old;
}

// The range of rows and columns, both ends included, that remains after isolated eigenvalues were moved to the ends:
// outside of it the matrix is upper triangular.
struct Active {
  int64_t first, last;
};

// Moves rows without elements beside the diagonal to the end, and such columns to the front. Row i of the result is
// row order[i] of what came.
template <class T>
TG_DEVICE Active block_isolate(T* a, int64_t n, int64_t* order, int64_t* found) {
  for (int64_t i = thread_index(); i < n; i += block_size()) order[i] = i;
  block_sync();
  Active active{0, n - 1};
  for (int columns = 0; columns < 2; ++columns)
    while (active.first < active.last) {
      int64_t mine = -1;
      for (int64_t i = active.first + thread_index(); i <= active.last; i += block_size()) {
        bool alone = true;
        for (int64_t j = active.first; alone && j <= active.last; ++j)
          alone = i == j || taxicab(columns != 0 ? a[j + i * n] : a[i + j * n]) == 0;
        if (alone) mine = i;
      }
      mine = block_reduce(mine, Largest(), found);
      block_sync();
      if (mine < 0) break;
      const int64_t to = columns != 0 ? active.first++ : active.last--;
      if (mine == to) continue;
      for (int64_t i = thread_index(); i < n; i += block_size()) exchange(a[i + mine * n], a[i + to * n]);
      block_sync();
      for (int64_t j = thread_index(); j < n; j += block_size()) exchange(a[mine + j * n], a[to + j * n]);
      if (thread_index() == 0) exchange(order[mine], order[to]);
      block_sync();
    }
  return active;
}

// a becomes D^-1 a D for a diagonal matrix of powers of two, so that rows and columns are about as long as each other.
template <class T>
TG_DEVICE void block_balance(T* a, int64_t n, Active active, real_t<T>* d, double* scratch) {
  using R = real_t<T>;
  constexpr int kSweeps = 64;
  // Of an element of D: elements outside of the active part are not read and must stay finite.
  constexpr int kMost = sizeof(R) == 4 ? 40 : 300;
  for (int64_t i = thread_index(); i < n; i += block_size()) d[i] = 1;
  block_sync();
  bool again = true;
  for (int sweep = 0; again && sweep < kSweeps; ++sweep) {
    again = false;
    for (int64_t i = active.first; i <= active.last; ++i) {
      double column = 0, row = 0;
      for (int64_t k = active.first + thread_index(); k <= active.last; k += block_size()) {
        const double x = static_cast<double>(math::abs(a[k + i * n])), y = static_cast<double>(math::abs(a[i + k * n]));
        column += x * x;
        row += y * y;
      }
      column = std::sqrt(block_reduce(column, Sum(), scratch));
      block_sync();
      row = std::sqrt(block_reduce(row, Sum(), scratch));
      const int before = std::ilogb(d[i]);
      block_sync();
      if (column == 0 || row == 0) continue;
      const double sum = column + row;
      int by = 0;
      for (; column < row / 2 && before + by < kMost; ++by) column *= 2, row /= 2;
      for (; row <= column / 2 && before + by > -kMost; --by) column /= 2, row *= 2;
      if (by == 0 || column + row >= 0.95 * sum) continue;
      again = true;
      const R up = std::ldexp(R(1), by), down = std::ldexp(R(1), -by);
      for (int64_t k = thread_index(); k < n; k += block_size()) {
        if (k == i) continue;
        a[k + i * n] = times(up, a[k + i * n]);
        a[i + k * n] = times(down, a[i + k * n]);
      }
      if (thread_index() == 0) d[i] *= up;
      block_sync();
    }
  }
}

// a = Q H Q^H with a Hessenberg matrix H, which a becomes. Q goes to q, unless that is null. tau holds n elements.
template <class T>
TG_DEVICE void block_hessenberg(T* a, int64_t n, Active active, T* q, T* tau, real_t<T>* scratch) {
  using R = real_t<T>;
  const int64_t end = active.last + 1;
  for (int64_t k = thread_index(); k < n; k += block_size()) tau[k] = T(0);
  block_sync();
  for (int64_t k = active.first; k + 2 < end; ++k) {
    T* v = a + k * n;
    T factor;
    R beta;
    const bool reflects = block_reflection(v, k + 1, end, factor, beta, scratch);
    if (thread_index() == 0) {
      v[k + 1] = T(beta);
      tau[k] = factor;
    }
    block_sync();
    if (!reflects) continue;
    block_reflect<T>(v, k + 1, end, math::conj(factor), a, n, k + 1, n);
    for (int64_t i = thread_index(); i < end; i += block_size()) {
      T sum = a[i + (k + 1) * n];
      for (int64_t j = k + 2; j < end; ++j) sum = math::add(sum, math::mul(a[i + j * n], v[j]));
      sum = math::mul(factor, sum);
      a[i + (k + 1) * n] = math::sub(a[i + (k + 1) * n], sum);
      for (int64_t j = k + 2; j < end; ++j) a[i + j * n] = minus_product(a[i + j * n], sum, math::conj(v[j]));
    }
    block_sync();
  }
  if (q != nullptr) block_reflections<T>(a, n, tau, n - 1, 1, q, n, n, n);
  each_element(0, n, 0, n, [&](int64_t i, int64_t j) {
    if (i > j + 1) a[i + j * n] = T(0);
  });
  block_sync();
}

// The rotation that brings a real block [a b; c d] to a triangle or to equal elements on the diagonal:
// [cosine sine; -sine cosine] [a b; c d] [cosine -sine; sine cosine].
struct PairForm {
  double a, b, c, d, cosine, sine;
};
TG_HD inline PairForm pair_form(double a, double b, double c, double d) {
  if (c == 0) return {a, b, c, d, 1, 0};
  const double p = (a - d) / 2, square = p * p + b * c;
  if (square >= 0) {
    const double z = p + std::copysign(std::sqrt(square), p);
    if (z == 0)  // so is the smaller of b and c, or nothing beside 1
      return std::fabs(c) <= std::fabs(b) ? PairForm{a, b, 0, d, 1, 0} : PairForm{d, -c, 0, a, 0, 1};
    const double r = math::hypot(z, c);
    // b - c does not change by rotations.
    return {d + z, b - c, 0, d - b / z * c, z / r, c / r};
  }
  const double sum = b + c, length = math::hypot(2 * p, sum), turned = std::copysign(length, sum);
  double cosine = 1, sine = 0;
  if (length > 0) {
    cosine = std::sqrt((1 + std::fabs(sum) / length) / 2);
    sine = -2 * p / turned / (2 * cosine);
  }
  // Of the two elements beside the diagonal, whose product is `square`, the larger one, without cancellation.
  double upper = (turned + (b - c)) / 2, lower = (turned - (b - c)) / 2;
  if (std::fabs(upper) > std::fabs(lower))
    lower = square / upper;
  else
    upper = square / lower;
  return {(a + d) / 2, upper, lower, (a + d) / 2, cosine, sine};
}

// Whether H[k, k - 1] is negligible (Ahues and Tisseur 1997).
template <class T>
TG_DEVICE bool negligible(const T* h, int64_t n, int64_t k, Active active) {
  using R = real_t<T>;
  constexpr R kEps = std::numeric_limits<R>::epsilon();
  const R tiny = std::numeric_limits<R>::min() / kEps * static_cast<R>(n);
  const R below = taxicab(h[k + (k - 1) * n]);
  if (below <= tiny) return true;
  const T upper = h[k - 1 + (k - 1) * n], lower = h[k + k * n];
  R beside = taxicab(upper) + taxicab(lower);
  if (beside == 0) {
    if (k - 2 >= active.first) beside += taxicab(h[k - 1 + (k - 2) * n]);
    if (k + 1 <= active.last) beside += taxicab(h[k + 1 + k * n]);
  }
  if (below > kEps * beside) return false;
  const R above = taxicab(h[k - 1 + k * n]), apart = taxicab(math::sub(upper, lower)), last = taxicab(lower);
  const R most = above > below ? above : below, least = above > below ? below : above;
  const R large = last > apart ? last : apart, small = last > apart ? apart : last, s = large + most;
  const R bound = kEps * (small * (large / s));
  return least * (most / s) <= (bound > tiny ? bound : tiny);
}

// Elements that one shift mixes are two, two shifts three.
template <class T>
inline constexpr int kMixed = is_complex_type<T> ? 2 : 3;

// I - tau v v^H, v[0] = 1, whose adjoint makes `count` numbers a real multiple beta of the first unit vector.
template <class T>
struct SmallReflection {
  T v[3], tau;
  real_t<T> beta;
};
template <class T>
TG_DEVICE SmallReflection<T> small_reflection(const T* x, int count) {
  using R = real_t<T>;
  SmallReflection<T> h{{T(1), T(0), T(0)}, T(0), R(0)};
  R largest = taxicab(x[0]), below = 0;
  for (int c = 1; c < count; ++c) {
    const R size = taxicab(x[c]);
    largest = size > largest ? size : largest;
    below += size;
  }
  R re = real_part(x[0]), im = imag_part(x[0]);
  h.beta = re;
  if (below == 0 && im == 0) return h;
  const R scale = scale_to_one(largest);
  R sum = 0;
  for (int c = 0; c < count; ++c) {
    const R size = scale * math::abs(x[c]);
    sum += size * size;
  }
  re *= scale, im *= scale;
  const R beta = -std::copysign(std::sqrt(sum), re);
  T head;
  if constexpr (is_complex_type<T>) {
    head = T(re, im);
    h.tau = T((beta - re) / beta, -im / beta);
  } else {
    head = re;
    h.tau = (beta - re) / beta;
  }
  const T factor = math::div(T(scale), math::sub(head, T(beta)));
  for (int c = 1; c < count; ++c) h.v[c] = math::mul(factor, x[c]);
  h.beta = beta / scale;
  return h;
}

// A step of the rows and columns [l, m] of H, begun by `start`: the bulge is chased down. Rows from `top` on and
// columns before `end` take part, and the columns of q, unless it is null.
template <class T>
TG_DEVICE void block_chase(T* h, int64_t n, int64_t l, int64_t m, int64_t top, int64_t end, T* q, const T* start) {
  for (int64_t k = l; k < m; ++k) {
    const int count = m - k + 1 < kMixed<T> ? static_cast<int>(m - k + 1) : kMixed<T>;
    T x[3];
    for (int c = 0; c < count; ++c) x[c] = k == l ? start[c] : h[k + c + (k - 1) * n];
    const SmallReflection<T> reflection = small_reflection(x, count);
    for (int64_t j = k + thread_index(); j < end; j += block_size()) {
      T* const column = h + k + j * n;
      T sum = column[0];
      for (int c = 1; c < count; ++c) sum = math::add(sum, math::mul(math::conj(reflection.v[c]), column[c]));
      sum = math::mul(math::conj(reflection.tau), sum);
      for (int c = 0; c < count; ++c) column[c] = minus_product(column[c], sum, reflection.v[c]);
    }
    block_sync();
    const auto from_the_right = [&](T* row) {
      T sum = row[0];
      for (int c = 1; c < count; ++c) sum = math::add(sum, math::mul(row[c * n], reflection.v[c]));
      sum = math::mul(sum, reflection.tau);
      for (int c = 0; c < count; ++c) row[c * n] = minus_product(row[c * n], sum, math::conj(reflection.v[c]));
    };
    const int64_t last = k + kMixed<T> < m ? k + kMixed<T> : m;
    for (int64_t i = top + thread_index(); i <= last; i += block_size()) from_the_right(h + i + k * n);
    if (q != nullptr)
      for (int64_t i = thread_index(); i < n; i += block_size()) from_the_right(q + i + k * n);
    if (k > l && thread_index() == 0)
      for (int c = 0; c < count; ++c) h[k + c + (k - 1) * n] = c == 0 ? T(reflection.beta) : T(0);
    block_sync();
  }
}

// What the step of [l, m] with two shifts begins with: the first column of (H - s1) (H - s2), where s1 and s2 are the
// eigenvalues of H's last two rows and columns, or twice the nearer of real ones, or in an `exceptional` step others.
template <class R>
TG_DEVICE void first_of_step(const R* h, int64_t n, int64_t l, int64_t m, int exceptional, R* start) {
  R a = h[m - 1 + (m - 1) * n], b = h[m - 1 + m * n], c = h[m + (m - 1) * n], d = h[m + m * n];
  if (exceptional != 0) {
    const int64_t at = exceptional == 1 ? l : m;
    const R s = exceptional == 1 ? math::magnitude(h[l + 1 + l * n]) + math::magnitude(h[l + 2 + (l + 1) * n])
                                 : math::magnitude(c) + math::magnitude(h[m - 1 + (m - 2) * n]);
    a = d = R(0.75) * s + h[at + at * n];
    b = R(-0.4375) * s;
    c = s;
  }
  const R p = (a - d) / 2, square = p * p + b * c;
  R re1 = (a + d) / 2, re2 = re1, im1 = 0, im2 = 0;
  if (square < 0) {
    im1 = std::sqrt(-square);
    im2 = -im1;
  } else if (square > 0) {
    const R z = p + std::copysign(std::sqrt(square), p), near = d - b / z * c, far = d + z;
    re1 = re2 = math::magnitude(near - d) <= math::magnitude(far - d) ? near : far;
  }
  const R first = h[l + l * n], below = h[l + 1 + l * n];
  const R s = math::magnitude(first - re2) + math::magnitude(im2) + math::magnitude(below);
  const R scaled = below / s;
  start[0] = scaled * h[l + (l + 1) * n] + (first - re1) * ((first - re2) / s) - im1 * (im2 / s);
  start[1] = scaled * (first + h[l + 1 + (l + 1) * n] - re1 - re2);
  start[2] = scaled * h[l + 2 + (l + 1) * n];
}
// The same with one shift: the eigenvalue nearer to H's last element.
template <class R>
TG_DEVICE void first_of_step(const std::complex<R>* h, int64_t n, int64_t l, int64_t m, int exceptional,
                             std::complex<R>* start) {
  using C = std::complex<R>;
  const C a = h[m - 1 + (m - 1) * n], d = h[m + m * n];
  C shift = d;
  if (exceptional != 0) {
    const int64_t at = exceptional == 1 ? l : m;
    const C below = exceptional == 1 ? h[l + 1 + l * n] : h[m + (m - 1) * n];
    shift = math::add(h[at + at * n], C(R(0.75) * taxicab(below), R(0)));
  } else {
    const C product = math::mul(h[m - 1 + m * n], h[m + (m - 1) * n]), p = times(R(0.5), math::sub(a, d));
    const C root = math::sqrt(math::add(math::mul(p, p), product));
    const C sum = math::add(p, root), difference = math::sub(p, root);
    const C z = taxicab(sum) > taxicab(difference) ? sum : difference;
    if (taxicab(z) > 0) shift = math::sub(d, math::div(product, z));
  }
  start[0] = math::sub(h[l + l * n], shift);
  start[1] = h[l + 1 + l * n];
}

// The Hessenberg matrix h becomes a Schur form: upper triangular, for real matrices with blocks [a b; c a], b c < 0, of
// two rows for complex eigenvalues. The columns of q take part, unless it is null: then only the diagonal and those
// blocks of h are of use. Returns 0, or the number of an eigenvalue that took too long.
template <class T>
TG_DEVICE int block_schur(T* h, int64_t n, Active active, T* q, int64_t* found) {
  constexpr int64_t kSteps = 30;  // for an eigenvalue, on average
  int64_t left = kSteps * (active.last - active.first < 10 ? 10 : active.last - active.first + 1);
  int64_t m = active.last;
  for (int steps = 0; m > active.first;) {
    int64_t l = active.first;
    for (int64_t k = active.first + 1 + thread_index(); k <= m; k += block_size())
      if (negligible(h, n, k, active)) l = k;
    l = block_reduce(l, Largest(), found);
    block_sync();
    if (l > active.first && thread_index() == 0) h[l + (l - 1) * n] = T(0);
    block_sync();
    const int64_t top = q != nullptr ? 0 : l, end = q != nullptr ? n : m + 1;
    if (l == m) {
      --m;
      steps = 0;
      continue;
    }
    if constexpr (!is_complex_type<T>)
      if (l == m - 1) {
        T* const upper = h + l + l * n;
        const PairForm f = pair_form(static_cast<double>(upper[0]), static_cast<double>(upper[n]),
                                     static_cast<double>(upper[1]), static_cast<double>(upper[n + 1]));
        const T cosine = static_cast<T>(f.cosine), sine = static_cast<T>(f.sine);
        const auto rotate = [&](T& x, T& y) {
          const T old = x;
          x = cosine * old + sine * y;
          y = cosine * y - sine * old;
        };
        block_sync();
        for (int64_t j = m + 1 + thread_index(); j < end; j += block_size()) rotate(h[l + j * n], h[m + j * n]);
        for (int64_t i = top + thread_index(); i < l; i += block_size()) rotate(h[i + l * n], h[i + m * n]);
        if (q != nullptr)
          for (int64_t i = thread_index(); i < n; i += block_size()) rotate(q[i + l * n], q[i + m * n]);
        if (thread_index() == 0) {
          upper[0] = static_cast<T>(f.a);
          upper[1] = static_cast<T>(f.c);
          upper[n] = static_cast<T>(f.b);
          upper[n + 1] = static_cast<T>(f.d);
        }
        block_sync();
        m -= 2;
        steps = 0;
        continue;
      }
    if (left-- == 0) return static_cast<int>(m + 1);
    ++steps;
    T start[3] = {};
    first_of_step(h, n, l, m, steps % 20 == 10 ? 1 : steps % 20 == 0 ? 2 : 0, start);
    block_sync();
    block_chase(h, n, l, m, top, end, q, start);
  }
  block_sync();
  return 0;
}

}  // namespace tapegrad::cuda
