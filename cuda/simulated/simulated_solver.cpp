#include "tapegrad/cuda/simulated/simulated_solver.h"

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstring>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/linalg/factor/solver.h"
#include "tapegrad/cuda/linalg/spectral.h"
#include "tapegrad/cuda/simulated/launch.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"

namespace tapegrad::cuda::simulated {

using namespace solver_api;

namespace {

constexpr int kInvalid = 3, kInternal = 7;
constexpr size_t kHostBytes = 64;

struct State {
  std::mutex mutex;
  std::map<std::string, uint64_t> calls;
  std::map<std::string, std::pair<int, int>> failures;  // status, times
};
State& state() {
  static auto& it = *new State;
  return it;
}
struct Handle {
  StreamHandle stream = nullptr;
  void* workspace = nullptr;
  size_t bytes = 0;
  bool deterministic = false;
};

// Whether calls that may allocate or load code are possible, or invalidate what this thread or another one captures.
bool is_permitted(const char* name) {
  try {
    simulated_driver().forbid_in_capture(name);
    return true;
  } catch (const Error&) {
    return false;
  }
}

// Counts a call: what it gives if a test wants it to fail, or the stream is being captured.
int enter(const char* name, const void* handle, bool capturable = false) {
  if (!is_permitted(name)) return kInternal;
  const std::lock_guard lock(state().mutex);
  ++state().calls[name];
  if (const auto at = state().failures.find(name); at != state().failures.end()) {
    const int status = at->second.first;
    if (--at->second.second == 0) state().failures.erase(at);
    return status;
  }
  const bool captured =
      !capturable && handle != nullptr &&
      simulated_driver().capture_state(static_cast<const Handle*>(handle)->stream) != CaptureState::None;
  return captured ? kInternal : kSuccess;
}

template <class T>
using real_t = math::real_t<T>;
template <class T>
T conjugate(const T& x) {
  if constexpr (is_complex_type<T>)
    return std::conj(x);
  else
    return x;
}

// A matrix in memory; element (row, column).
template <class T>
struct View {
  T* data;
  int64_t row, col;
  bool conj = false;
  T& operator()(int64_t i, int64_t j) const { return data[i * row + j * col]; }
  T at(int64_t i, int64_t j) const { return conj ? conjugate((*this)(i, j)) : (*this)(i, j); }
};

// `exact`: pivots by absolute values, as cuBLAS chooses them, instead of LAPACK's sums of real and imaginary parts.
template <class T>
int lu(View<T> a, int64_t m, int64_t n, int64_t* pivots, bool exact = false) {
  int info = 0;
  const auto size = [&](int64_t i, int64_t j) {
    return exact ? std::abs(a(i, j)) : std::abs(std::real(a(i, j))) + std::abs(std::imag(a(i, j)));
  };
  for (int64_t j = 0; j < std::min(m, n); ++j) {
    int64_t p = j;
    for (int64_t i = j + 1; i < m; ++i)
      if (size(i, j) > size(p, j)) p = i;
    pivots[j] = p + 1;
    if (a(p, j) == T(0)) {
      if (info == 0) info = static_cast<int>(j + 1);
      continue;
    }
    for (int64_t k = 0; k < n; ++k) std::swap(a(j, k), a(p, k));
    for (int64_t i = j + 1; i < m; ++i) a(i, j) /= a(j, j);
    for (int64_t k = j + 1; k < n; ++k)
      for (int64_t i = j + 1; i < m; ++i) a(i, k) -= a(i, j) * a(j, k);
  }
  return info;
}

template <class T>
void substitute(View<T> a, bool upper, bool unit, int64_t n, int64_t k, View<T> x) {
  for (int64_t c = 0; c < k; ++c)
    for (int64_t step = 0; step < n; ++step) {
      const int64_t j = upper ? n - 1 - step : step;
      if (!unit) x(j, c) /= a.at(j, j);
      for (int64_t i = upper ? 0 : j + 1; i < (upper ? j : n); ++i) x(i, c) -= a.at(i, j) * x(j, c);
    }
}

template <class T>
void lu_solve(View<T> a, const int64_t* pivots, bool transposed, int64_t n, int64_t k, View<T> x) {
  const auto exchange = [&](int64_t i) {
    for (int64_t c = 0; c < k; ++c) std::swap(x(i, c), x(pivots[i] - 1, c));
  };
  if (!transposed) {
    for (int64_t i = 0; i < n; ++i) exchange(i);
    substitute(a, false, true, n, k, x);
    substitute(a, true, false, n, k, x);
    return;
  }
  const View<T> turned{a.data, a.col, a.row, true};
  substitute(turned, false, false, n, k, x);
  substitute(turned, true, true, n, k, x);
  for (int64_t i = n; i-- > 0;) exchange(i);
}

// Of the lower triangle; the upper one is that of the transposed matrix.
template <class T>
int cholesky(View<T> a, int64_t n) {
  for (int64_t j = 0; j < n; ++j) {
    const real_t<T> d = std::real(a(j, j));
    if (d <= 0) return static_cast<int>(j + 1);  // whether the library notices NaN is not known
    for (int64_t i = j; i < n; ++i) a(i, j) = i == j ? T(std::sqrt(d)) : a(i, j) / std::sqrt(d);
    for (int64_t k = j + 1; k < n; ++k)
      for (int64_t i = k; i < n; ++i) a(i, k) -= a(i, j) * conjugate(a(k, j));
  }
  return 0;
}

// c = (I - tau v v^H) c, where v is 1 in row j, and below it what column j of a holds.
template <class T>
void reflect(View<T> a, int64_t j, int64_t m, T tau, View<T> c, int64_t column) {
  T sum = c(j, column);
  for (int64_t i = j + 1; i < m; ++i) sum += conjugate(a(i, j)) * c(i, column);
  sum *= tau;
  c(j, column) -= sum;
  for (int64_t i = j + 1; i < m; ++i) c(i, column) -= a(i, j) * sum;
}

template <class T>
void qr(View<T> a, int64_t m, int64_t n, T* taus) {
  for (int64_t j = 0; j < std::min(m, n); ++j) {
    real_t<T> below = 0;
    for (int64_t i = j + 1; i < m; ++i) below = std::hypot(below, std::abs(a(i, j)));
    const T alpha = a(j, j);
    taus[j] = T(0);
    if (below == 0 && std::imag(alpha) == 0) continue;
    const real_t<T> beta = -std::copysign(std::hypot(std::abs(alpha), below), std::real(alpha));
    taus[j] = (T(beta) - alpha) / beta;
    for (int64_t i = j + 1; i < m; ++i) a(i, j) /= alpha - T(beta);
    a(j, j) = T(beta);
    for (int64_t k = j + 1; k < n; ++k) reflect(a, j, m, conjugate(taus[j]), a, k);
  }
}

template <class T>
void reflections(View<T> a, int64_t m, int64_t n, int64_t many, const T* taus) {
  std::vector<T> copy(static_cast<size_t>(m * many));
  const View<T> v{copy.data(), 1, m};
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < m; ++i) {
      if (j < many) v(i, j) = a(i, j);
      a(i, j) = T(i == j ? 1 : 0);
    }
  for (int64_t j = many; j-- > 0;)
    for (int64_t k = j; k < n; ++k) reflect(v, j, m, taus[j], a, k);
}

// Jacobi's rotations: the eigenvalues in ascending order, their vectors in the columns of v.
template <class T>
std::vector<real_t<T>> hermitian(View<T> a, int64_t n, View<T> v) {
  std::vector<T> vectors(static_cast<size_t>(n * n));
  const View<T> w{vectors.data(), 1, n};
  for (int64_t i = 0; i < n; ++i) w(i, i) = T(1);
  for (int sweep = 0; sweep < 16; ++sweep)
    for (int64_t p = 0; p < n; ++p)
      for (int64_t q = p + 1; q < n; ++q) {
        const real_t<T> size = std::abs(a(p, q));
        using Limits = std::numeric_limits<real_t<T>>;
        if (size < Limits::min() / Limits::epsilon()) continue;  // its phase would not be exact
        const T phase = conjugate(a(p, q) / size);               // times column q: element (p, q) becomes real
        const real_t<T> theta = (std::real(a(q, q)) - std::real(a(p, p))) / (2 * size);
        const real_t<T> t = std::copysign(1 / (std::abs(theta) + std::hypot(theta, real_t<T>(1))), theta);
        const real_t<T> c = 1 / std::hypot(t, real_t<T>(1)), s = t * c;
        const auto turn = [&](T& x, T& y, const T& by) {
          const T old = x, turned = y * by;
          x = c * old - s * turned;
          y = s * old + c * turned;
        };
        for (int64_t i = 0; i < n; ++i) turn(a(i, p), a(i, q), phase);
        for (int64_t i = 0; i < n; ++i) turn(w(i, p), w(i, q), phase);
        for (int64_t i = 0; i < n; ++i) turn(a(p, i), a(q, i), conjugate(phase));
      }
  std::vector<int64_t> order(static_cast<size_t>(n));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](int64_t i) { return std::real(a(i, i)); });
  std::vector<real_t<T>> values;
  for (int64_t j = 0; j < n; ++j) {
    const int64_t from = order[static_cast<size_t>(j)];
    values.push_back(std::real(a(from, from)));
    for (int64_t i = 0; i < n; ++i) v(i, j) = w(i, from);
  }
  return values;
}

// The singular values of a are the positive eigenvalues of [0 a; a^H 0], whose vectors are (u, v) / sqrt(2); those of
// zero are (u, 0) for an a of full rank.
template <class T>
void singular(View<T> a, int64_t m, int64_t n, real_t<T>* values, View<T> u, int64_t u_columns, View<T> vh) {
  const int64_t all = m + n;
  std::vector<T> both(static_cast<size_t>(all * all)), vectors(both.size());
  const View<T> b{both.data(), 1, all}, w{vectors.data(), 1, all};
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < m; ++i) {
      b(i, m + j) = a(i, j);
      b(m + j, i) = conjugate(a(i, j));
    }
  const std::vector<real_t<T>> found = hermitian(b, all, w);
  for (int64_t j = 0; j < m; ++j) {
    const int64_t from = all - 1 - j;
    if (j < n) values[j] = found[static_cast<size_t>(from)];
    const real_t<T> scale = j < n ? std::sqrt(real_t<T>(2)) : real_t<T>(1);
    for (int64_t i = 0; j < u_columns && i < m; ++i) u(i, j) = w(i, from) * scale;
    for (int64_t i = 0; u_columns > 0 && j < n && i < n; ++i) vh(j, i) = conjugate(w(m + i, from)) * scale;
  }
}

template <class F>
void dispatch(int type, F&& f) {
  switch (type) {
    case kFloat:
      return f.template operator()<float>();
    case kDouble:
      return f.template operator()<double>();
    case kComplexFloat:
      return f.template operator()<std::complex<float>>();
    default:
      return f.template operator()<std::complex<double>>();
  }
}

// Queues f.operator()<T>() of the type, which finds `bytes` of workspace to its use.
template <class F>
void queue(const void* handle, const char* name, int type, void* workspace, size_t bytes, F f) {
  enqueue(static_cast<const Handle*>(handle)->stream, name, [=] {
    if (bytes != 0) std::memset(workspace, 0xab, bytes);
    dispatch(type, f);
  });
}
size_t device_bytes(int64_t m, int64_t n) { return static_cast<size_t>(m + n) * 64; }
// What the workspaces of a call are worth, of which the host's is used at once.
int check_workspaces(void* device, size_t bytes, size_t wanted, void* host, size_t host_bytes) {
  if (device == nullptr || bytes < wanted || host == nullptr || host_bytes < kHostBytes) return kInvalid;
  std::memset(host, 0xab, kHostBytes);
  return kSuccess;
}
template <class T>
View<T> view(const void* data, int64_t ld) {
  return {static_cast<T*>(const_cast<void*>(data)), 1, ld};
}

#define TG_ENTER(name, ...)                                                                                 \
  if (const int status = enter(name, handle __VA_OPT__(, ) __VA_ARGS__); status != kSuccess) return status; \
  if (!static_cast<const Handle*>(handle)->deterministic) return kInternal
#define TG_REQUIRE(condition) \
  if (!(condition)) return kInvalid

// The sizes of factors, whatever is asked for.
int bytes_of(int64_t m, int64_t n, int64_t lda, int type, int compute, size_t* device, size_t* host) {
  TG_REQUIRE(m >= 0 && n >= 0 && lda >= std::max<int64_t>(m, 1) && type == compute);
  *device = device_bytes(m, n);
  *host = kHostBytes;
  return kSuccess;
}

int get_lu(void* handle, void*, int64_t m, int64_t n, int type, void* a, int64_t lda, int64_t* pivots, int compute,
           void* device, size_t bytes, void* host, size_t host_bytes, int* info) {
  TG_ENTER("lu");
  TG_REQUIRE(m > 0 && n > 0 && lda >= m && type == compute && pivots != nullptr);
  TG_REQUIRE(check_workspaces(device, bytes, device_bytes(m, n), host, host_bytes) == kSuccess);
  queue(handle, "lu", type, device, bytes, [=]<class T>() {
    const View<T> all = view<T>(a, lda);
    for (int64_t i = 0; i < m; ++i) {  // what becomes of a row with NaN, seen on an H100
      bool lost = false;
      for (int64_t j = 0; j < n; ++j) lost |= math::isnan(all(i, j));
      for (int64_t j = 0; lost && j < n; ++j) all(i, j) = T(0);
    }
    *info = lu(all, m, n, pivots);
  });
  return kSuccess;
}
int get_lu_solve(void* handle, void*, int operation, int64_t n, int64_t k, int type, const void* a, int64_t lda,
                 const int64_t* pivots, int type_b, void* b, int64_t ldb, int* info) {
  TG_ENTER("lu_solve");
  TG_REQUIRE(n > 0 && k > 0 && lda >= n && ldb >= n && type == type_b && pivots != nullptr);
  TG_REQUIRE(operation == kPlain || (operation == kAdjoint) == (type == kComplexFloat || type == kComplexDouble));
  queue(handle, "lu_solve", type, nullptr, 0, [=]<class T>() {
    lu_solve(view<T>(a, lda), pivots, operation != kPlain, n, k, view<T>(b, ldb));
    *info = 0;
  });
  return kSuccess;
}
int get_cholesky(void* handle, void*, int fill, int64_t n, int type, void* a, int64_t lda, int compute, void* device,
                 size_t bytes, void* host, size_t host_bytes, int* info) {
  TG_ENTER("cholesky");
  TG_REQUIRE(n > 0 && lda >= n && type == compute);
  TG_REQUIRE(check_workspaces(device, bytes, device_bytes(n, n), host, host_bytes) == kSuccess);
  queue(handle, "cholesky", type, device, bytes, [=]<class T>() {
    View<T> all = view<T>(a, lda);
    if (fill == kUpper) std::swap(all.row, all.col);
    *info = cholesky(all, n);
  });
  return kSuccess;
}
int get_qr(void* handle, void*, int64_t m, int64_t n, int type, void* a, int64_t lda, int type_tau, void* tau,
           int compute, void* device, size_t bytes, void* host, size_t host_bytes, int* info) {
  TG_ENTER("qr");
  TG_REQUIRE(m > 0 && n > 0 && lda >= m && type == compute && type == type_tau);
  TG_REQUIRE(check_workspaces(device, bytes, device_bytes(m, n), host, host_bytes) == kSuccess);
  queue(handle, "qr", type, device, bytes, [=]<class T>() {
    qr(view<T>(a, lda), m, n, static_cast<T*>(tau));
    *info = 0;
  });
  return kSuccess;
}

int get_reflections_size(void* handle, int m, int n, int k, const void*, int lda, const void*, int* elements) {
  TG_ENTER("reflections_size");
  TG_REQUIRE(n > 0 && m >= n && n >= k && k > 0 && lda >= m);
  *elements = m + n;
  return kSuccess;
}
template <class T>
int get_reflections(void* handle, int m, int n, int k, void* a, int lda, const void* tau, void* device, int elements,
                    int* info) {
  TG_ENTER("reflections");
  TG_REQUIRE(n > 0 && m >= n && n >= k && k > 0 && lda >= m && device != nullptr && elements >= m + n);
  enqueue(static_cast<Handle*>(handle)->stream, "reflections", [=] {
    std::memset(device, 0xab, static_cast<size_t>(elements) * sizeof(T));
    reflections(view<T>(a, lda), m, n, k, static_cast<const T*>(tau));
    *info = 0;
  });
  return kSuccess;
}
template <class T>
int get_substitute(void* handle, int side, int fill, int operation, int diagonal, int64_t m, int64_t n,
                   const void* alpha, const void* a, int64_t lda, void* b, int64_t ldb) {
  TG_ENTER("substitute", true);
  TG_REQUIRE(side == kLeft && m > 0 && n > 0 && lda >= m && ldb >= m && *static_cast<const T*>(alpha) == T(1));
  const Handle& h = *static_cast<Handle*>(handle);
  TG_REQUIRE(h.workspace != nullptr);
  enqueue(h.stream, "substitute", [=, workspace = h.workspace, bytes = h.bytes] {
    std::memset(workspace, 0xab, bytes);
    View<T> all = view<T>(a, lda);
    if (operation != kPlain) std::swap(all.row, all.col);
    substitute(all, (fill == kUpper) == (operation == kPlain), diagonal == kUnitDiagonal, m, n, view<T>(b, ldb));
  });
  return kSuccess;
}

// Many matrices: their addresses are read when the work runs.
template <class T>
View<T> view_at(const void* addresses, int64_t i, int64_t ld) {
  return view<T>(static_cast<T* const*>(addresses)[i], ld);
}
template <class F>
int queue_many(const void* handle, const char* name, int count, F f) {
  enqueue(static_cast<const Handle*>(handle)->stream, name, [=] {
    for (int64_t i = 0; i < count; ++i) f(i);
  });
  return kSuccess;
}
template <class T>
int get_substitute_many(void* handle, int side, int fill, int operation, int diagonal, int m, int n, const void* alpha,
                        const void* a, int lda, const void* b, int ldb, int count) {
  TG_ENTER("substitute_many", true);
  TG_REQUIRE(side == kLeft && m > 0 && n > 0 && lda >= m && ldb >= m && *static_cast<const T*>(alpha) == T(1));
  return queue_many(handle, "substitute_many", count, [=](int64_t i) {
    View<T> all = view_at<T>(a, i, lda);
    if (operation != kPlain) std::swap(all.row, all.col);
    substitute(all, (fill == kUpper) == (operation == kPlain), diagonal == kUnitDiagonal, m, n, view_at<T>(b, i, ldb));
  });
}
template <class T>
int get_lu_many(void* handle, int n, const void* a, int lda, int* pivots, int* info, int count) {
  TG_ENTER("lu_many", true);
  TG_REQUIRE(n > 0 && lda >= n && pivots != nullptr && info != nullptr);
  return queue_many(handle, "lu_many", count, [=](int64_t i) {
    std::vector<int64_t> wide(static_cast<size_t>(n));
    info[i] = lu(view_at<T>(a, i, lda), n, n, wide.data(), true);
    std::ranges::copy(wide, pivots + i * n);
  });
}
template <class T>
int get_lu_solve_many(void* handle, int operation, int n, int k, const void* a, int lda, const int* pivots,
                      const void* b, int ldb, int* info, int count) {
  TG_ENTER("lu_solve_many", true);
  TG_REQUIRE(n > 0 && k > 0 && lda >= n && ldb >= n && pivots != nullptr);
  TG_REQUIRE(operation == kPlain || (operation == kAdjoint) == is_complex_type<T>);
  *info = 0;
  return queue_many(handle, "lu_solve_many", count, [=](int64_t i) {
    const std::vector<int64_t> wide(pivots + i * n, pivots + (i + 1) * n);
    lu_solve(view_at<T>(a, i, lda), wide.data(), operation != kPlain, n, k, view_at<T>(b, i, ldb));
  });
}
template <class T>
int get_cholesky_many(void* handle, int fill, int n, void* a, int lda, int* info, int count) {
  TG_ENTER("cholesky_many");
  TG_REQUIRE(n > 0 && lda >= n && info != nullptr);
  return queue_many(handle, "cholesky_many", count, [=](int64_t i) {
    View<T> all = view_at<T>(a, i, lda);
    if (fill == kUpper) std::swap(all.row, all.col);
    info[i] = cholesky(all, n);
    for (int64_t j = 1; j < n; ++j)  // the other triangle is scratch memory
      for (int64_t p = 0; p < j; ++p) all(p, j) = T(0xab);
  });
}

int get_hermitian(void* handle, void*, int mode, int fill, int64_t n, int type, void* a, int64_t lda, int, void* w,
                  int compute, void* device, size_t bytes, void* host, size_t host_bytes, int* info) {
  TG_ENTER("hermitian");
  TG_REQUIRE(n > 0 && lda >= n && type == compute && fill == kLower);
  TG_REQUIRE(check_workspaces(device, bytes, device_bytes(n, n), host, host_bytes) == kSuccess);
  queue(handle, "hermitian", type, device, bytes, [=]<class T>() {
    std::vector<T> copy(static_cast<size_t>(n * n));
    const View<T> whole{copy.data(), 1, n}, from = view<T>(a, lda);
    for (int64_t j = 0; j < n; ++j)
      for (int64_t i = j; i < n; ++i) whole(j, i) = conjugate(whole(i, j) = from(i, j));
    std::vector<T> unwanted(copy.size());
    std::ranges::copy(hermitian(whole, n, mode == kVectors ? from : View<T>{unwanted.data(), 1, n}),
                      static_cast<real_t<T>*>(w));
    *info = 0;
  });
  return kSuccess;
}
int get_singular(void* handle, void*, signed char u_job, signed char vt_job, int64_t m, int64_t n, int type, void* a,
                 int64_t lda, int, void* s, int, void* u, int64_t ldu, int, void* vt, int64_t ldvt, int compute,
                 void* device, size_t bytes, void* host, size_t host_bytes, int* info) {
  TG_ENTER("singular");
  TG_REQUIRE(m >= n && n > 0 && lda >= m && type == compute && (u_job == 'N') == (vt_job == 'N'));
  TG_REQUIRE(u_job == 'N' || (ldu >= m && ldvt >= n && u != nullptr && vt != nullptr));
  TG_REQUIRE(check_workspaces(device, bytes, device_bytes(m, n), host, host_bytes) == kSuccess);
  queue(handle, "singular", type, device, bytes, [=]<class T>() {
    singular(view<T>(a, lda), m, n, static_cast<real_t<T>*>(s), view<T>(u, ldu),
             u_job == 'N'   ? int64_t{0}
             : u_job == 'A' ? m
                            : n,
             view<T>(vt, ldvt));
    *info = 0;
  });
  return kSuccess;
}

int create(void** handle) {
  if (const int status = enter("create", nullptr); status != kSuccess) return status;
  *handle = new Handle;
  return kSuccess;
}
int create_blas(void** handle) {
  if (const int status = enter("create_blas", nullptr); status != kSuccess) return status;
  *handle = new Handle{.deterministic = true};
  return kSuccess;
}
int set_stream(void* handle, void* stream) {
  auto& h = *static_cast<Handle*>(handle);
  h.stream = static_cast<StreamHandle>(stream);
  h.workspace = nullptr;  // cuBLAS goes back to its own
  return kSuccess;
}

#define TG_EACH(f) {f<float>, f<double>, f<std::complex<float>>, f<std::complex<double>>}
const Functions* functions() {
  static const Functions all = {
      .create = create,
      .create_params = [](void** params) { return *params = &state(), kSuccess; },
      .set_stream = set_stream,
      .set_deterministic = [](void* handle,
                              int mode) { return static_cast<Handle*>(handle)->deterministic = mode == 1, kSuccess; },
      .lu_bytes = [](void*, void*, int64_t m, int64_t n, int type, const void*, int64_t lda, int compute,
                     size_t* device, size_t* host) { return bytes_of(m, n, lda, type, compute, device, host); },
      .lu = get_lu,
      .lu_solve = get_lu_solve,
      .cholesky_bytes = [](void*, void*, int, int64_t n, int type, const void*, int64_t lda, int compute,
                           size_t* device, size_t* host) { return bytes_of(n, n, lda, type, compute, device, host); },
      .cholesky = get_cholesky,
      .qr_bytes = [](void*, void*, int64_t m, int64_t n, int type, const void*, int64_t lda, int, const void*,
                     int compute, size_t* device,
                     size_t* host) { return bytes_of(m, n, lda, type, compute, device, host); },
      .qr = get_qr,
      .reflections_size = {get_reflections_size, get_reflections_size, get_reflections_size, get_reflections_size},
      .reflections = TG_EACH(get_reflections),
      .hermitian_bytes = [](void*, void*, int, int, int64_t n, int type, const void*, int64_t lda, int, const void*,
                            int compute, size_t* device,
                            size_t* host) { return bytes_of(n, n, lda, type, compute, device, host); },
      .hermitian = get_hermitian,
      .singular_bytes = [](void*, void*, signed char, signed char, int64_t m, int64_t n, int type, const void*,
                           int64_t lda, int, const void*, int, const void*, int64_t, int, const void*, int64_t,
                           int compute, size_t* device,
                           size_t* host) { return bytes_of(m, n, lda, type, compute, device, host); },
      .singular = get_singular,
      .general_bytes = [](void*, void*, int, int, int64_t, int, const void*, int64_t, int, const void*, int,
                          const void*, int64_t, int, const void*, int64_t, int, size_t*,
                          size_t*) { return enter("general_bytes", nullptr), kNotSupported; },
      .general = nullptr,
      .create_blas = create_blas,
      .set_blas_stream = set_stream,
      .set_blas_workspace =
          [](void* handle, void* workspace, size_t bytes) {
            static_cast<Handle*>(handle)->workspace = workspace;
            static_cast<Handle*>(handle)->bytes = bytes;
            return kSuccess;
          },
      .substitute = TG_EACH(get_substitute),
      .substitute_many = TG_EACH(get_substitute_many),
      .lu_many = TG_EACH(get_lu_many),
      .lu_solve_many = TG_EACH(get_lu_solve_many),
      .cholesky_many = TG_EACH(get_cholesky_many),
  };
  return &all;
}

}  // namespace

void use_simulated_solver(bool on) {
  const std::lock_guard lock(state().mutex);
  state().calls.clear();
  state().failures.clear();
  use_solver(on ? &functions : nullptr);
  eigen_library.store(on ? &eigen_by_solver : nullptr);
}

uint64_t solver_calls(const std::string& name) {
  const std::lock_guard lock(state().mutex);
  return std::exchange(state().calls[name], 0);
}
void solver_fails(const std::string& name, int status, int times) {
  const std::lock_guard lock(state().mutex);
  state().failures[name] = {status, times};
}

}  // namespace tapegrad::cuda::simulated

// For tests in Python, by ctypes.
extern "C" {
TG_API void tapegrad_simulated_solver(int on) { tapegrad::cuda::simulated::use_simulated_solver(on != 0); }
TG_API uint64_t tapegrad_simulated_solver_calls(const char* name) {
  return tapegrad::cuda::simulated::solver_calls(name);
}
TG_API void tapegrad_simulated_solver_fails(const char* name, int status) {
  tapegrad::cuda::simulated::solver_fails(name, status);
}
}
