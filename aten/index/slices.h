// Comparing the slices of a tensor along one dimension, as unique does; for host and device.
#pragma once

#include <tuple>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_index.h"

namespace tapegrad {

// Elements [n, width], compared one after the other; NaN sorts last and equals nothing.
template <class T>
struct Slices {
  const T* data;
  int64_t width;
  TG_HD bool less(int64_t a, int64_t b) const {
    for (int64_t i = 0; i < width; ++i) {
      const T x = data[a * width + i], y = data[b * width + i];
      if (before(x, y)) return true;
      if (before(y, x)) return false;
    }
    return false;
  }
  TG_HD bool equal(int64_t a, int64_t b) const {
    for (int64_t i = 0; i < width; ++i)
      if (!same(data[a * width + i], data[b * width + i])) return false;
    return true;
  }

 private:
  template <class C>
  using Part = Slices<typename C::value_type>;
  TG_HD static bool before(T a, T b) {
    if constexpr (is_half_type<T>)
      return Slices<float>::before(static_cast<float>(a), static_cast<float>(b));
    else if constexpr (is_complex_type<T>)
      return Part<T>::before(a.real(), b.real()) ||
             (!Part<T>::before(b.real(), a.real()) && Part<T>::before(a.imag(), b.imag()));
    else if constexpr (std::is_floating_point_v<T>)
      return a < b || (b != b && a == a);
    else
      return a < b;
  }
  TG_HD static bool same(T a, T b) {
    if constexpr (is_half_type<T>)
      return static_cast<float>(a) == static_cast<float>(b);
    else
      return a == b;
  }
  template <class>
  friend struct Slices;
};

// The slices of a tensor along `dim`, each as one row of dense memory.
struct UniqueSlices {
  int64_t dim, n, width;
  Tensor rows;
  DimVector sizes;

  UniqueSlices(const Tensor& input, int64_t given, const char* op) : dim(wrap_dim(given, input.ndim(), op)) {
    TG_CHECK(input.ndim() > 0, Runtime, "{}: a tensor without dimensions has no dimension {}", op, dim);
    n = input.size(dim);
    TG_CHECK(input.numel() > 0 || n == 0, Runtime, "{}: slices of size 0 cannot be compared: got {}", op,
             format_ints(input.sizes()));
    rows = raw::contiguous(raw::movedim(input, {dim}, {0}));
    width = n == 0 ? 0 : rows.numel() / n;
    sizes = DimVector(rows.sizes());
  }
  // Rows [any number, width] as slices along the dimension.
  Tensor back(const Tensor& values) const {
    DimVector as_given = sizes;
    as_given[0] = values.size(0);
    return raw::movedim(raw::reshape(values, as_given), {0}, {dim});
  }
};

// Values, the index of each element's value, and how often each value is there.
using UniqueResult = std::tuple<Tensor, Tensor, Tensor>;

// unique along `dim` by find(rows, n, width, sort), which takes dense rows [n, width] and gives the different ones.
template <class F>
UniqueResult unique_slices(const Tensor& input, int64_t dim, bool sort, const char* op, const F& find) {
  const UniqueSlices slices(input, dim, op);
  auto [values, inverse, counts] = find(slices.rows, slices.n, slices.width, sort);
  return {slices.back(values), inverse, counts};
}
// The same of the elements of dense memory, which are those of a tensor of these sizes.
template <class F>
UniqueResult unique_elements(const Tensor& flat, IntSpan sizes, bool sort, const F& find) {
  auto [values, inverse, counts] = find(flat, flat.numel(), 1, sort);
  return {raw::reshape(values, {-1}), raw::reshape(inverse, sizes), counts};
}

}  // namespace tapegrad
