#include "tapegrad/aten/linalg/blas/lapack.h"

// lapacke.h declares its routines for these types of complex numbers.
#include <complex>
#define LAPACK_COMPLEX_CUSTOM
#define lapack_complex_float std::complex<float>
#define lapack_complex_double std::complex<double>
#include <cblas.h>
#include <lapacke.h>

#include <algorithm>
#include <vector>

#include "tapegrad/aten/functions_decompose.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/linalg/blas/openblas.h"
#include "tapegrad/aten/linalg/blas/openblas_scratch.h"
#include "tapegrad/c10/dispatch/work_counters.h"

namespace tapegrad::lapack {
namespace {

// The routine for T with the type of its declaration in lapacke.h, looked up once, and its scratch. The "_work" forms
// with column-major order pass their arguments on to Fortran without copies.
#define TG_FIND(name) reinterpret_cast<decltype(&scipy_##name)>(find_routine(#name))
#define TG_ROUTINE(T, before, name, complex_name, after) \
  static const auto routine = [] {                       \
    if constexpr (std::is_same_v<T, float>)              \
      return TG_FIND(before##s##name##after);            \
    else if constexpr (std::is_same_v<T, double>)        \
      return TG_FIND(before##d##name##after);            \
    else if constexpr (std::is_same_v<T, complex64_t>)   \
      return TG_FIND(before##c##complex_name##after);    \
    else                                                 \
      return TG_FIND(before##z##complex_name##after);    \
  }();                                                   \
  count_work(Work::LibraryCall);                         \
  blas::need_scratch()
#define TG_LAPACK2(T, name, complex_name) TG_ROUTINE(T, LAPACKE_, name, complex_name, _work)
#define TG_LAPACK(T, name) TG_LAPACK2(T, name, name)
#define TG_CBLAS(T, name) TG_ROUTINE(T, cblas_, name, name, )

constexpr int kColumns = LAPACK_COL_MAJOR;
constexpr int64_t kSmall = 32;  // up to here nothing is gained by blocks, and asking for a workspace's size shows
using blas::find_routine;

lapack_int narrow(int64_t v) { return static_cast<lapack_int>(v); }
lapack_int leading(int64_t v) { return static_cast<lapack_int>(std::max<int64_t>(v, 1)); }

CBLAS_TRANSPOSE flag(char trans) { return trans == 'N' ? CblasNoTrans : trans == 'T' ? CblasTrans : CblasConjTrans; }

template <class T>
lapack_int work_size(T answer) {
  // A float answer may have been rounded down (LAPACK before 3.11).
  double size = 0;
  if constexpr (is_complex_type<T>)
    size = static_cast<double>(answer.real());
  else
    size = static_cast<double>(answer);
  if (size > 16777216.0) size += size * 1e-6;
  return narrow(std::max<int64_t>(1, static_cast<int64_t>(std::min(size, 2147483647.0))));
}

template <class T>
std::vector<T> workspace(lapack_int n) {
  return std::vector<T>(static_cast<size_t>(std::max(n, lapack_int{1})));
}

// Calls a routine twice: for the size of its workspace, and with one.
template <class T, class Call>
int with_workspace(Call call) {
  T size{};
  call(&size, -1);
  lapack_int lwork = work_size(size);
  std::vector<T> work = workspace<T>(lwork);
  return call(work.data(), lwork);
}

}  // namespace

template <class T>
int potrf(char uplo, int64_t n, T* a, int64_t lda) {
  TG_LAPACK(T, potrf);
  return routine(kColumns, uplo, narrow(n), a, leading(lda));
}

template <class T>
int getrf(int64_t m, int64_t n, T* a, int64_t lda, int* pivots) {
  TG_LAPACK(T, getrf);
  return routine(kColumns, narrow(m), narrow(n), a, leading(lda), pivots);
}

template <class T>
int getrs(char trans, int64_t n, int64_t k, const T* a, int64_t lda, const int* pivots, T* b, int64_t ldb) {
  TG_LAPACK(T, getrs);
  return routine(kColumns, trans, narrow(n), narrow(k), a, leading(lda), pivots, b, leading(ldb));
}

template <class T>
int getri(int64_t n, T* a, int64_t lda, const int* pivots) {
  TG_LAPACK(T, getri);
  return with_workspace<T>(
      [&](T* work, lapack_int lwork) { return routine(kColumns, narrow(n), a, leading(lda), pivots, work, lwork); });
}

template <class T>
void trsm(char side, char uplo, char trans, char diag, int64_t m, int64_t n, const T* a, int64_t lda, T* b,
          int64_t ldb) {
  TG_CBLAS(T, trsm);
  CBLAS_SIDE left = side == 'L' ? CblasLeft : CblasRight;
  CBLAS_UPLO u = uplo == 'U' ? CblasUpper : CblasLower;
  CBLAS_DIAG d = diag == 'U' ? CblasUnit : CblasNonUnit;
  const T one(1);
  if constexpr (is_complex_type<T>)
    routine(CblasColMajor, left, u, flag(trans), d, narrow(m), narrow(n), &one, a, leading(lda), b, leading(ldb));
  else
    routine(CblasColMajor, left, u, flag(trans), d, narrow(m), narrow(n), one, a, leading(lda), b, leading(ldb));
}

template <class T>
void gemm(char trans_a, char trans_b, int64_t m, int64_t n, int64_t k, T alpha, const T* a, int64_t lda, const T* b,
          int64_t ldb, T beta, T* c, int64_t ldc) {
  TG_CBLAS(T, gemm);
  if constexpr (is_complex_type<T>)
    routine(CblasColMajor, flag(trans_a), flag(trans_b), narrow(m), narrow(n), narrow(k), &alpha, a, leading(lda), b,
            leading(ldb), &beta, c, leading(ldc));
  else
    routine(CblasColMajor, flag(trans_a), flag(trans_b), narrow(m), narrow(n), narrow(k), alpha, a, leading(lda), b,
            leading(ldb), beta, c, leading(ldc));
}

template <class T>
int geqrf(int64_t m, int64_t n, T* a, int64_t lda, T* tau) {
  TG_LAPACK(T, geqrf);
  auto call = [&](T* work, lapack_int lwork) {
    return routine(kColumns, narrow(m), narrow(n), a, leading(lda), tau, work, lwork);
  };
  T small[kSmall];
  return n <= kSmall ? call(small, narrow(kSmall)) : with_workspace<T>(call);
}

template <class T>
int orgqr(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, const T* tau) {
  TG_LAPACK2(T, orgqr, ungqr);
  auto call = [&](T* work, lapack_int lwork) {
    return routine(kColumns, narrow(m), narrow(n), narrow(k), a, leading(lda), tau, work, lwork);
  };
  T small[kSmall];
  return n <= kSmall ? call(small, narrow(kSmall)) : with_workspace<T>(call);
}

template <class T>
int gesdd(char job, int64_t m, int64_t n, T* a, int64_t lda, real_t<T>* s, T* u, int64_t ldu, T* vt, int64_t ldvt) {
  TG_LAPACK(T, gesdd);
  int64_t small = std::min(m, n), large = std::max(m, n);
  std::vector<lapack_int> integers(static_cast<size_t>(std::max<int64_t>(1, 8 * small)));
  auto call = [&](T* work, lapack_int lwork, [[maybe_unused]] real_t<T>* real) {
    if constexpr (is_complex_type<T>)
      return routine(kColumns, job, narrow(m), narrow(n), a, leading(lda), s, u, leading(ldu), vt, leading(ldvt), work,
                     lwork, real, integers.data());
    else
      return routine(kColumns, job, narrow(m), narrow(n), a, leading(lda), s, u, leading(ldu), vt, leading(ldvt), work,
                     lwork, integers.data());
  };
  std::vector<real_t<T>> real;
  if constexpr (is_complex_type<T>) {
    int64_t count =
        job == 'N' ? 7 * small : std::max(5 * small * small + 5 * small, 2 * large * small + 2 * small * small + small);
    real.resize(static_cast<size_t>(std::max<int64_t>(1, count)));
  }
  T size{};
  lapack_int lwork = narrow(4 * small * small + 7 * small + large);  // LAPACK's least
  if (large > kSmall) {
    call(&size, -1, real.data());
    lwork = work_size(size);
  }
  std::vector<T> work = workspace<T>(lwork);
  return call(work.data(), lwork, real.data());
}

template <class T>
int syevd(char job, char uplo, int64_t n, T* a, int64_t lda, real_t<T>* w) {
  TG_LAPACK2(T, syevd, heevd);
  T size{};
  lapack_int integers = 1;
  if constexpr (is_complex_type<T>) {
    real_t<T> reals{};
    routine(kColumns, job, uplo, narrow(n), a, leading(lda), w, &size, -1, &reals, -1, &integers, -1);
    lapack_int lwork = work_size(size), lreal = work_size(reals);
    std::vector<T> work = workspace<T>(lwork);
    std::vector<real_t<T>> real = workspace<real_t<T>>(lreal);
    std::vector<lapack_int> iwork = workspace<lapack_int>(integers);
    return routine(kColumns, job, uplo, narrow(n), a, leading(lda), w, work.data(), lwork, real.data(), lreal,
                   iwork.data(), integers);
  } else {
    lapack_int lwork = narrow(1 + 6 * n + 2 * n * n);  // LAPACK's least, and all that small matrices can use
    integers = narrow(3 + 5 * n);
    if (n > kSmall) {
      routine(kColumns, job, uplo, narrow(n), a, leading(lda), w, &size, -1, &integers, -1);
      lwork = work_size(size);
    }
    std::vector<T> work = workspace<T>(lwork);
    std::vector<lapack_int> iwork = workspace<lapack_int>(integers);
    return routine(kColumns, job, uplo, narrow(n), a, leading(lda), w, work.data(), lwork, iwork.data(), integers);
  }
}

template <class T>
int geev(int64_t n, T* a, int64_t lda, std::complex<real_t<T>>* w, std::complex<real_t<T>>* v) {
  TG_LAPACK(T, geev);
  char job = v ? 'V' : 'N';
  T none{};
  if constexpr (is_complex_type<T>) {
    std::vector<real_t<T>> real = workspace<real_t<T>>(narrow(2 * n));
    return with_workspace<T>([&](T* work, lapack_int lwork) {
      return routine(kColumns, 'N', job, narrow(n), a, leading(lda), w, &none, 1, v ? v : &none, leading(n), work,
                     lwork, real.data());
    });
  } else {
    size_t count = static_cast<size_t>(n);
    std::vector<T> re(count), im(count), vectors(v ? count * count : 1);
    int info = with_workspace<T>([&](T* work, lapack_int lwork) {
      return routine(kColumns, 'N', job, narrow(n), a, leading(lda), re.data(), im.data(), &none, 1, vectors.data(),
                     leading(n), work, lwork);
    });
    for (size_t i = 0; i < count; ++i) w[i] = {re[i], im[i]};
    // A conjugate pair of eigenvectors comes as the real and the imaginary part of the first.
    for (size_t j = 0; v && j < count; ++j) {
      bool pair = im[j] != T(0) && j + 1 < count;
      for (size_t i = 0; i < count; ++i) {
        T x = vectors[j * count + i], y = pair ? vectors[(j + 1) * count + i] : T(0);
        v[j * count + i] = {x, y};
        if (pair) v[(j + 1) * count + i] = {x, -y};
      }
      j += pair;
    }
    return info;
  }
}

template <class T>
int gels(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, T* b, int64_t ldb) {
  TG_LAPACK(T, gels);
  return with_workspace<T>([&](T* work, lapack_int lwork) {
    return routine(kColumns, 'N', narrow(m), narrow(n), narrow(k), a, leading(lda), b, leading(ldb), work, lwork);
  });
}

template <class T>
int gelsy(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, T* b, int64_t ldb, real_t<T> rcond, int* rank) {
  TG_LAPACK(T, gelsy);
  std::vector<lapack_int> order = workspace<lapack_int>(narrow(n));
  std::vector<real_t<T>> real = workspace<real_t<T>>(narrow(2 * n));
  auto call = [&](T* work, lapack_int lwork) {
    if constexpr (is_complex_type<T>)
      return routine(kColumns, narrow(m), narrow(n), narrow(k), a, leading(lda), b, leading(ldb), order.data(), rcond,
                     rank, work, lwork, real.data());
    else
      return routine(kColumns, narrow(m), narrow(n), narrow(k), a, leading(lda), b, leading(ldb), order.data(), rcond,
                     rank, work, lwork);
  };
  return with_workspace<T>(call);
}

template <class T>
int gelsd(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, T* b, int64_t ldb, real_t<T>* s, real_t<T> rcond,
          int* rank) {
  TG_LAPACK(T, gelsd);
  lapack_int integers = 1;
  T size{};
  if constexpr (is_complex_type<T>) {
    real_t<T> reals{};
    routine(kColumns, narrow(m), narrow(n), narrow(k), a, leading(lda), b, leading(ldb), s, rcond, rank, &size, -1,
            &reals, &integers);
    lapack_int lwork = work_size(size);
    std::vector<T> work = workspace<T>(lwork);
    std::vector<real_t<T>> real = workspace<real_t<T>>(work_size(reals));
    std::vector<lapack_int> iwork = workspace<lapack_int>(integers);
    return routine(kColumns, narrow(m), narrow(n), narrow(k), a, leading(lda), b, leading(ldb), s, rcond, rank,
                   work.data(), lwork, real.data(), iwork.data());
  } else {
    routine(kColumns, narrow(m), narrow(n), narrow(k), a, leading(lda), b, leading(ldb), s, rcond, rank, &size, -1,
            &integers);
    lapack_int lwork = work_size(size);
    std::vector<T> work = workspace<T>(lwork);
    std::vector<lapack_int> iwork = workspace<lapack_int>(integers);
    return routine(kColumns, narrow(m), narrow(n), narrow(k), a, leading(lda), b, leading(ldb), s, rcond, rank,
                   work.data(), lwork, iwork.data());
  }
}

template <class T>
int gelss(int64_t m, int64_t n, int64_t k, T* a, int64_t lda, T* b, int64_t ldb, real_t<T>* s, real_t<T> rcond,
          int* rank) {
  TG_LAPACK(T, gelss);
  std::vector<real_t<T>> real = workspace<real_t<T>>(narrow(5 * std::min(m, n)));
  auto call = [&](T* work, lapack_int lwork) {
    if constexpr (is_complex_type<T>)
      return routine(kColumns, narrow(m), narrow(n), narrow(k), a, leading(lda), b, leading(ldb), s, rcond, rank, work,
                     lwork, real.data());
    else
      return routine(kColumns, narrow(m), narrow(n), narrow(k), a, leading(lda), b, leading(ldb), s, rcond, rank, work,
                     lwork);
  };
  return with_workspace<T>(call);
}

template <class T>
int sytrf(bool hermitian, int64_t n, T* a, int64_t lda, int* pivots) {
  auto run = [&](auto routine) {
    return with_workspace<T>([&](T* work, lapack_int lwork) {
      return routine(kColumns, 'L', narrow(n), a, leading(lda), pivots, work, lwork);
    });
  };
  if constexpr (is_complex_type<T>) {
    if (hermitian) {
      TG_LAPACK2(T, sytrf, hetrf);
      return run(routine);
    }
  }
  TG_LAPACK(T, sytrf);
  return run(routine);
}

template <class T>
int sytrs(bool hermitian, int64_t n, int64_t k, const T* a, int64_t lda, const int* pivots, T* b, int64_t ldb) {
  if constexpr (is_complex_type<T>) {
    if (hermitian) {
      TG_LAPACK2(T, sytrs, hetrs);
      return routine(kColumns, 'L', narrow(n), narrow(k), a, leading(lda), pivots, b, leading(ldb));
    }
  }
  TG_LAPACK(T, sytrs);
  return routine(kColumns, 'L', narrow(n), narrow(k), a, leading(lda), pivots, b, leading(ldb));
}

#define TG_INSTANTIATE(T)                                                                                      \
  template int potrf<T>(char, int64_t, T*, int64_t);                                                           \
  template int getrf<T>(int64_t, int64_t, T*, int64_t, int*);                                                  \
  template int getrs<T>(char, int64_t, int64_t, const T*, int64_t, const int*, T*, int64_t);                   \
  template int getri<T>(int64_t, T*, int64_t, const int*);                                                     \
  template void trsm<T>(char, char, char, char, int64_t, int64_t, const T*, int64_t, T*, int64_t);             \
  template void gemm<T>(char, char, int64_t, int64_t, int64_t, T, const T*, int64_t, const T*, int64_t, T, T*, \
                        int64_t);                                                                              \
  template int geqrf<T>(int64_t, int64_t, T*, int64_t, T*);                                                    \
  template int orgqr<T>(int64_t, int64_t, int64_t, T*, int64_t, const T*);                                     \
  template int gesdd<T>(char, int64_t, int64_t, T*, int64_t, real_t<T>*, T*, int64_t, T*, int64_t);            \
  template int syevd<T>(char, char, int64_t, T*, int64_t, real_t<T>*);                                         \
  template int geev<T>(int64_t, T*, int64_t, std::complex<real_t<T>>*, std::complex<real_t<T>>*);              \
  template int gels<T>(int64_t, int64_t, int64_t, T*, int64_t, T*, int64_t);                                   \
  template int gelsy<T>(int64_t, int64_t, int64_t, T*, int64_t, T*, int64_t, real_t<T>, int*);                 \
  template int gelsd<T>(int64_t, int64_t, int64_t, T*, int64_t, T*, int64_t, real_t<T>*, real_t<T>, int*);     \
  template int gelss<T>(int64_t, int64_t, int64_t, T*, int64_t, T*, int64_t, real_t<T>*, real_t<T>, int*);     \
  template int sytrf<T>(bool, int64_t, T*, int64_t, int*);                                                     \
  template int sytrs<T>(bool, int64_t, int64_t, const T*, int64_t, const int*, T*, int64_t);
TG_INSTANTIATE(float)
TG_INSTANTIATE(double)
TG_INSTANTIATE(complex64_t)
TG_INSTANTIATE(complex128_t)

}  // namespace tapegrad::lapack
