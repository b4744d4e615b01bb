// Searching and counting: searchsorted, bucketize, isin, histc, bincount.
#include "tapegrad/aten/index/search.h"

#include <cmath>

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/index/count.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/index/places.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/sort/row_sort.h"

namespace tapegrad::cuda {
namespace {

namespace search = cpu::TG_ISA;

Tensor on_device(const Tensor& t, DType dtype, Device device) { return contiguous_as(t, t.sizes(), dtype, device); }

template <class T>
struct At {
  const T* sequence;
  const int64_t* order;  // null: in order already
  int64_t length;
  FaultRecord* fault;
  FaultText op;
  TG_DEVICE T operator()(int64_t i) const {
    if (order == nullptr) return sequence[i];
    const int64_t at = checked_index(fault, Fault::Index, op, order[i], length);
    return sequence[at < 0 ? i : at];
  }
};
template <class T, class I>
struct FindPlace {
  const T* sequence;
  const int64_t* order;
  const T* values;
  I* out;
  int64_t length, per_row;  // per_row 0: one sequence for all
  bool right;
  FaultRecord* fault;
  FaultText op;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t first = per_row == 0 ? 0 : i / per_row * length;
    const At<T> at{sequence + first, order == nullptr ? nullptr : order + first, length, fault, op};
    out[i] = static_cast<I>(search::place_of(values[i], length, right, at));
  }
};

void find_places(const Tensor& sequence, const Tensor& values, bool right, const Tensor& sorter, const Tensor& out) {
  if (out.numel() == 0) return;
  const Device device = out.device();
  const DType dtype = search::compare_dtype(sequence, values);
  const Tensor s = on_device(sequence, dtype, device), v = on_device(values, dtype, device);
  const Tensor order = sorter.defined() ? on_device(sorter, DType::int64, device) : Tensor();
  const Work work(device, {&s, &v, &out});
  if (order.defined()) work.use(order);
  search::with_real(dtype, [&]<class T>() {
    auto run = [&]<class I>() {
      for_elements(work, out.numel(),
                   FindPlace<T, I>{data_of<T>(s), data_of<int64_t>(order), data_of<T>(v), target_of<I>(out), s.size(-1),
                                   s.ndim() == 1 ? 0 : v.size(-1), right, fault_record(device.index), "searchsorted"});
    };
    if (out.dtype() == DType::int32)
      run.template operator()<int32_t>();
    else
      run.template operator()<int64_t>();
  });
}

template <class T>
struct IsIn {
  const T *values, *tests;  // tests: sorted
  uint8_t* out;
  int64_t n;
  bool invert;
  TG_DEVICE void operator()(int64_t i) const {
    const T v = values[i];
    const int64_t at = search::place_of(v, n, false, At<T>{tests, nullptr, n, nullptr, {}});
    out[i] = (at < n && tests[at] == v) != invert;
  }
};

// Counts are whole numbers, so the order of additions does not matter.
template <class T>
struct CountBin {
  const T* x;
  int64_t* counts;
  double low, high, scale, last;
  TG_DEVICE void operator()(int64_t i) const {
    const double v = static_cast<double>(steps::widen<T>(x[i])), at = (v - low) * scale;
    if (v >= low && v <= high) atomic_add(counts + static_cast<int64_t>(at < last ? at : last), int64_t{1});
  }
};
struct CountValue {
  const int64_t* values;
  int64_t* counts;
  TG_DEVICE void operator()(int64_t i) const { atomic_add(counts + values[i], int64_t{1}); }
};

struct ValueAsPlace {
  const int64_t* values;
  TG_DEVICE int64_t at(int64_t i) const { return values[i]; }
};
// The weights of a value in the order in which they stand.
template <class T>
struct SumOfValue {
  const uint64_t* keys;
  const int64_t* order;
  const T* weights;
  T* out;
  int64_t n;
  TG_DEVICE void operator()(int64_t i) const {
    if (i > 0 && keys[i - 1] == keys[i]) return;
    T sum = 0;
    for (int64_t k = i; k < n && keys[k] == keys[i]; ++k) sum += weights[order[k]];
    out[keys[i]] = sum;
  }
};

// Numbers of the device, which the host waits for.
template <class T>
void read_values(T* to, std::initializer_list<Tensor> from, const char* op) {
  const Stream stream = current_stream(from.begin()->device().index);
  for (const Tensor& t : from) driver().copy(to++, t.data_ptr(), sizeof(T), CopyKind::DeviceToHost, stream.handle);
  wait_for_value(stream, op);
}

void check_finite(const Tensor& t) {
  const Tensor there = empty_tensor({t.numel()}, DType::float64), flat = raw::reshape(t, {-1});
  copy_any(there, flat, false);
  for (int64_t i = 0; i < t.numel(); ++i)
    TG_CHECK(std::isfinite(there.data<double>()[i]), Runtime,
             "histc: the range of the input must be finite: got {} at element {}", there.data<double>()[i], i);
}

Tensor zeros_on(int64_t n, DType dtype, Device device) {
  const Tensor t = empty_tensor({n}, dtype, device);
  if (n > 0) zero_dense(t);
  return t;
}

}  // namespace

TG_SEARCH_KERNELS(cuda, find_places)

void isin_cuda(const Operand& elements, const Operand& test_elements, bool, bool invert, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor &e = elements.tensor(), &t = test_elements.tensor();
  const Device device = out.device();
  const DType dtype = search::compare_dtype(e, t);
  const Tensor values = on_device(e, dtype, device), tests = on_device(t, dtype, device);
  const int64_t n = tests.numel();
  const Work work(device, {&values, &tests, &out});
  Tensor sorted = empty_tensor({n}, dtype, device);
  if (n > 0) {
    const Tensor places = empty_tensor({n}, DType::int64, device);
    sort_rows(work, RowKeys(work, tests, false), 1, n, n, places);
    take_places(work, tests, n, places, n, sorted);
  }
  search::with_real(dtype, [&]<class T>() {
    for_elements(work, out.numel(),
                 IsIn<T>{data_of<T>(values), data_of<T>(sorted), target_of<uint8_t>(out), n, invert});
  });
}

void histc_cuda(const Tensor& input, int64_t bins, const Scalar& min, const Scalar& max, const Tensor& out) {
  const Tensor from = contiguous_or_copy(input);
  double range[2] = {min.to<double>(), max.to<double>()};
  if (range[0] == range[1] && from.numel() > 0) {
    read_values(range, {raw::to(raw::amin(from), DType::float64), raw::to(raw::amax(from), DType::float64)}, "histc");
    if (!std::isfinite(range[0]) || !std::isfinite(range[1])) check_finite(from);
    if (range[0] == range[1]) {
      range[0] -= 1;
      range[1] += 1;
    }
  }
  const Tensor counts = zeros_on(bins, DType::int64, out.device());
  {
    const Work work(out.device(), {&from});
    const double scale = static_cast<double>(bins) / (range[1] - range[0]);
    dispatch_dtype(from.dtype(), [&]<class T>() {
      if constexpr (!is_complex_type<T>)
        for_elements(work, from.numel(),
                     CountBin<T>{data_of<T>(from), target_of<int64_t>(counts), range[0], range[1], scale,
                                 static_cast<double>(bins - 1)});
    });
  }
  copy_any(out, counts, true);
}

Tensor bincount_cuda(const Tensor& input, const Tensor& weights, int64_t minlength) {
  check_bincount(input, weights, minlength);
  const Device device = input.device();
  const Tensor values = on_device(input, DType::int64, device);
  const int64_t n = values.numel();
  int64_t length = minlength;
  if (n > 0) {
    int64_t ends[2];
    read_values(ends, {raw::amin(values), raw::amax(values)}, "bincount");
    TG_CHECK(ends[0] >= 0 && ends[1] < INT64_MAX, Runtime, "bincount: values must not be negative: got {}",
             ends[0] < 0 ? ends[0] : ends[1]);
    length = std::max(length, ends[1] + 1);
  }
  if (!weights.defined()) {
    const Tensor out = zeros_on(length, DType::int64, device);
    const Work work(device, {&values, &out});
    for_elements(work, n, CountValue{data_of<int64_t>(values), target_of<int64_t>(out)});
    return out;
  }
  const DType dtype = weights.dtype() == DType::float32 ? DType::float32 : DType::float64;
  const Tensor out = zeros_on(length, dtype, device), w = on_device(weights, dtype, device);
  const Work work(device, {&values, &w, &out});
  const SortedPlaces sorted = sorted_places(work, device, ValueAsPlace{data_of<int64_t>(values)}, n, length);
  dispatch_floating(dtype, [&]<class T>() {
    if constexpr (!is_half_type<T>)
      for_elements(work, n, SumOfValue<T>{sorted.key_data(), sorted.order_data(), data_of<T>(w), target_of<T>(out), n});
  });
  return out;
}

}  // namespace tapegrad::cuda
