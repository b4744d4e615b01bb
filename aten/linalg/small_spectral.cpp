#include "tapegrad/aten/linalg/small_spectral.h"

#include <complex>

#include "tapegrad/c10/kernel_table.h"

namespace tapegrad {

#define TG_SMALL(isa, T)                                                      \
  namespace cpu::isa {                                                        \
  bool small_eigh_kernel(char, int64_t, const T*, T*, T*);                    \
  bool small_svd_kernel(int64_t, int64_t, const T*, T*, T*, T*, int64_t);     \
  bool small_qr_kernel(int64_t, int64_t, const T*, int64_t, T*, int64_t, T*); \
  }
#ifdef TG_HAVE_ISA_GENERIC
TG_SMALL(generic, float)
TG_SMALL(generic, double)
#endif
#ifdef TG_HAVE_ISA_AVX2
TG_SMALL(avx2, float)
TG_SMALL(avx2, double)
#endif
#ifdef TG_HAVE_ISA_AVX512
TG_SMALL(avx512, float)
TG_SMALL(avx512, double)
#endif
#undef TG_SMALL

namespace {

template <class T>
struct Kernels {
  bool (*eigh)(char, int64_t, const T*, T*, T*) = nullptr;
  bool (*svd)(int64_t, int64_t, const T*, T*, T*, T*, int64_t) = nullptr;
  bool (*qr)(int64_t, int64_t, const T*, int64_t, T*, int64_t, T*) = nullptr;

  Kernels() {
    [[maybe_unused]] const Isa isa = cpu_isa();
#ifdef TG_HAVE_ISA_GENERIC
    eigh = &cpu::generic::small_eigh_kernel, svd = &cpu::generic::small_svd_kernel, qr = &cpu::generic::small_qr_kernel;
#endif
#ifdef TG_HAVE_ISA_AVX2
    if (isa >= Isa::Avx2)
      eigh = &cpu::avx2::small_eigh_kernel, svd = &cpu::avx2::small_svd_kernel, qr = &cpu::avx2::small_qr_kernel;
#endif
#ifdef TG_HAVE_ISA_AVX512
    if (isa >= Isa::Avx512)
      eigh = &cpu::avx512::small_eigh_kernel, svd = &cpu::avx512::small_svd_kernel, qr = &cpu::avx512::small_qr_kernel;
#endif
  }

  static const Kernels& instance() {
    static const Kernels chosen;
    return chosen;
  }
};

}  // namespace

template <class T>
bool small_eigh(char uplo, int64_t n, const T* a, T* values, T* vectors) {
  const auto kernel = Kernels<T>::instance().eigh;
  return n <= kSmallEigen && kernel != nullptr && kernel(uplo, n, a, values, vectors);
}

template <class T>
bool small_svd(int64_t m, int64_t n, const T* a, T* u, T* s, T* vt) {
  const auto kernel = Kernels<T>::instance().svd;
  if (m > kSmallSvd || n > kSmallSvd || kernel == nullptr) return false;
  // The kernel wants at least as many rows as columns: a^T = v diag(s) u^T otherwise, read by rows.
  return m >= n ? kernel(m, n, a, u, s, vt, 0) : kernel(n, m, a, u, s, vt, 1);
}

template <class T>
bool small_qr(int64_t m, int64_t n, const T* a, int64_t columns, T* q, int64_t rows, T* r) {
  const auto kernel = Kernels<T>::instance().qr;
  return m <= kSmallEigen && n <= kSmallEigen && kernel != nullptr && kernel(m, n, a, columns, q, rows, r);
}

#define TG_INSTANTIATE(T)                                             \
  template bool small_eigh<T>(char, int64_t, const T*, T*, T*);       \
  template bool small_svd<T>(int64_t, int64_t, const T*, T*, T*, T*); \
  template bool small_qr<T>(int64_t, int64_t, const T*, int64_t, T*, int64_t, T*);
TG_INSTANTIATE(float)
TG_INSTANTIATE(double)

}  // namespace tapegrad
