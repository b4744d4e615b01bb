#include <algorithm>
#include <cmath>
#include <memory>
#include <tuple>
#include <utility>

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_sort.h"
#include "tapegrad/aten/index/count.h"
#include "tapegrad/aten/index/search.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

constexpr int64_t kTogether = 64;

// Insertion positions of at most kTogether values in one sequence, which is not empty: all take the same number of
// steps, so the loops are vectorised, independent and branch-free. NaN in the sequence comes after all others, so plain
// comparisons suffice for values that are not NaN.
template <bool kRight, class T>
void places_together(const T* sequence, int32_t length, const T* values, int32_t* to, int64_t n) {
  auto before = [](T x, T y) { return kRight ? x <= y : x < y; };
  T v[kTogether];
  int32_t low[kTogether] = {};
  for (int64_t k = 0; k < kTogether; ++k) v[k] = values[std::min(k, n - 1)];
  for (int32_t rest = length; rest > 1; rest -= rest / 2) {
    const int32_t half = rest / 2;
    for (int64_t k = 0; k < kTogether; ++k) low[k] += half & -int32_t(before(sequence[low[k] + half - 1], v[k]));
  }
  for (int64_t k = 0; k < n; ++k) {
    to[k] = low[k] + before(sequence[low[k]], v[k]);
    if constexpr (std::is_floating_point_v<T>)
      if (TG_UNLIKELY(v[k] != v[k]))
        to[k] = static_cast<int32_t>(place_of(v[k], length, kRight, [&](int64_t i) { return sequence[i]; }));
  }
}

template <class T, class I>
void places_of(const T* sequence, int64_t length, const T* values, I* to, int64_t n, bool right) {
  if (length == 0 || length > INT32_MAX) {
    for (int64_t k = 0; k < n; ++k)
      to[k] = static_cast<I>(place_of(values[k], length, right, [&](int64_t i) { return sequence[i]; }));
    return;
  }
  const auto find = right ? &places_together<true, T> : &places_together<false, T>;
  int32_t places[kTogether];
  for (int64_t first = 0; first < n; first += kTogether) {
    const int64_t m = std::min(kTogether, n - first);
    find(sequence, static_cast<int32_t>(length), values + first, places, m);
    std::copy_n(places, m, to + first);
  }
}

void search(const Tensor& sequence, const Tensor& values, bool right, const Tensor& sorter, const Tensor& out) {
  if (out.numel() == 0) return;
  const DType dtype = compare_dtype(sequence, values);
  const Tensor s = contiguous_as(sequence, dtype), v = contiguous_as(values, dtype);
  const Tensor order = sorter.defined() ? contiguous_as(sorter, DType::int64) : Tensor();
  const int64_t length = s.size(-1);
  const int64_t per_row = s.ndim() == 1 ? v.numel() : v.size(-1);
  if (order.defined()) {
    const int64_t* p = static_cast<const int64_t*>(order.data_ptr());
    serial_for(0, order.numel(), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        TG_CHECK(p[i] >= 0 && p[i] < length, Index, "searchsorted: index {} of the sorter is out of bounds for size {}",
                 p[i], length);
    });
  }
  with_real(dtype, [&]<class T>() {
    const T* seq = static_cast<const T*>(s.data_ptr());
    const T* val = static_cast<const T*>(v.data_ptr());
    const int64_t* ord = order.defined() ? static_cast<const int64_t*>(order.data_ptr()) : nullptr;
    auto run = [&]<class I>() {
      I* to = static_cast<I*>(out.data_ptr());
      parallel_for(0, out.numel(), 1024, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end;) {
          const int64_t row = s.ndim() == 1 ? 0 : i / per_row * length;
          const int64_t n = s.ndim() == 1 ? end - i : std::min(end, (i / per_row + 1) * per_row) - i;
          for (int64_t k = i; ord && k < i + n; ++k)
            to[k] =
                static_cast<I>(place_of<T>(val[k], length, right, [&](int64_t j) { return seq[row + ord[row + j]]; }));
          if (!ord) places_of(seq + row, length, val + i, to + i, n, right);
          i += n;
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

TG_SEARCH_KERNELS(cpu, search)

void isin_cpu(const Operand& elements, const Operand& test_elements, bool, bool invert, const Tensor& out) {
  const Tensor &e = elements.tensor(), &t = test_elements.tensor();
  const DType dtype = compare_dtype(e, t);
  const Tensor values = contiguous_as(e, dtype);
  Tensor tests = empty_tensor({t.numel()}, dtype);
  copy_cpu(alias_tensor(tests, t.sizes(), contiguous_strides(t.sizes()), 0), t, false);
  bool* to = static_cast<bool*>(out.data_ptr());
  with_real(dtype, [&]<class T>() {
    const Tensor sorted = std::get<0>(raw::sort(tests, -1, false, false));
    const T* first = static_cast<const T*>(sorted.data_ptr());
    const int64_t n = sorted.numel();
    const T* p = static_cast<const T*>(values.data_ptr());
    parallel_for(0, out.numel(), 2048, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = place_of<T>(p[i], n, false, [&](int64_t k) { return first[k]; });
        to[i] = (at < n && first[at] == p[i]) != invert;
      }
    });
  });
}

namespace {

// The smallest and the largest number; raises where one is not finite.
template <class T>
std::pair<double, double> range_of(const Tensor& t) {
  auto value = [](const T* p) { return static_cast<double>(static_cast<compute_t<T>>(*p)); };
  const Tensor smallest = raw::amin(t), largest = raw::amax(t);
  const double low = value(static_cast<const T*>(smallest.data_ptr()));
  const double high = value(static_cast<const T*>(largest.data_ptr()));
  if (!std::isfinite(low) || !std::isfinite(high))
    for (int64_t i = 0; i < t.numel(); ++i) {
      const double v = value(static_cast<const T*>(t.data_ptr()) + i);
      TG_CHECK(std::isfinite(v), Runtime, "histc: the range of the input must be finite: got {} at element {}", v, i);
    }
  return {low, high};
}

// Bins of a block are worked out together, then counted. Counts are exact in any order.
template <class T>
void count_bins(const T* p, int64_t n, double low, double high, int64_t bins, int64_t* counts) {
  constexpr int64_t kBlock = 256;
  const double scale = static_cast<double>(bins) / (high - low), last = static_cast<double>(bins - 1);
  const int64_t tables = bins <= 1024 ? kInTurn : 1, pitch = bins + 1;  // the last slot takes what lies outside
  const std::unique_ptr<int64_t[]> table(new int64_t[static_cast<size_t>(tables * pitch)]());
  WorkCount done;
  for (int64_t first = 0; first < n; first += kBlock) {
    const int64_t m = std::min(kBlock, n - first);
    done(m);
    int64_t bin[kBlock];
    for (int64_t i = 0; i < m; ++i) {
      const double v = static_cast<double>(static_cast<compute_t<T>>(p[first + i]));
      const double at = (v - low) * scale;
      const bool inside = (v >= low) & (v <= high);
      bin[i] = static_cast<int64_t>(inside ? (at < last ? at : last) : static_cast<double>(bins));
    }
    if (tables == kInTurn)
      count_in_turn(bin, m, table.get(), pitch);
    else
      for (int64_t i = 0; i < m; ++i) ++table[bin[i]];
  }
  for (int64_t k = 0; k < tables; ++k)
    for (int64_t b = 0; b < bins; ++b) counts[b] += table[k * pitch + b];
}

}  // namespace

void histc_cpu(const Tensor& input, int64_t bins, const Scalar& min, const Scalar& max, const Tensor& out) {
  const Tensor from = contiguous_or_copy(input);
  const int64_t n = from.numel();
  Tensor counted = empty_tensor({bins}, DType::int64);
  int64_t* counts = static_cast<int64_t*>(counted.data_ptr());
  std::fill_n(counts, bins, int64_t{0});
  dispatch_dtype(input.dtype(), [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      const T* p = static_cast<const T*>(from.data_ptr());
      double low = min.to<double>(), high = max.to<double>();
      if (low == high && n > 0) {
        std::tie(low, high) = range_of<T>(from);
        if (low == high) {
          low -= 1;
          high += 1;
        }
      }
      count_bins(p, n, low, high, bins, counts);
    }
  });
  copy_cpu(out, counted, false);
}

}  // namespace tapegrad::cpu::TG_ISA
