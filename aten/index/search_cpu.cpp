#include <algorithm>
#include <cmath>

#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/kernels_index.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

Tensor dense_as(const Tensor& t, DType dtype) {
  if (t.is_contiguous() && t.dtype() == dtype) return t;
  Tensor copy = empty_tensor(t.sizes(), dtype);
  copy_cpu(copy, t, false);
  return copy;
}

// Orders numbers with NaN behind all others.
template <class T>
inline bool less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>)
    return a < b || (std::isnan(b) && !std::isnan(a));
  else
    return a < b;
}

// The number of elements before which (right: behind equal ones of which) v would stand; no branch to guess.
template <class T, class At>
int64_t place_of(T v, int64_t n, bool right, At&& at) {
  int64_t low = 0;
  while (n > 0) {
    const int64_t half = n / 2;
    const T m = at(low + half);
    const bool go = right ? !less(v, m) : less(m, v);
    low = go ? low + half + 1 : low;
    n = go ? n - half - 1 : half;
  }
  return low;
}

// The dtype to compare in: the common one, 16-bit formats as float.
DType compare_dtype(const Tensor& a, const Tensor& b) {
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

void search(const Tensor& sequence, const Tensor& values, bool right, const Tensor& sorter, const Tensor& out) {
  if (out.numel() == 0) return;
  const DType dtype = compare_dtype(sequence, values);
  const Tensor s = dense_as(sequence, dtype), v = dense_as(values, dtype);
  const Tensor order = sorter.defined() ? dense_as(sorter, DType::int64) : Tensor();
  const int64_t length = s.size(-1);
  const int64_t per_row = s.ndim() == 1 ? v.numel() : v.size(-1);
  if (order.defined()) {
    const int64_t* p = static_cast<const int64_t*>(order.data_ptr());
    for (int64_t i = 0; i < order.numel(); ++i)
      TG_CHECK(p[i] >= 0 && p[i] < length, Index, "searchsorted: index {} of the sorter is out of bounds for size {}",
               p[i], length);
  }
  with_real(dtype, [&]<class T>() {
    const T* seq = static_cast<const T*>(s.data_ptr());
    const T* val = static_cast<const T*>(v.data_ptr());
    const int64_t* ord = order.defined() ? static_cast<const int64_t*>(order.data_ptr()) : nullptr;
    auto run = [&]<class I>() {
      I* to = static_cast<I*>(out.data_ptr());
      parallel_for(0, out.numel(), 1024, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = i / per_row * length;
          if (ord)
            to[i] =
                static_cast<I>(place_of<T>(val[i], length, right, [&](int64_t k) { return seq[row + ord[row + k]]; }));
          else
            to[i] = static_cast<I>(place_of<T>(val[i], length, right, [&](int64_t k) { return seq[row + k]; }));
        }
      });
    };
    if (out.dtype() == DType::int32)
      run.template operator()<int32_t>();
    else
      run.template operator()<int64_t>();
  });
}

}  // namespace

void searchsorted_cpu(const Tensor& sorted_sequence, const Operand& input, bool, bool right,
                      std::optional<std::string_view> side, const Tensor& sorter, const Tensor& out) {
  search(sorted_sequence, input.tensor(), right || (side && *side == "right"), sorter, out);
}

void bucketize_cpu(const Operand& input, const Tensor& boundaries, bool, bool right, const Tensor& out) {
  search(boundaries, input.tensor(), right, {}, out);
}

void isin_cpu(const Operand& elements, const Operand& test_elements, bool, bool invert, const Tensor& out) {
  const Tensor &e = elements.tensor(), &t = test_elements.tensor();
  const DType dtype = compare_dtype(e, t);
  const Tensor values = dense_as(e, dtype);
  Tensor tests = empty_tensor({t.numel()}, dtype);
  copy_cpu(alias_tensor(tests, t.sizes(), contiguous_strides(t.sizes()), 0), t, false);
  bool* to = static_cast<bool*>(out.data_ptr());
  with_real(dtype, [&]<class T>() {
    T* first = static_cast<T*>(tests.data_ptr());
    const int64_t n = tests.numel();
    std::sort(first, first + n, less<T>);
    const T* p = static_cast<const T*>(values.data_ptr());
    parallel_for(0, out.numel(), 2048, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = place_of<T>(p[i], n, false, [&](int64_t k) { return first[k]; });
        to[i] = (at < n && first[at] == p[i]) != invert;
      }
    });
  });
}

// Serial: one bin is a chain of additions, and the counts are exact in any case.
void histc_cpu(const Tensor& input, int64_t bins, const Scalar& min, const Scalar& max, const Tensor& out) {
  const Tensor from = dense_as(input, DType::float64);
  const double* p = static_cast<const double*>(from.data_ptr());
  const int64_t n = from.numel();
  double low = min.to<double>(), high = max.to<double>();
  if (low == high && n > 0) {
    low = *std::min_element(p, p + n);
    high = *std::max_element(p, p + n);
    for (int64_t i = 0; i < n; ++i)
      TG_CHECK(std::isfinite(p[i]), Runtime, "histc: the range of the input must be finite: got {} at element {}", p[i],
               i);
    if (low == high) {
      low -= 1;
      high += 1;
    }
  }
  std::vector<int64_t> counts(static_cast<size_t>(bins), 0);
  const double scale = static_cast<double>(bins) / (high - low);
  for (int64_t i = 0; i < n; ++i) {
    if (!(p[i] >= low && p[i] <= high)) continue;
    const int64_t bin = std::min(static_cast<int64_t>((p[i] - low) * scale), bins - 1);
    ++counts[static_cast<size_t>(bin)];
  }
  Tensor counted = empty_tensor({bins}, DType::int64);
  std::copy(counts.begin(), counts.end(), static_cast<int64_t*>(counted.data_ptr()));
  copy_cpu(out, counted, false);
}

}  // namespace tapegrad::cpu::TG_ISA
