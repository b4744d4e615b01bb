// Eigenvalues of Hermitian matrices by the threads of a block: Householder's reduction to a real tridiagonal matrix,
// and implicit QL steps (tridiagonal_ql.h). All threads of the block must call these functions, which end with a
// barrier.
#pragma once

#include "tapegrad/aten/linalg/factor/tridiagonal_ql.h"
#include "tapegrad/cuda/linalg/block_qr.h"

namespace tapegrad::cuda {

// The power of two that brings numbers of this size to about 1, so that squares neither overflow nor vanish.
template <class R>
TG_HD inline R scale_to_one(R largest) {
  if (!(largest > 0)) return R(1);
  constexpr int kMost = sizeof(R) == 4 ? 120 : 1000;
  int exponent = std::ilogb(largest);
  exponent = exponent > kMost ? kMost : exponent < -kMost ? -kMost : exponent;
  return std::ldexp(R(1), -exponent);
}

// a (rows x columns, by columns) = read(i, j), scaled to about 1. The scale, or 0 where an element is not finite.
template <class T, class Read>
TG_DEVICE real_t<T> block_load_scaled(T* a, int64_t rows, int64_t columns, const Read& read, real_t<T>* scratch) {
  using R = real_t<T>;
  R largest = 0;
  each_element(0, rows, 0, columns, [&](int64_t i, int64_t j) {
    const T x = read(i, j);
    const R re = math::magnitude(real_part(x)), im = math::magnitude(imag_part(x));
    a[i + j * rows] = x;
    const R size = !math::isfinite(x) ? std::numeric_limits<R>::infinity() : re > im ? re : im;
    largest = size > largest ? size : largest;
  });
  largest = block_reduce(largest, Largest(), scratch);
  block_sync();
  if (!math::isfinite(largest)) return 0;
  const R scale = scale_to_one(largest);
  each_element(0, rows, 0, columns, [&](int64_t i, int64_t j) { a[i + j * rows] = times(scale, a[i + j * rows]); });
  block_sync();
  return scale;
}

// a (n x n, all of it) = Q tridiag(d, e) Q^H; reflection k is left in column k of a, from row k + 1 on, and in tau[k].
// w holds n elements.
template <class T>
TG_DEVICE void block_tridiagonal(T* a, int64_t ld, int64_t n, T* tau, T* w, double* d, double* e, T* sums,
                                 real_t<T>* scratch) {
  using R = real_t<T>;
  for (int64_t k = 0; k + 1 < n; ++k) {
    T* v = a + k * ld;
    T factor;
    R beta;
    const bool reflects = block_reflection(v, k + 1, n, factor, beta, scratch);
    if (thread_index() == 0) {
      d[k] = static_cast<double>(real_part(v[k]));
      e[k] = static_cast<double>(beta);
      tau[k] = factor;
      v[k + 1] = T(1);
    }
    block_sync();
    if (!reflects) continue;
    // w = tau a v, then w -= tau / 2 (w^H v) v, and a -= v w^H + w v^H.
    for (int64_t i = k + 1 + thread_index(); i < n; i += block_size()) {
      T sum(0);
      for (int64_t j = k + 1; j < n; ++j) sum = math::add(sum, math::mul(a[i + j * ld], v[j]));
      w[i] = math::mul(factor, sum);
    }
    T part(0);  // of the threads' own elements
    for (int64_t i = k + 1 + thread_index(); i < n; i += block_size())
      part = math::add(part, math::mul(math::conj(w[i]), v[i]));
    const T alpha = math::mul(times(R(-0.5), factor), block_reduce(part, SumOf(), sums));
    block_sync();
    for (int64_t i = k + 1 + thread_index(); i < n; i += block_size()) w[i] = math::add(w[i], math::mul(alpha, v[i]));
    block_sync();
    each_element(k + 1, n, k + 1, n, [&](int64_t i, int64_t j) {
      const T x = minus_product(minus_product(a[i + j * ld], v[i], math::conj(w[j])), w[i], math::conj(v[j]));
      a[i + j * ld] = i == j ? T(real_part(x)) : x;
    });
    block_sync();
  }
  if (thread_index() == 0) {
    d[n - 1] = static_cast<double>(real_part(a[n - 1 + (n - 1) * ld]));
    e[n - 1] = 0;
  }
  block_sync();
}

// Eigenvalues of tridiag(d, e) into d; the columns of q (rows x n), unless it is null, take part. Returns 0, or the
// number of an eigenvalue that took too long. c and s hold n numbers each, `turn` four of the block.
template <class T>
TG_DEVICE int block_ql(int64_t n, double* d, double* e, double* c, double* s, T* q, int64_t ldq, int64_t rows,
                       double eps, int64_t* turn) {
  using R = real_t<T>;
  constexpr int kMost = 60;  // steps for one eigenvalue
  if (thread_index() == 0) turn[0] = 0, turn[3] = 0;
  block_sync();
  for (;;) {
    if (thread_index() == 0) {
      int64_t l = turn[0], m = l, first = l;
      for (; l < n; ++l, turn[3] = 0) {
        m = ql::end_of_part(l, n, d, e, eps);
        if (m != l) break;
      }
      if (l < n && turn[3]++ < kMost)
        first = ql::step(l, m, d, e, [=](int64_t i, double cosine, double sine) { c[i] = cosine, s[i] = sine; });
      else
        m = -1;
      turn[0] = l, turn[1] = first, turn[2] = m;
    }
    block_sync();
    const int64_t l = turn[0], first = turn[1], m = turn[2];
    if (m < 0) {
      block_sync();
      return l < n ? static_cast<int>(l + 1) : 0;
    }
    if (q != nullptr)
      for (int64_t r = thread_index(); r < rows; r += block_size()) {
        T right = q[r + m * ldq];
        for (int64_t i = m - 1; i >= first; --i) {
          const R cosine = static_cast<R>(c[i]), sine = static_cast<R>(s[i]);
          const T left = q[r + i * ldq];
          q[r + (i + 1) * ldq] = math::add(times(sine, left), times(cosine, right));
          right = math::sub(times(cosine, left), times(sine, right));
        }
        q[r + first * ldq] = right;
      }
    block_sync();
  }
}

}  // namespace tapegrad::cuda
