#include "tapegrad/aten/linalg/factor/small_spectral.h"

#include "tapegrad/c10/dispatch/each_isa.h"

namespace tapegrad {

#define TG_DECLARE_FOR(isa, T)                                                \
  namespace cpu::isa {                                                        \
  bool small_eigh_kernel(char, int64_t, const T*, T*, T*);                    \
  bool small_svd_kernel(int64_t, int64_t, const T*, T*, T*, T*, int64_t);     \
  bool small_qr_kernel(int64_t, int64_t, const T*, int64_t, T*, int64_t, T*); \
  }
#define TG_DECLARE(isa, level) TG_DECLARE_FOR(isa, float) TG_DECLARE_FOR(isa, double)
TG_EACH_ISA(TG_DECLARE)
#undef TG_DECLARE
#undef TG_DECLARE_FOR

namespace {

template <class T>
struct Kernels {
  bool (*eigh)(char, int64_t, const T*, T*, T*) = nullptr;
  bool (*svd)(int64_t, int64_t, const T*, T*, T*, T*, int64_t) = nullptr;
  bool (*qr)(int64_t, int64_t, const T*, int64_t, T*, int64_t, T*) = nullptr;

  Kernels() {
#define TG_CHOOSE(isa, level)            \
  if (cpu_isa() >= level) {              \
    eigh = &cpu::isa::small_eigh_kernel; \
    svd = &cpu::isa::small_svd_kernel;   \
    qr = &cpu::isa::small_qr_kernel;     \
  }
    TG_EACH_ISA(TG_CHOOSE)
#undef TG_CHOOSE
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
