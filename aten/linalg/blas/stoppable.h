// LAPACK routines that Ctrl-C can interrupt. A call of the library cannot be stopped, so a long one runs on a thread of
// its own, on copies of its operands; an interrupt abandons that thread. It runs to completion and its result is
// discarded, which wastes processor time but is harmless: the caller's memory is written only after a call has
// returned. When the process ends, it may still run (openblas_scratch.h). Without an interrupt hook (a C++ program), on
// the pool's threads and for short calls the routine is called as it is. Arguments and results as in lapack.h.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <tuple>
#include <type_traits>

#include "tapegrad/aten/linalg/blas/lapack.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::lapack::stoppable {

// Whether a call of this many operations should run on a separate thread.
bool worth_it(double flops);
// Runs the function on a new thread and returns its result; an interrupt throws at once and abandons the thread.
int run_apart(std::function<int()> function);

template <class T>
struct Part {
  T* data;
  int64_t count;
};

// Results can be far larger than what they are computed from: an interrupt ends the copies, too.
template <class T>
void copy_over(const T* from, T* to, int64_t n) {
  parallel_for(0, n, 1 << 16, [&](int64_t begin, int64_t end) { std::copy(from + begin, from + end, to + begin); });
}

template <class T>
std::unique_ptr<std::remove_const_t<T>[]> copied(Part<T> part) {
  auto own = std::make_unique_for_overwrite<std::remove_const_t<T>[]>(static_cast<size_t>(part.count));
  copy_over<std::remove_const_t<T>>(part.data, own.get(), part.count);
  return own;
}

template <class F, class... Ts>
int call(double flops, F f, Part<Ts>... parts) {
  if (!worth_it(flops)) return f(parts.data...);
  auto own = std::make_shared<std::tuple<std::unique_ptr<std::remove_const_t<Ts>[]>...>>(copied(parts)...);
  const int info = run_apart([own, f] { return std::apply([&](auto&... v) { return f(v.get()...); }, *own); });
  std::apply(
      [&](auto&... v) {
        auto give_back = [](auto& from, auto part) {
          if constexpr (!std::is_const_v<std::remove_pointer_t<decltype(part.data)>>)
            copy_over(from.get(), part.data, part.count);
        };
        (give_back(v, parts), ...);
      },
      *own);
  return info;
}

inline double volume(int64_t m, int64_t n) {
  return static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(std::min(m, n));
}

// Nearly all operations are matrix products, which take less than half the time of others.
inline double volume_of_products(int64_t m, int64_t n) { return 0.8 * volume(m, n); }

template <class T>
int geqrf(int64_t m, int64_t n, T* a, int64_t lda, T* tau) {
  return call(
      volume_of_products(m, n), [=](T* x, T* t) { return lapack::geqrf(m, n, x, lda, t); }, Part<T>{a, lda * n},
      Part<T>{tau, std::min(m, n)});
}

template <class T>
int orgqr(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, const T* tau) {
  return call(
      volume_of_products(m, n), [=](T* x, const T* t) { return lapack::orgqr(m, n, k, x, lda, t); },
      Part<T>{a, lda * n}, Part<const T>{tau, k});
}

template <class T>
int gesdd(char job, int64_t m, int64_t n, T* a, int64_t lda, real_t<T>* s, T* u, int64_t ldu, T* vt, int64_t ldvt) {
  const int64_t k = std::min(m, n);
  const double square = static_cast<double>(std::max(m, n)) * static_cast<double>(std::max(m, n));
  return call(
      8 * volume(m, n) + (job == 'A' ? 4 * square * static_cast<double>(k) : 0),
      [=](T* x, real_t<T>* values, T* left, T* right) {
        return lapack::gesdd(job, m, n, x, lda, values, left, ldu, right, ldvt);
      },
      Part<T>{a, lda * n}, Part<real_t<T>>{s, k}, Part<T>{u, job == 'N' ? 0 : ldu * (job == 'A' ? m : k)},
      Part<T>{vt, job == 'N' ? 0 : ldvt * n});
}

template <class T>
int syevd(char job, char uplo, int64_t n, T* a, int64_t lda, real_t<T>* w) {
  return call(
      4 * volume(n, n), [=](T* x, real_t<T>* values) { return lapack::syevd(job, uplo, n, x, lda, values); },
      Part<T>{a, lda * n}, Part<real_t<T>>{w, n});
}

template <class T>
int geev(int64_t n, T* a, int64_t lda, std::complex<real_t<T>>* w, std::complex<real_t<T>>* v) {
  using C = std::complex<real_t<T>>;
  return call(
      20 * volume(n, n),
      [=](T* x, C* values, C* vectors) { return lapack::geev(n, x, lda, values, v ? vectors : nullptr); },
      Part<T>{a, lda * n}, Part<C>{w, n}, Part<C>{v, v ? n * n : 0});
}

template <class T>
int sytrf(bool hermitian, int64_t n, T* a, int64_t lda, int* pivots) {
  return call(
      volume(n, n), [=](T* x, int* p) { return lapack::sytrf(hermitian, n, x, lda, p); }, Part<T>{a, lda * n},
      Part<int>{pivots, n});
}

}  // namespace tapegrad::lapack::stoppable
