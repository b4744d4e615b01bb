// unique and unique_consecutive. Values are compared as themselves, slices (with dim) element by element; NaN equals
// nothing, as in PyTorch, and sorts last.
#include <algorithm>
#include <numeric>
#include <utility>

#include "tapegrad/aten/copy/flags.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_sort.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/index/slices.h"
#include "tapegrad/aten/kernels_index.h"
#include "tapegrad/aten/sort/unsigned_order.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu {

namespace {

using Result = UniqueResult;

// `rows`: dense, [n, width]. Groups are the runs of `order` whose neighbours are equal.
template <class T>
Result group(const Tensor& rows, int64_t n, int64_t width, const std::vector<int64_t>& order) {
  const Slices<T> slices{static_cast<const T*>(rows.data_ptr()), width};
  Tensor inverse = empty_tensor({n}, DType::int64);
  int64_t* to = inverse.data<int64_t>();
  std::vector<int64_t> firsts;
  std::vector<int64_t> counts;
  WorkCount done;
  for (int64_t i = 0; i < n; ++i, done(width)) {
    if (i == 0 || !slices.equal(order[i - 1], order[i])) {
      firsts.push_back(order[i]);
      counts.push_back(0);
    }
    ++counts.back();
    to[order[i]] = static_cast<int64_t>(firsts.size()) - 1;
  }
  const int64_t found = static_cast<int64_t>(firsts.size());
  Tensor values = empty_tensor({found, width}, rows.dtype());
  T* v = static_cast<T*>(values.data_ptr());
  for (int64_t g = 0; g < found; ++g, done(width)) std::copy_n(slices.data + firsts[g] * width, width, v + g * width);
  Tensor count = empty_tensor({found}, DType::int64);
  std::copy(counts.begin(), counts.end(), count.data<int64_t>());
  return {values, inverse, count};
}

Result unique_rows(const Tensor& rows, int64_t n, int64_t width, bool sort) {
  std::vector<int64_t> order(static_cast<size_t>(n));
  if (sort && width == 1 && !rows.is_complex()) {
    const Tensor sorted = raw::argsort(raw::reshape(rows, {-1}), -1, false, true);
    std::copy_n(sorted.data<int64_t>(), n, order.begin());
    return dispatch_dtype(rows.dtype(), [&]<class T>() { return group<T>(rows, n, width, order); });
  }
  std::iota(order.begin(), order.end(), int64_t{0});
  return dispatch_dtype(rows.dtype(), [&]<class T>() {
    if (sort) {
      const Slices<T> slices{static_cast<const T*>(rows.data_ptr()), width};
      WorkCount done;
      std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        done(4 + width);  // equal slices are compared to their ends
        return slices.less(a, b);
      });
    }
    return group<T>(rows, n, width, order);
  });
}

// The different ones of sorted values.
template <class T>
Tensor without_repeats(const Tensor& sorted) {
  T* p = static_cast<T*>(sorted.data_ptr());
  T* end = std::unique(p, p + sorted.numel());
  return raw::clone(alias_tensor(sorted, {end - p}, {1}, 0));
}

// unique_consecutive of elements, in one pass without a branch: every element is written behind the runs that were
// found, and stays where it begins one.
template <class T, bool kValuesOnly>
Result runs_of(const Tensor& flat) {
  const int64_t n = flat.numel(), places = kValuesOnly ? 0 : n;
  if (n == 0) return {flat, empty_tensor({0}, DType::int64), empty_tensor({0}, DType::int64)};
  const Slices<T> x{static_cast<const T*>(flat.data_ptr()), 1};
  Tensor values = empty_tensor({n}, flat.dtype()), inverse = empty_tensor({places}, DType::int64),
         first = empty_tensor({places}, DType::int64);
  T* value = static_cast<T*>(values.data_ptr());
  int64_t *to = inverse.data<int64_t>(), *begins = first.data<int64_t>();
  int64_t found = 0;
  auto take = [&](int64_t i, bool begins_run) __attribute__((always_inline)) {
    value[found] = x.data[i];
    if constexpr (!kValuesOnly) begins[found] = i;
    found += begins_run;
    if constexpr (!kValuesOnly) to[i] = found - 1;
  };
  take(0, true);
  serial_for(1, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) take(i, !x.equal(i - 1, i));
  });
  if (found < n) values = raw::clone(alias_tensor(values, {found}, {1}, 0));
  Tensor count = empty_tensor({kValuesOnly ? 0 : found}, DType::int64);
  for (int64_t g = 0; g < count.numel(); ++g)
    count.data<int64_t>()[g] = (g + 1 < found ? begins[g + 1] : n) - begins[g];
  return {values, inverse, count};
}

// Integers that lie close together are counted in a table of all values between the smallest and the largest: no
// sorting. Undefined tensors where they do not.
template <class T>
Result unique_by_table(const Tensor& flat, bool values_only) {
  const int64_t n = flat.numel();
  if (n == 0) return {};
  const T* x = static_cast<const T*>(flat.data_ptr());
  const T low = *static_cast<const T*>(raw::amin(flat).data_ptr()),
          high = *static_cast<const T*>(raw::amax(flat).data_ptr());
  const uint64_t range = static_cast<uint64_t>(high) - static_cast<uint64_t>(low);
  if (range >= 2 * static_cast<uint64_t>(n) + 256) return {};
  auto slot = [=](T v) { return static_cast<size_t>(static_cast<uint64_t>(v) - static_cast<uint64_t>(low)); };
  const size_t slots = static_cast<size_t>(range) + 1;
  std::vector<uint8_t> seen(values_only ? slots : 0);
  std::vector<int64_t> counts(values_only ? 0 : slots);
  serial_for(0, n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      if (values_only)
        seen[slot(x[i])] = 1;
      else
        ++counts[slot(x[i])];
    }
  });
  int64_t found = 0;
  for (size_t v = 0; v < slots; ++v) found += values_only ? seen[v] : counts[v] != 0;
  Tensor values = empty_tensor({found}, flat.dtype());
  Tensor inverse = empty_tensor({values_only ? 0 : n}, DType::int64);
  Tensor count = empty_tensor({values_only ? 0 : found}, DType::int64);
  T* value = static_cast<T*>(values.data_ptr());
  int64_t *many = count.data<int64_t>(), *to = inverse.data<int64_t>();
  int64_t rank = 0;
  WorkCount done;
  for (size_t v = 0; v < slots; ++v, done()) {
    if (values_only ? seen[v] == 0 : counts[v] == 0) continue;
    value[rank] = static_cast<T>(static_cast<uint64_t>(low) + v);
    if (!values_only) many[rank] = std::exchange(counts[v], rank);  // from here on the table holds its index
    ++rank;
  }
  serial_for(0, values_only ? 0 : n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) to[i] = counts[slot(x[i])];
  });
  return {values, inverse, count};
}

Result unique_of(const Tensor& given, bool sort, bool values_only, std::optional<int64_t> dim, const char* op) {
  if (is_wide_unsigned(given.dtype())) {
    auto [values, inverse, count] = unique_of(unsigned_order::as_signed(given), sort, values_only, dim, op);
    values = raw::_view_dtype(values, given.dtype());
    unsigned_order::turn_back(values);
    return {values, inverse, count};
  }
  const Tensor input = clean_flags(given);
  if (!dim) {
    const Tensor flat = raw::contiguous(raw::reshape(input, {-1}));
    if (!sort) {
      auto [values, inverse, count] = dispatch_dtype(
          input.dtype(), [&]<class T>() { return values_only ? runs_of<T, true>(flat) : runs_of<T, false>(flat); });
      return {values, values_only ? inverse : raw::reshape(inverse, input.sizes()), count};
    }
    if (is_integral(input.dtype()) && input.dtype() != DType::bool_) {
      auto [values, inverse, count] = dispatch_dtype(input.dtype(), [&]<class T>() -> Result {
        if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>)
          return unique_by_table<T>(flat, values_only);
        else
          return {};
      });
      if (values.defined()) return {values, values_only ? inverse : raw::reshape(inverse, input.sizes()), count};
    }
    if (values_only && !is_complex(input.dtype()) && !is_half(input.dtype())) {
      Tensor values = dispatch_dtype(input.dtype(), [&]<class T>() -> Tensor {
        if constexpr (is_complex_type<T> || is_half_type<T>)
          return {};
        else
          return without_repeats<T>(std::get<0>(raw::sort(flat, -1, false, true)));
      });
      return {values, empty_tensor({0}, DType::int64), empty_tensor({0}, DType::int64)};
    }
    return unique_elements(flat, input.sizes(), true, unique_rows);
  }
  return unique_slices(input, *dim, sort, op, unique_rows);
}

}  // namespace

Result unique_cpu(const Tensor& input, bool, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  return unique_of(input, true, !return_inverse && !return_counts, dim, "unique");
}

Result unique_consecutive_cpu(const Tensor& input, bool return_inverse, bool return_counts,
                              std::optional<int64_t> dim) {
  return unique_of(input, false, !return_inverse && !return_counts, dim, "unique_consecutive");
}

}  // namespace tapegrad::cpu
