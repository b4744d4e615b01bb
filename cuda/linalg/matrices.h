// Batches of matrices for kernels in which a block of threads works on a matrix, in place, in the device's memory.
// Results are stored by columns, as on the CPU (aten/linalg/matrices.h).
#pragma once

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/linalg/matrices.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/reduce/plan.h"

namespace tapegrad::cuda {

using math::real_t;

// The last `trailing` dimensions of a tensor (2: matrices, 1: vectors, 0: numbers) for each element of a batch, to
// which the dimensions before are broadcast. Strides in elements.
template <class T>
struct MatrixBatch {
  T* data;
  int64_t rows = 1, cols = 1, row = 0, col = 0, count = 1;
  reduce_rows::Places places;

  MatrixBatch(const Tensor& t, int trailing, IntSpan batch)
      : data(static_cast<T*>(const_cast<void*>(static_cast<const void*>(t.data_ptr())))) {
    const int own = t.ndim() - trailing;
    DimVector sizes, strides;
    for (size_t d = 0; d < batch.size(); ++d) {
      count *= batch[d];
      const int64_t mine = static_cast<int64_t>(d) - (static_cast<int64_t>(batch.size()) - own);
      if (batch[d] == 1) continue;
      sizes.push_back(batch[d]);
      strides.push_back(mine < 0 || t.size(mine) == 1 ? 0 : t.stride(mine));
    }
    places = reduce_rows::Places(static_cast<int>(sizes.size()), sizes.data(), strides.data());
    if (trailing == 2) rows = t.size(own), row = t.stride(own);
    if (trailing >= 1) cols = t.size(t.ndim() - 1), col = t.stride(t.ndim() - 1);
  }
  MatrixBatch(const Tensor& t, int trailing) : MatrixBatch(t, trailing, batch_of(t, trailing)) {}

  TG_DEVICE T* operator[](int64_t i) const { return data + places.at(i); }
  // Of a result: it is stored by columns.
  int64_t leading() const { return std::max<int64_t>({cols > 1 ? col : 1, rows, 1}); }
};

// A block per matrix: a warp for small ones, so that barriers cost little.
template <class... P, class... A>
void launch_matrices(const Work& work, void (*kernel)(P...), int64_t count, int64_t size, const A&... args) {
  if (count == 0) return;
  launch_block(work, kernel, grid_for(count, 1, 1 << 22), size <= 16 ? kWarp : kBlock, 0, args...);
}

// f(row, column) for all elements, neighbours in a column by neighbouring threads.
template <class F>
TG_DEVICE void each_element(int64_t first_row, int64_t rows, int64_t first_col, int64_t cols, F&& f) {
  const int64_t warps = block_size() / kWarp;
  if (cols - first_col >= warps) {
    for (int64_t j = first_col + warp_index(); j < cols; j += warps)
      for (int64_t i = first_row + warp_lane(); i < rows; i += kWarp) f(i, j);
  } else {
    for (int64_t j = first_col; j < cols; ++j)
      for (int64_t i = first_row + thread_index(); i < rows; i += block_size()) f(i, j);
  }
}

template <class T>
TG_DEVICE real_t<T> real_part(const T& x) {
  if constexpr (is_complex_type<T>)
    return x.real();
  else
    return x;
}
template <class T>
TG_DEVICE real_t<T> imag_part(const T& x) {
  if constexpr (is_complex_type<T>)
    return x.imag();
  else
    return 0;
}
template <class T>
TG_DEVICE T times(real_t<T> a, const T& x) {
  if constexpr (is_complex_type<T>)
    return {a * x.real(), a * x.imag()};
  else
    return a * x;
}
// One triangle with its diagonal, and zeros: element n of dense matrices of `to`'s sizes. Of Hermitian matrices the
// diagonal is real.
template <class T>
struct TrianglePart {
  MatrixBatch<T> from, to;
  bool upper, hermitian;
  TG_DEVICE void operator()(int64_t n) const {
    const int64_t i = n % to.rows, j = n / to.rows % to.cols, m = n / (to.rows * to.cols);
    const T v = (upper ? i <= j : i >= j) ? from[m][i * from.row + j * from.col] : T(0);
    to[m][i * to.row + j * to.col] = hermitian && i == j ? T(real_part(v)) : v;
  }
};

// c - a b
template <class T>
TG_DEVICE T minus_product(const T& c, const T& a, const T& b) {
  return math::sub(c, math::mul(a, b));
}

}  // namespace tapegrad::cuda
