// L D L^T and L D L^H of symmetric and Hermitian matrices with pivoting (J. R. Bunch and L. Kaufman, Math. Comp. 31,
// 1977), of the lower triangle and stored as LAPACK's sytrf and hetrf do: a block of threads per matrix.
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/value_fault.h"
#include "tapegrad/cuda/linalg/block_lu.h"
#include "tapegrad/cuda/linalg/block_qr.h"

namespace tapegrad::cuda {
namespace {

template <class T>
TG_DEVICE real_t<T> size_of(const T& x) {
  return math::magnitude(real_part(x)) + math::magnitude(imag_part(x));
}
// x, or its conjugate in a Hermitian matrix.
template <class T>
TG_DEVICE T other(const T& x, bool hermitian) {
  return hermitian ? math::conj(x) : x;
}
template <class T>
TG_DEVICE T diagonal(const T& x, bool hermitian) {
  return hermitian ? T(real_part(x)) : x;
}
template <class T>
TG_DEVICE void exchange(T& a, T& b) {
  const T v = a;
  a = b;
  b = v;
}

// a's lower triangle by columns; w holds 2 n elements. Returns 0, or the number of the first block of zeros.
template <class T>
TG_DEVICE int block_ldl(T* a, int64_t ld, int64_t n, bool hermitian, int* pivots, T* w, Pivot<real_t<T>>* scratch) {
  using R = real_t<T>;
  constexpr R kAlpha = R(0.64038820320220756873);  // (1 + sqrt(17)) / 8
  const auto at = [&](int64_t i, int64_t j) -> T& { return a[i + j * ld]; };
  const auto largest = [&](auto&& element, int64_t first, int64_t last) {
    Pivot<R> best{0, -1};
    for (int64_t i = first + thread_index(); i < last; i += block_size())
      best = BetterPivot()(best, {size_of(element(i)), i});
    best = block_reduce(best, BetterPivot(), scratch);
    block_sync();
    return best;
  };
  int info = 0;
  for (int64_t k = 0; k < n;) {
    const R here = size_of(diagonal(at(k, k), hermitian));
    const Pivot<R> column = largest([&](int64_t i) { return at(i, k); }, k + 1, n);
    int64_t p = k;
    int step = 1;
    const bool nothing = (here == 0 && !(column.size > 0)) || here != here;
    if (nothing) {
      if (info == 0) info = static_cast<int>(k + 1);
    } else if (here < kAlpha * column.size) {
      const int64_t r = column.row;
      const Pivot<R> left = largest([&](int64_t j) { return at(r, j); }, k, r);
      const Pivot<R> below = largest([&](int64_t i) { return at(i, r); }, r + 1, n);
      const R row = below.row >= 0 && below.size > left.size ? below.size : left.size;
      if (here >= kAlpha * column.size * (column.size / row)) {
        // as it is
      } else if (size_of(diagonal(at(r, r), hermitian)) >= kAlpha * row) {
        p = r;
      } else {
        p = r;
        step = 2;
      }
    }
    const int64_t kk = k + step - 1;
    block_sync();  // all have read
    if (p != kk) {
      for (int64_t i = p + 1 + thread_index(); i < n; i += block_size()) exchange(at(i, kk), at(i, p));
      for (int64_t j = kk + 1 + thread_index(); j < p; j += block_size()) {
        const T v = at(j, kk);
        at(j, kk) = other(at(p, j), hermitian);
        at(p, j) = other(v, hermitian);
      }
      if (thread_index() == 0) {
        const T v = diagonal(at(kk, kk), hermitian);
        at(kk, kk) = diagonal(at(p, p), hermitian);
        at(p, p) = v;
        at(p, kk) = other(at(p, kk), hermitian);
        if (step == 2) {
          at(k, k) = diagonal(at(k, k), hermitian);
          exchange(at(k + 1, k), at(p, k));
        }
      }
    } else if (thread_index() == 0) {
      at(k, k) = diagonal(at(k, k), hermitian);
      if (step == 2) at(kk, kk) = diagonal(at(kk, kk), hermitian);
    }
    if (thread_index() == 0) {
      pivots[k] = static_cast<int>(step == 1 ? p + 1 : -(p + 1));
      if (step == 2) pivots[k + 1] = pivots[k];
    }
    block_sync();
    if (nothing) {
      // the column is zero already
    } else if (step == 1) {
      const T inverse = math::div(T(1), at(k, k));
      each_element(k + 1, n, k + 1, n, [&](int64_t i, int64_t j) {
        if (i < j) return;
        const T v = minus_product(at(i, j), at(i, k), math::mul(inverse, other(at(j, k), hermitian)));
        at(i, j) = i == j ? diagonal(v, hermitian) : v;
      });
      block_sync();
      for (int64_t i = k + 1 + thread_index(); i < n; i += block_size()) at(i, k) = math::mul(inverse, at(i, k));
    } else if (k + 2 < n) {
      // (u, v) times the inverse of the block; scaled by what is beside its diagonal.
      const T beside = at(k + 1, k);
      T first, second, scale, turn, back;
      if (hermitian) {
        const R d = math::abs(beside);
        first = T(real_part(at(k + 1, k + 1)) / d);
        second = T(real_part(at(k, k)) / d);
        scale = T(R(1) / (real_part(first) * real_part(second) - R(1)) / d);
        turn = times(R(1) / d, beside);
        back = math::conj(turn);
      } else {
        first = math::div(at(k + 1, k + 1), beside);
        second = math::div(at(k, k), beside);
        scale = math::div(math::div(T(1), math::sub(math::mul(first, second), T(1))), beside);
        turn = back = T(1);
      }
      for (int64_t j = k + 2 + thread_index(); j < n; j += block_size()) {
        const T u = at(j, k), v = at(j, k + 1);
        w[j] = math::mul(scale, math::sub(math::mul(first, u), math::mul(turn, v)));
        w[n + j] = math::mul(scale, math::sub(math::mul(second, v), math::mul(back, u)));
      }
      block_sync();
      each_element(k + 2, n, k + 2, n, [&](int64_t i, int64_t j) {
        if (i < j) return;
        T v = minus_product(at(i, j), at(i, k), other(w[j], hermitian));
        v = minus_product(v, at(i, k + 1), other(w[n + j], hermitian));
        at(i, j) = i == j ? diagonal(v, hermitian) : v;
      });
      block_sync();
      for (int64_t j = k + 2 + thread_index(); j < n; j += block_size()) {
        at(j, k) = w[j];
        at(j, k + 1) = w[n + j];
      }
    }
    block_sync();
    k += step;
  }
  return info;
}

template <class T>
TG_KERNEL void ldl_kernel(MatrixBatch<T> a, MatrixBatch<T> out, int64_t ld, bool hermitian, int* pivots, int* infos,
                          T* workspace) {
  TG_SHARED(Pivot<real_t<T>>, scratch, kWarp);
  const int64_t n = a.rows;
  for (int64_t m = block_index(); m < a.count; m += grid_size()) {
    const T* from = a[m];
    T* to = out[m];
    each_element(0, n, 0, n,
                 [&](int64_t i, int64_t j) { to[i + j * ld] = i >= j ? from[i * a.row + j * a.col] : T(0); });
    block_sync();
    const int info = block_ldl(to, ld, n, hermitian, pivots + m * n, workspace + m * 2 * n, scratch);
    if (thread_index() == 0) infos[m] = info;
  }
}

// Rows k and p of x change places.
template <class T>
TG_DEVICE void swap_rows(T* x, int64_t ldx, int64_t cols, int64_t k, int64_t p) {
  for (int64_t c = thread_index(); k != p && c < cols; c += block_size()) exchange(x[k + c * ldx], x[p + c * ldx]);
  block_sync();
}
// x[row] -= the sum of l[i] x[i] over rows below `after`, a warp per column.
template <class T>
TG_DEVICE void subtract_below(const T* l, int64_t row_step, bool hermitian, int64_t row, int64_t after, int64_t n, T* x,
                              int64_t ldx, int64_t cols) {
  const int64_t warps = block_size() / kWarp;
  for (int64_t c = warp_index(); c < cols; c += warps) {
    T sum(0);
    for (int64_t i = after + 1 + warp_lane(); i < n; i += kWarp)
      sum = math::add(sum, math::mul(other(l[i * row_step], hermitian), x[i + c * ldx]));
    sum = warp_reduce(sum, SumOf());
    if (warp_lane() == 0) x[row + c * ldx] = math::sub(x[row + c * ldx], sum);
  }
}

template <class T>
TG_KERNEL void ldl_solve_kernel(MatrixBatch<T> ld, MatrixBatch<int> pivots, MatrixBatch<T> b, MatrixBatch<T> x,
                                int64_t ldx, bool hermitian) {
  const int64_t n = x.rows, cols = x.cols;
  for (int64_t m = block_index(); m < x.count; m += grid_size()) {
    const T* a = ld[m];
    const int* p = pivots[m];
    T* to = x[m];
    const auto at = [&](int64_t i, int64_t j) { return a[i * ld.row + j * ld.col]; };
    block_load(b[m], b.row, b.col, n, cols, to, ldx);
    for (int64_t k = 0; k < n;) {  // L, and D
      const int64_t pivot = p[k * pivots.col];
      if (pivot > 0) {
        swap_rows(to, ldx, cols, k, pivot - 1);
        each_element(k + 1, n, 0, cols, [&](int64_t i, int64_t c) {
          to[i + c * ldx] = minus_product(to[i + c * ldx], at(i, k), to[k + c * ldx]);
        });
        block_sync();
        const T d = diagonal(at(k, k), hermitian);
        for (int64_t c = thread_index(); c < cols; c += block_size()) to[k + c * ldx] = math::div(to[k + c * ldx], d);
        block_sync();
        k += 1;
        continue;
      }
      swap_rows(to, ldx, cols, k + 1, -pivot - 1);
      each_element(k + 2, n, 0, cols, [&](int64_t i, int64_t c) {
        const T v = minus_product(to[i + c * ldx], at(i, k), to[k + c * ldx]);
        to[i + c * ldx] = minus_product(v, at(i, k + 1), to[k + 1 + c * ldx]);
      });
      block_sync();
      const T beside = at(k + 1, k), above = other(beside, hermitian);
      const T first = math::div(at(k, k), above), second = math::div(at(k + 1, k + 1), beside);
      const T denominator = math::sub(math::mul(first, second), T(1));
      for (int64_t c = thread_index(); c < cols; c += block_size()) {
        const T u = math::div(to[k + c * ldx], above), v = math::div(to[k + 1 + c * ldx], beside);
        to[k + c * ldx] = math::div(math::sub(math::mul(second, u), v), denominator);
        to[k + 1 + c * ldx] = math::div(math::sub(math::mul(first, v), u), denominator);
      }
      block_sync();
      k += 2;
    }
    for (int64_t k = n - 1; k >= 0;) {  // L^T or L^H
      const int64_t pivot = p[k * pivots.col];
      const bool single = pivot > 0;
      subtract_below(a + k * ld.col, ld.row, hermitian, k, k, n, to, ldx, cols);
      if (!single) subtract_below(a + (k - 1) * ld.col, ld.row, hermitian, k - 1, k, n, to, ldx, cols);
      block_sync();
      swap_rows(to, ldx, cols, k, single ? pivot - 1 : -pivot - 1);
      k -= single ? 1 : 2;
    }
  }
}

// Pivots that a caller made up must not lead out of the matrix: the first wrong one is recorded, and all count as 1.
struct CheckBlocks {
  const int* pivots;
  int64_t n;
  FaultRecord* fault;
  FaultText range_sentence, pair_sentence;
  int* checked;
  TG_DEVICE void operator()(int64_t m) const {
    const int* p = pivots + m * n;
    bool good = true;
    for (int64_t j = 0; good && j < n; ++j) {
      good = p[j] != 0 && p[j] >= -n && p[j] <= n;
      if (!good) {
        record_value_fault(fault, range_sentence, p[j]);
      } else if (p[j] < 0) {
        good = j + 1 < n && p[j + 1] == p[j];
        if (!good) record_value_fault(fault, pair_sentence, p[j]);
        ++j;
      }
    }
    for (int64_t j = 0; j < n; ++j) checked[m * n + j] = good ? p[j] : 1;
  }
};

}  // namespace

void ldl_factor_ex_cuda(const Tensor& A, bool hermitian, bool check_errors, const Tensor& LD, const Tensor& pivots,
                        const Tensor& info) {
  {
    const Work work(A.device(), {&A, &LD, &pivots, &info});
    dispatch_lapack(A.dtype(), [&]<class T>() {
      const MatrixBatch<T> a(A, 2), out(LD, 2);
      const Workspace workspace(static_cast<size_t>(a.count * 2 * a.rows) * sizeof(T), work);
      launch_matrices(work, &ldl_kernel<T>, a.count, a.rows, a, out, out.leading(), hermitian && A.is_complex(),
                      target_of<int>(pivots), target_of<int>(info), static_cast<T*>(workspace.data()));
    });
  }
  if (check_errors) check_infos("linalg.ldl_factor", info, "the matrix is singular: block {} of its factor D is zero");
}

void ldl_solve_cuda(const Tensor& LD, const Tensor& pivots, const Tensor& B, bool hermitian, const Tensor& X) {
  const Tensor dense = contiguous_or_copy(pivots);
  const Tensor checked = empty_tensor(dense.sizes(), DType::int32, dense.device());
  const Work work(LD.device(), {&LD, &dense, &checked, &B, &X});
  const int64_t n = LD.size(-1);
  for_elements(work, n == 0 ? 0 : dense.numel() / n,
               CheckBlocks{data_of<int>(dense), n, fault_record(LD.device().index),
                           "linalg.ldl_solve: pivots must be between 1 and the number of rows, or their negatives",
                           "linalg.ldl_solve: negative pivots must come in equal pairs", target_of<int>(checked)});
  dispatch_lapack(LD.dtype(), [&]<class T>() {
    const IntSpan batch = batch_of(X);
    const MatrixBatch<T> x(X, 2);
    launch_matrices(work, &ldl_solve_kernel<T>, x.count, std::max(x.rows, x.cols), MatrixBatch<T>(LD, 2, batch),
                    MatrixBatch<int>(checked, 1, batch), MatrixBatch<T>(B, 2, batch), x, x.leading(),
                    hermitian && LD.is_complex());
  });
}

}  // namespace tapegrad::cuda
