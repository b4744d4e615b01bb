// Searching in sorted sequences. Compiled per instruction set, and for devices.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::cpu::TG_ISA {

// Orders numbers, with NaN after all others.
template <class T>
TG_HD inline bool less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return a < b || (b != b && a == a);
  else
    return a < b;
}

// The first i below n for which before(i) is false, or n; before must be true for a prefix of the range. Branch-free.
template <class F>
TG_HD inline int64_t first_not(int64_t n, F&& before) {
  int64_t low = 0;
  while (n > 0) {
    const int64_t half = n / 2;
    const bool go = before(low + half);
    low = go ? low + half + 1 : low;
    n = go ? n - half - 1 : half;
  }
  return low;
}

// The insertion position of v: before equal elements, or after them for `right`.
template <class T, class At>
TG_HD inline int64_t place_of(T v, int64_t n, bool right, At&& at) {
  return first_not(n, [&](int64_t i) {
    const T m = at(i);
    return right ? !less(v, m) : less(m, v);
  });
}

// The dtype to compare in: the common one, 16-bit formats as float.
inline DType compare_dtype(const Tensor& a, const Tensor& b) {
  DType t = a.dtype();
  if (!b.is_wrapped_number() || (is_floating_point(b.dtype()) && !is_floating_point(t)))
    t = promote_types(a.dtype(), b.is_wrapped_number() ? default_dtype() : b.dtype());
  else if (is_integral(b.dtype()) && t == DType::bool_)
    t = b.dtype();
  return compute_dtype(t);
}

template <class F>
void with_real(DType t, F&& f) {
  dispatch_dtype(t, [&]<class T>() {
    if constexpr (!is_complex_type<T> && !is_half_type<T>) f.template operator()<T>();
  });
}

}  // namespace tapegrad::cpu::TG_ISA

// searchsorted and bucketize for one device by find(sequence, values, right, sorter, out).
#define TG_SEARCH_KERNELS(device, find)                                                                          \
  void searchsorted_##device(const Tensor& sorted_sequence, const Operand& input, bool, bool right,              \
                             std::optional<std::string_view> side, const Tensor& sorter, const Tensor& out) {    \
    find(sorted_sequence, input.tensor(), right || (side && *side == "right"), sorter, out);                     \
  }                                                                                                              \
  void bucketize_##device(const Operand& input, const Tensor& boundaries, bool, bool right, const Tensor& out) { \
    find(boundaries, input.tensor(), right, {}, out);                                                            \
  }
