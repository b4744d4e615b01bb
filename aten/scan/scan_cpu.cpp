// Running results along one dimension of a contiguous tensor seen as [outer, n, inner]. Columns are independent: for
// inner > 1 the inner loop runs over them and is vectorised; each column is scanned in order, so any number of threads
// gives the same bits. 16-bit types are accumulated in float.
#include <cmath>
#include <limits>
#include <vector>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/along_dim.h"
#include "tapegrad/aten/kernels_scan.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

constexpr int64_t kGrain = 16384;  // elements
constexpr int64_t kStrip = 64;     // columns scanned side by side

// Calls f(offset, width) for strips of columns.
template <class F>
void each_strip(const Extent& e, F&& f) {
  if (e.outer == 0 || e.n == 0 || e.inner == 0) return;
  const int64_t strips = (e.inner + kStrip - 1) / kStrip;
  const int64_t elements = e.n * std::min(kStrip, e.inner);
  parallel_for(0, e.outer * strips, std::max<int64_t>(1, kGrain / elements), [&](int64_t begin, int64_t end) {
    for (int64_t s = begin; s < end; ++s) {
      const int64_t first = (s % strips) * kStrip;
      f((s / strips) * e.n * e.inner + first, std::min(kStrip, e.inner - first));
    }
  });
}

// state[j] = step(state[j], x); out = state[j]
template <class C, class T, class Step>
void scan(const T* x, T* out, const Extent& e, C start, Step&& step) {
  each_strip(e, [&](int64_t offset, int64_t width) {
    C state[kStrip];
    std::fill(state, state + width, start);
    for (int64_t i = 0; i < e.n; ++i) {
      const T* row = x + offset + i * e.inner;
      T* result = out + offset + i * e.inner;
      for (int64_t j = 0; j < width; ++j) {
        state[j] = step(state[j], static_cast<C>(row[j]));
        result[j] = T(state[j]);
      }
    }
  });
}

Tensor as_dtype(const Tensor& input, DType dtype) {
  if (input.dtype() == dtype && input.is_contiguous()) return input;
  Tensor copy = empty_tensor(input.sizes(), dtype, input.device());
  raw::copy_(copy, input);
  return copy;
}

template <class C>
C log_add_exp(C a, C b) {
  const C high = a > b ? a : b, low = a > b ? b : a;
  if (std::isinf(high) && high == low) return high;
  return high + std::log1p(std::exp(low - high));
}

template <bool kLargest>
void extremes(const Tensor& input, int64_t dim, const Tensor& out_values, const Tensor& out_indices) {
  const Extent e(input, dim);
  const Tensor dense = as_dtype(input, input.dtype());
  dispatch_dtype(input.dtype(), [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      using C = compute_t<T>;
      const T* x = static_cast<const T*>(dense.data_ptr());
      T* values = static_cast<T*>(out_values.data_ptr());
      int64_t* indices = static_cast<int64_t*>(out_indices.data_ptr());
      each_strip(e, [&](int64_t offset, int64_t width) {
        for (int64_t j = 0; j < width; ++j) {
          const T* column = x + offset + j;
          T best = column[0];
          int64_t at = 0;
          for (int64_t i = 0; i < e.n; ++i) {
            const C v = static_cast<C>(column[i * e.inner]), b = static_cast<C>(best);
            if (v != v || (b == b && (kLargest ? v >= b : v <= b))) {
              best = column[i * e.inner];
              at = i;
            }
            values[offset + i * e.inner + j] = best;
            indices[offset + i * e.inner + j] = at;
          }
        }
      });
    }
  });
}

}  // namespace

void cumsum_cpu(const Tensor& input, int64_t dim, std::optional<DType>, const Tensor& out) {
  const Tensor dense = as_dtype(input, out.dtype());
  dispatch_dtype(out.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    scan(static_cast<const T*>(dense.data_ptr()), static_cast<T*>(out.data_ptr()), Extent(input, dim), C(0),
         [](C s, C x) { return static_cast<C>(s + x); });
  });
}

void cumprod_cpu(const Tensor& input, int64_t dim, std::optional<DType>, const Tensor& out) {
  const Tensor dense = as_dtype(input, out.dtype());
  dispatch_dtype(out.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    scan(static_cast<const T*>(dense.data_ptr()), static_cast<T*>(out.data_ptr()), Extent(input, dim), C(1),
         [](C s, C x) { return static_cast<C>(s * x); });
  });
}

void logcumsumexp_cpu(const Tensor& input, int64_t dim, const Tensor& out) {
  const Tensor dense = as_dtype(input, out.dtype());
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (is_floating_type<T>) {
      using C = compute_t<T>;
      scan(static_cast<const T*>(dense.data_ptr()), static_cast<T*>(out.data_ptr()), Extent(input, dim),
           -std::numeric_limits<C>::infinity(), [](C s, C x) { return log_add_exp(s, x); });
    }
  });
}

void cummax_cpu(const Tensor& input, int64_t dim, const Tensor& out_values, const Tensor& out_indices) {
  extremes<true>(input, dim, out_values, out_indices);
}

void cummin_cpu(const Tensor& input, int64_t dim, const Tensor& out_values, const Tensor& out_indices) {
  extremes<false>(input, dim, out_values, out_indices);
}

}  // namespace tapegrad::cpu::TG_ISA
