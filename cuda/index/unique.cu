// unique and unique_consecutive: sorted on request, then runs of equal neighbours. NaN equals nothing, as in PyTorch,
// and sorts last. The number of results is a value that the host waits for.
#include "tapegrad/aten/copy/flags.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/index/search.h"
#include "tapegrad/aten/index/slices.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/index/last_sum.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/sort/device_sort.h"
#include "tapegrad/cuda/sort/row_sort.h"

namespace tapegrad::cuda {
namespace {

namespace search = cpu::TG_ISA;
using Result = UniqueResult;

struct Count {
  int64_t* to;
  TG_DEVICE void operator()(int64_t i) const { to[i] = i; }
};

// Neighbouring sorted runs of `width` elements become one: each element finds its place among those of the other run.
// Equal ones of the earlier run stay first.
template <class T>
struct MergeRuns {
  Slices<T> slices;
  const int64_t* order;
  int64_t* to;
  int64_t n, width;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t run = i / width, first = run / 2 * 2 * width;
    const bool later = run % 2 == 1;
    const int64_t begin = later ? first : first + width < n ? first + width : n;
    const int64_t end = later ? first + width : begin + width < n ? begin + width : n;
    const int64_t others = search::first_not(end - begin, [&](int64_t k) {
      return later ? !slices.less(order[i], order[begin + k]) : slices.less(order[begin + k], order[i]);
    });
    to[first + i % width + others] = order[i];
  }
};

template <class T>
Tensor sorted_order(const Work& work, const Slices<T>& slices, int64_t n, Device device) {
  Tensor order = empty_tensor({n}, DType::int64, device), other = empty_tensor({n}, DType::int64, device);
  for_elements(work, n, Count{target_of<int64_t>(order)});
  for (int64_t width = 1; width < n; width *= 2) {
    for_elements(work, n, MergeRuns<T>{slices, data_of<int64_t>(order), target_of<int64_t>(other), n, width});
    std::swap(order, other);
  }
  return order;
}

template <class T>
struct StartsRun {
  Slices<T> slices;
  const int64_t* order;
  uint8_t* flags;
  TG_DEVICE void operator()(int64_t i) const { flags[i] = i == 0 || !slices.equal(order[i - 1], order[i]); }
};
// `firsts`: where each run starts, in the order, and the end of the last.
struct NumberRuns {
  const int64_t* order;
  const uint8_t* flags;
  const int64_t* sums;
  int64_t* inverse;
  int64_t* firsts;
  int64_t n;
  TG_DEVICE void operator()(int64_t i) const {
    inverse[order[i]] = sums[i] - 1;
    if (flags[i] != 0) firsts[sums[i] - 1] = i;
    if (i == n - 1) firsts[sums[i]] = n;
  }
};
struct CountRuns {
  const int64_t* firsts;
  int64_t* counts;
  TG_DEVICE void operator()(int64_t i) const { counts[i] = firsts[i + 1] - firsts[i]; }
};
template <class T>
struct TakeSlices {
  const T* from;
  const int64_t* order;
  const int64_t* firsts;
  T* to;
  int64_t width;
  TG_DEVICE void operator()(int64_t i) const { to[i] = from[order[firsts[i / width]] * width + i % width]; }
};

// `rows`: dense, [n, width].
Result unique_rows(const Tensor& rows, int64_t n, int64_t width, bool sort) {
  const Device device = rows.device();
  auto numbers = [&](int64_t many) { return empty_tensor({many}, DType::int64, device); };
  const Tensor inverse = numbers(n);
  if (n == 0) return {empty_tensor({0, width}, rows.dtype(), device), inverse, numbers(0)};
  const Work work(device, {&rows});
  const Tensor flags = empty_tensor({n}, DType::uint8, device), sums = numbers(n), firsts = numbers(n + 1);
  const Tensor order = dispatch_dtype(rows.dtype(), [&]<class T>() {
    const Slices<T> slices{data_of<T>(rows), width};
    Tensor places;
    if (sort && width == 1 && !is_complex_type<T>) {
      places = numbers(n);
      sort_rows(work, RowKeys(work, rows, false), 1, n, n, places);
    } else if (sort) {
      places = sorted_order(work, slices, n, device);
    } else {
      places = numbers(n);
      for_elements(work, n, Count{target_of<int64_t>(places)});
    }
    for_elements(work, n, StartsRun<T>{slices, data_of<int64_t>(places), target_of<uint8_t>(flags)});
    return places;
  });
  inclusive_sums(work, data_of<uint8_t>(flags), target_of<int64_t>(sums), n);
  for_elements(work, n,
               NumberRuns{data_of<int64_t>(order), data_of<uint8_t>(flags), data_of<int64_t>(sums),
                          target_of<int64_t>(inverse), target_of<int64_t>(firsts), n});
  const int64_t found = last_sum(work, data_of<int64_t>(sums), n, "unique");
  const Tensor values = empty_tensor({found, width}, rows.dtype(), device), counts = numbers(found);
  for_elements(work, found, CountRuns{data_of<int64_t>(firsts), target_of<int64_t>(counts)});
  dispatch_bytes(rows.dtype(), [&]<class T>() {
    for_elements(work, found * width,
                 TakeSlices<T>{data_of<T>(rows), data_of<int64_t>(order), data_of<int64_t>(firsts),
                               target_of<T>(values), width});
  });
  return {values, inverse, counts};
}

Result unique_of(const Tensor& given, bool sort, bool values_only, std::optional<int64_t> dim, const char* op) {
  const Tensor input = clean_flags(given);
  if (dim) return unique_slices(input, *dim, sort, op, unique_rows);
  Result all = unique_elements(contiguous_or_copy(raw::reshape(input, {-1})), input.sizes(), sort, unique_rows);
  if (values_only) std::get<1>(all) = std::get<2>(all) = empty_tensor({0}, DType::int64, input.device());
  return all;
}

}  // namespace

Result unique_cuda(const Tensor& input, bool, bool return_inverse, bool return_counts, std::optional<int64_t> dim) {
  return unique_of(input, true, !return_inverse && !return_counts, dim, "unique");
}
Result unique_consecutive_cuda(const Tensor& input, bool, bool, std::optional<int64_t> dim) {
  return unique_of(input, false, false, dim, "unique_consecutive");
}

}  // namespace tapegrad::cuda
