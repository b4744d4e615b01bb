// Tensors as batches of matrices, for kernels that hand one matrix after another to LAPACK. LAPACK reads columns, so
// the results of these kernels are stored by columns, as PyTorch's are (columns_spec), and inputs are copied into them.
// Thread rules: a Matrices is read-only and may be shared.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/fork.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad {

// The last `trailing` dimensions of a tensor (2: matrices, 1: vectors, 0: numbers), for each element of the batch of
// the dimensions before; `batch` may be larger than the tensor's, which is then broadcast.
template <class T>
class Matrices {
 public:
  Matrices(const Tensor& t, int trailing, IntSpan batch) : data_(static_cast<T*>(t.data_ptr())), sizes_(batch) {
    int own = t.ndim() - trailing;
    strides_.resize(batch.size(), 0);
    for (int d = 0; d < own; ++d)
      if (t.impl()->size(d) != 1) strides_[batch.size() - static_cast<size_t>(own - d)] = t.impl()->stride(d);
    for (int64_t s : batch) count *= s;
    if (trailing == 2) rows = t.impl()->size(own), row = t.impl()->stride(own);
    if (trailing >= 1) cols = t.impl()->size(t.ndim() - 1), col = t.impl()->stride(t.ndim() - 1);
  }
  Matrices(const Tensor& t, int trailing)
      : Matrices(t, trailing, IntSpan(t.sizes().data(), static_cast<size_t>(t.ndim() - trailing))) {}

  T* operator[](int64_t i) const {
    int64_t offset = 0;
    for (size_t d = sizes_.size(); d-- > 0;) {
      offset += i % sizes_[d] * strides_[d];
      i /= sizes_[d];
    }
    return data_ + offset;
  }
  // The leading size of a matrix stored by columns; a single column's stride may be anything.
  int64_t leading() const { return std::max<int64_t>({cols > 1 ? col : 1, rows, 1}); }

  int64_t count = 1, rows = 1, cols = 1, row = 0, col = 0;

 private:
  T* data_;
  DimVector sizes_, strides_;
};

inline IntSpan batch_of(const Tensor& t, int64_t trailing = 2) {
  return IntSpan(t.sizes().data(), static_cast<size_t>(t.ndim() - trailing));
}

// A result with the batch of A and these sizes behind it.
inline TensorSpec batch_spec(const Tensor& A, std::initializer_list<int64_t> rest, DType dtype) {
  TensorSpec spec{DimVector(batch_of(A)), dtype, A.device(), {}};
  for (int64_t v : rest) spec.sizes.push_back(v);
  return spec;
}

// A result of matrices (m x n) that are stored by columns.
inline TensorSpec columns_spec(IntSpan batch, int64_t m, int64_t n, DType dtype, Device device) {
  TensorSpec spec{DimVector(batch), dtype, device, {}};
  spec.sizes.push_back(m);
  spec.sizes.push_back(n);
  size_t d = spec.sizes.size();
  spec.strides.resize(d, 1);
  spec.strides[d - 1] = std::max<int64_t>(m, 1);
  int64_t step = std::max<int64_t>(m, 1) * std::max<int64_t>(n, 1);
  for (size_t i = d - 2; i-- > 0;) {
    spec.strides[i] = step;
    step *= std::max<int64_t>(spec.sizes[i], 1);
  }
  return spec;
}

// Copies an m x n matrix into columns of leading size ld; blocks of 16 columns keep its rows' cache lines in use.
template <class T>
void load_columns(const T* a, int64_t row, int64_t col, int64_t m, int64_t n, T* to, int64_t ld) {
  if (row == 1) {
    for (int64_t j = 0; j < n; ++j) std::copy(a + j * col, a + j * col + m, to + j * ld);
    return;
  }
  for (int64_t first = 0; first < n; first += 16) {
    int64_t last = std::min(first + 16, n);
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = first; j < last; ++j) to[i + j * ld] = a[i * row + j * col];
  }
}

// Calls f(i) for each matrix of a batch, about `flops` operations each; in parallel where that is faster. LAPACK runs
// on the calling thread and each matrix is processed by one thread: the same bits for any number of threads. Opens a
// BlockingRegion if the whole takes long.
template <class F>
void for_each_matrix(int64_t count, double flops, F&& f) {
  std::optional<BlockingRegion> region;
  if (static_cast<double>(count) * flops > 1e6) region.emplace();
  int64_t grain = flops >= 50000 ? 1 : static_cast<int64_t>(50000 / std::max(flops, 1.0));
  parallel_for(0, count, grain, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) f(i);
  });
}

template <class T>
bool all_finite(const T* a, int64_t m, int64_t n, int64_t ld) {
  bool finite = true;
  for (int64_t j = 0; j < n; ++j)
    for (int64_t i = 0; i < m; ++i) {
      if constexpr (is_complex_type<T>)
        finite &= std::isfinite(a[i + j * ld].real()) & std::isfinite(a[i + j * ld].imag());
      else
        finite &= std::isfinite(a[i + j * ld]);
    }
  return finite;
}

// "batch element [1, 2]: ", or nothing for a single matrix.
std::string batch_element(IntSpan batch, int64_t index);

// The first failure in a batch of matrices. It is recorded, not thrown where it occurs, so that the error does not
// depend on timing.
class Failures {
 public:
  static constexpr int kNotFinite = -1000;  // a matrix with infinities or NaN; positive numbers are LAPACK's

  void note(int64_t matrix, int info) {
    if (TG_UNLIKELY(info != 0)) keep(matrix, info);
  }
  // Raises LinAlg if there is one; {} in `what` is replaced by LAPACK's number.
  void check(const char* op, IntSpan batch, const char* what = "the algorithm did not converge: LAPACK says {}") const;

 private:
  struct First {
    int64_t matrix = INT64_MAX;
    int info = 0;
  };
  ForkSafeLock lock_;
  First not_finite_, failed_;

  void keep(int64_t matrix, int info) noexcept;
};

// Raises LinAlg for the first matrix of the batch whose info is not 0: `op: (Batch element i): what`, where {} in
// `what` stands for the info.
TG_API void check_infos(const char* op, const Tensor& info, const char* what);

inline constexpr const char* kSingular = "the matrix is singular: diagonal element {} of its factor U is zero";
inline constexpr const char* kNotInvertible =
    "The diagonal element {} is zero, the inversion could not be completed because the input matrix is singular";
inline constexpr const char* kNotPositive =
    "The factorization could not be completed because the input is not positive-definite (the leading minor of order "
    "{} is "
    "not positive-definite)";

// Argument checks of all operators of linear algebra: a floating or complex dtype of at least 32 bits, two dimensions,
// equal sizes of the last two.
void check_matrix(const char* op, const Tensor& t, const char* name = "A");
void check_square(const char* op, const Tensor& t, const char* name = "A");
void check_same_dtype(const char* op, const Tensor& a, const Tensor& b);
// Whether B is a batch of vectors: one dimension, or A's shape without its last one.
bool is_vector_batch(const Tensor& A, const Tensor& B);

}  // namespace tapegrad
