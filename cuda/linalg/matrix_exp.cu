// The exponential of matrices by Padé approximants with scaling and squaring (aten/linalg/pade.h): a block of threads
// for each small matrix, with its own degree; larger ones by products of the whole batch, all of the degree that the
// largest needs, for which the host waits once.
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_maths.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_solve.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/linalg/pade.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/linalg/block_lu.h"
#include "tapegrad/cuda/linalg/spectral.h"

namespace tapegrad::cuda {
namespace {

constexpr int64_t kSmallExponential = 64;  // rows of matrices that a block works on
constexpr int kMatrices = 8;               // of a block's workspace

template <class R>
struct Degrees {
  int count = 0;
  pade::Degree degree[5];
  Degrees() {
    for (const pade::Degree& d : pade::degrees<R>()) degree[count++] = d;
  }
};

template <class T>
TG_DEVICE void block_product(int64_t n, const T* a, const T* b, T* c) {
  each_element(0, n, 0, n, [&](int64_t i, int64_t j) {
    T sum(0);
    for (int64_t k = 0; k < n; ++k) sum = math::add(sum, math::mul(a[i + k * n], b[k + j * n]));
    c[i + j * n] = sum;
  });
  block_sync();
}

// x = (V - U)^-1 (V + U) of x^2, x^4, ...: even powers in V, odd ones in U.
template <class T>
TG_DEVICE void block_approximate(const pade::Degree& d, int64_t n, T* x, int64_t ldx, T* space, int* pivots,
                                 Pivot<real_t<T>>* scratch) {
  using R = real_t<T>;
  const int64_t size = n * n;
  const int powers = d.degree == 13 ? 3 : d.degree / 2;
  T* const even = space;  // up to four
  T *const odd = space + 4 * size, *const v = odd + size, *const u = v + size, *const dense = u + size;
  block_load(x, 1, ldx, n, n, dense, n);
  block_product(n, dense, dense, even);
  for (int p = 1; p < powers; ++p) block_product(n, even, even + (p - 1) * size, even + p * size);
  const auto coefficient = [&](int k) { return static_cast<R>(d.b[k]); };
  const auto sum = [&](T* to, int first, bool add) {  // b[first] x^2 + b[first + 2] x^4 + ...
    each_element(0, n, 0, n, [&](int64_t i, int64_t j) {
      const int64_t e = i + j * n;
      T value = add ? to[e] : T(0);
      for (int p = 0; p < powers; ++p) value = math::add(value, times(coefficient(first + 2 * p), even[e + p * size]));
      to[e] = value;
    });
    block_sync();
  };
  if (d.degree == 13) {
    sum(u, 9, false);
    block_product(n, even + 2 * size, u, odd);
    sum(u, 8, false);
    block_product(n, even + 2 * size, u, v);
  }
  each_element(0, n, 0, n, [&](int64_t i, int64_t j) {
    const int64_t e = i + j * n;
    const T was_odd = d.degree == 13 ? odd[e] : T(0), was_v = d.degree == 13 ? v[e] : T(0);
    odd[e] = i == j ? math::add(was_odd, T(coefficient(1))) : was_odd;
    v[e] = i == j ? math::add(was_v, T(coefficient(0))) : was_v;
  });
  block_sync();
  sum(odd, 3, true);
  sum(v, 2, true);
  block_product(n, dense, odd, u);
  each_element(0, n, 0, n, [&](int64_t i, int64_t j) {
    const int64_t e = i + j * n;
    x[i + j * ldx] = math::add(v[e], u[e]);
    v[e] = math::sub(v[e], u[e]);
  });
  block_sync();
  block_lu(v, n, n, n, pivots, scratch);
  block_lu_solve<T>(v, 1, n, pivots, false, n, x, ldx, n);
}

template <class T>
TG_KERNEL void exponential_kernel(MatrixBatch<T> a, MatrixBatch<T> out, int64_t ld, Degrees<real_t<T>> degrees,
                                  T* space, int* all_pivots) {
  using R = real_t<T>;
  TG_SHARED(Pivot<R>, scratch, kWarp);
  TG_SHARED(double, norms, kWarp);
  const int64_t n = a.rows;
  T* const mine = space + block_index() * kMatrices * n * n;
  int* const pivots = all_pivots + block_index() * n;
  for (int64_t m = block_index(); m < a.count; m += grid_size()) {
    T* x = out[m];
    block_load(a[m], a.row, a.col, n, n, x, ld);
    double norm = 0;  // the 1-norm, or infinite for NaN, too
    for (int64_t j = thread_index(); j < n; j += block_size()) {
      double sum = 0;
      for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(math::abs(x[i + j * ld]));
      if (sum != sum) sum = std::numeric_limits<double>::infinity();
      norm = sum > norm ? sum : norm;
    }
    norm = block_reduce(norm, Largest(), norms);
    block_sync();
    if (!math::isfinite(norm)) {
      each_element(0, n, 0, n, [&](int64_t i, int64_t j) { x[i + j * ld] = T(std::numeric_limits<R>::quiet_NaN()); });
      continue;
    }
    int chosen = 0;
    while (chosen < degrees.count - 1 && norm > degrees.degree[chosen].theta) ++chosen;
    const pade::Degree& d = degrees.degree[chosen];
    const int squarings = norm > d.theta ? static_cast<int>(std::ceil(std::log2(norm / d.theta))) : 0;
    if (squarings > 0) {
      const R scale = static_cast<R>(std::ldexp(1.0, -squarings));
      each_element(0, n, 0, n, [&](int64_t i, int64_t j) { x[i + j * ld] = times(scale, x[i + j * ld]); });
      block_sync();
    }
    block_approximate(d, n, x, ld, mine, pivots, scratch);
    for (int s = 0; s < squarings; ++s) {
      block_load(x, 1, ld, n, n, mine, n);
      block_product(n, mine, mine, mine + n * n);
      block_load(mine + n * n, 1, n, n, n, x, ld);
    }
    block_sync();
  }
}

// The same for a batch of large matrices, by operators.
template <class R>
void exponential_of_large(const Tensor& A, const Tensor& out) {
  const Tensor norms = raw::amax(raw::sum(raw::to(raw::abs(A), DType::float64), IntSpan{-2}), IntSpan{-1});
  const Tensor finite = raw::isfinite(norms), known = raw::where(finite, norms, raw::zeros_like(norms));
  const double largest = raw::amax(known).item<double>();
  const std::span<const pade::Degree> degrees = pade::degrees<R>();
  const pade::Degree* d = &degrees.back();
  for (const pade::Degree& candidate : degrees)
    if (largest <= candidate.theta) {
      d = &candidate;
      break;
    }
  const int most = largest > d->theta ? static_cast<int>(std::ceil(std::log2(largest / d->theta))) : 0;
  const auto matrix = [](const Tensor& t) { return raw::unsqueeze(raw::unsqueeze(t, -1), -1); };
  // For each matrix: the number of squarings that its norm requires.
  const Tensor squarings = matrix(raw::clamp(raw::ceil(raw::log2(raw::div(known, d->theta))), 0));
  const auto add = [](const Tensor& to, double factor, const Tensor& x) { return raw::add(to, x, factor); };

  Tensor x = raw::contiguous(A);
  if (most > 0) x = raw::mul(x, raw::to(raw::exp2(raw::neg(squarings)), to_real(A.dtype())));
  std::vector<Tensor> even{raw::matmul(x, x)};
  const size_t powers = d->degree == 13 ? 3 : static_cast<size_t>(d->degree / 2);
  while (even.size() < powers) even.push_back(raw::matmul(even[0], even.back()));
  const Tensor one = raw::eye(A.size(-1), std::nullopt, A.dtype(), A.device());
  Tensor odd = raw::mul(one, d->b[1]), v = raw::mul(one, d->b[0]);
  if (d->degree == 13) {
    const auto high = [&](size_t first) {
      Tensor sum = raw::mul(even[0], d->b[first]);
      for (size_t p = 1; p < 3; ++p) sum = add(sum, d->b[first + 2 * p], even[p]);
      return raw::matmul(even[2], sum);
    };
    odd = raw::add(high(9), odd);
    v = raw::add(high(8), v);
  }
  for (size_t p = 0; p < powers; ++p) {
    odd = add(odd, d->b[3 + 2 * p], even[p]);
    v = add(v, d->b[2 + 2 * p], even[p]);
  }
  const Tensor u = raw::matmul(x, odd);
  x = std::get<0>(raw::_linalg_solve_ex(raw::sub(v, u), raw::add(v, u)));
  for (int s = 0; s < most; ++s) x = raw::where(raw::gt(squarings, s), raw::matmul(x, x), x);
  raw::copy_(out, raw::where(matrix(finite), x, std::numeric_limits<double>::quiet_NaN()));
}

}  // namespace

void matrix_exp_cuda(const Tensor& A, const Tensor& out) {
  if (A.numel() == 0) return;
  if (is_half(A.dtype())) {
    raw::copy_(out, raw::linalg_matrix_exp(raw::to(A, DType::float32)));
    return;
  }
  if (A.size(-1) > kSmallExponential) {
    if (to_real(A.dtype()) == DType::float32)
      exponential_of_large<float>(A, out);
    else
      exponential_of_large<double>(A, out);
    return;
  }
  const Work work(A.device(), {&A, &out});
  dispatch_lapack(A.dtype(), [&]<class T>() {
    const MatrixBatch<T> a(A, 2), to(out, 2);
    const int64_t n = a.rows, blocks = blocks_for(a.count, kMatrices * n * n);
    const Workspace space(static_cast<size_t>(blocks * kMatrices * n * n) * sizeof(T), work);
    const Workspace pivots(static_cast<size_t>(blocks * n) * sizeof(int), work);
    launch_block(work, &exponential_kernel<T>, Grid(blocks), n <= 6 ? kWarp : kBlock, 0, a, to, to.leading(),
                 Degrees<real_t<T>>(), static_cast<T*>(space.data()), static_cast<int*>(pivots.data()));
  });
}

}  // namespace tapegrad::cuda
