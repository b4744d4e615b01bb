// Draws that are compared or sorted: coin tosses with a probability per element, permutations, categories. The same
// numbers in the same order of operations as the CPU's.
#include <bit>

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/index/search.h"
#include "tapegrad/aten/iterate/convert/cast.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/value_fault.h"
#include "tapegrad/cuda/random/draws.h"
#include "tapegrad/cuda/sort/device_sort.h"
#include "tapegrad/cuda/sort/row_sort.h"

namespace tapegrad::cuda {

using OptDType = std::optional<DType>;
using OptDevice = std::optional<Device>;
using Gen = const GeneratorPtr&;

namespace {

template <class T>
struct TossEach {
  const T* probability;
  uint8_t* out;
  DrawState state;
  FaultRecord* fault;
  FaultText sentence;
  TG_DEVICE void operator()(int64_t i) const {
    const double p = static_cast<double>(steps::widen<T>(probability[i]));
    if (!(p >= 0 && p <= 1)) record_value_fault(fault, sentence, p);
    out[i] = philox_uniform(philox_word64(state, static_cast<uint64_t>(i))) < p;
  }
};

void toss_each(const Tensor& probabilities, const Tensor& out, DrawState state) {
  if (out.numel() == 0) return;
  const Tensor p = contiguous_as(probabilities, out.sizes(), probabilities.dtype(), out.device());
  const Tensor tosses = empty_tensor(out.sizes(), DType::bool_, out.device());
  {
    const Work work(out.device(), {&p, &tosses});
    dispatch_dtype(p.dtype(), [&]<class T>() {
      if constexpr (!is_complex_type<T>)
        for_elements(work, out.numel(),
                     TossEach<T>{data_of<T>(p), target_of<uint8_t>(tosses), state, fault_record(out.device().index),
                                 "bernoulli: probabilities lie in [0, 1]"});
    });
  }
  copy_any(out, tosses, true);
}

struct DrawKeys {
  uint64_t* keys;
  uint32_t* numbers;
  DrawState state;
  int bits;
  TG_DEVICE void operator()(int64_t i) const {
    keys[i] = philox_word64(state, static_cast<uint64_t>(i)) >> (64 - bits);
    numbers[i] = static_cast<uint32_t>(i);
  }
};
template <class T>
struct FromNumbers {
  const uint32_t* numbers;
  T* out;
  TG_DEVICE void operator()(int64_t i) const { out[i] = cast_element<T>(static_cast<int64_t>(numbers[i])); }
};

// ---- multinomial; the sums are those of aten/random/multinomial_cpu.cpp

constexpr int64_t kCategories = 64;  // of a block
constexpr int kAbreast = 8;          // sums side by side within one

template <class T>
TG_DEVICE double weight_of(const T* weights, int64_t c, int64_t n) {
  return c < n ? static_cast<double>(steps::widen<T>(weights[c])) : 0;
}

template <class T>
struct BlockSums {
  const T* weights;
  double* sums;       // [rows, blocks]
  int64_t* positive;  // of each block
  int64_t categories, blocks;
  FaultRecord* fault;
  FaultText sentence;
  TG_DEVICE void operator()(int64_t i) const {
    const T* row = weights + i / blocks * categories;
    const int64_t first = i % blocks * kCategories;
    double sum[kAbreast] = {};
    int64_t many = 0;
    for (int64_t c = 0; c < kCategories; c += kAbreast)
      for (int j = 0; j < kAbreast; ++j) {
        const double w = weight_of(row, first + c + j, categories);
        if (!(w >= 0 && w <= std::numeric_limits<double>::max())) record_value_fault(fault, sentence, w);
        sum[j] += w;
        many += w > 0;
      }
    sums[i] = ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
    positive[i] = many;
  }
};
// The sums of a row become what stands before each block.
struct RowTotals {
  double* sums;
  const int64_t* positive;
  double* totals;
  int64_t blocks, needed;  // 0: any number of positive weights does
  FaultRecord* fault;
  FaultText no_weight, too_few;
  TG_DEVICE void operator()(int64_t row) const {
    double total = 0;
    int64_t many = 0;
    for (int64_t k = row * blocks; k < (row + 1) * blocks; ++k) {
      const double sum = sums[k];
      sums[k] = total;
      total += sum;
      many += positive[k];
    }
    totals[row] = total;
    if (!(total > 0))
      record_value_fault(fault, no_weight, total);
    else if (many < needed)
      record_value_fault(fault, too_few, static_cast<double>(many));
  }
};
// The first category whose running sum is above the draw, or the last that has a weight and stands before it.
template <class T>
struct PickCategory {
  const T* weights;
  const double* sums;
  const double* totals;
  int64_t* out;
  int64_t categories, blocks, samples;
  DrawState state;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t row = i / samples;
    const double at = philox_uniform(philox_word64(state, static_cast<uint64_t>(i))) * totals[row];
    const double* before = sums + row * blocks;
    const T* w = weights + row * categories;
    const int64_t low = cpu::TG_ISA::first_not(blocks, [&](int64_t k) { return before[k] <= at; });
    out[i] = 0;  // of weights that were found wrong
    for (int64_t k = low - 1; k >= 0; --k) {
      const int64_t first = k * kCategories, n = categories - first < kCategories ? categories - first : kCategories;
      double sum = before[k];
      int64_t c = 0;
      for (int64_t group = 0; group < kCategories; group += kAbreast) {
        double v[kAbreast];
        for (int j = 0; j < kAbreast; ++j) v[j] = weight_of(w, first + group + j, categories);
        for (int d = 1; d < kAbreast; d *= 2)
          for (int j = kAbreast - 1; j >= d; --j) v[j] = v[j - d] + v[j];
        for (int j = 0; j < kAbreast; ++j) {
          v[j] += sum;
          c += v[j] <= at;
        }
        sum = v[kAbreast - 1];
      }
      c = c < n - 1 ? c : n - 1;
      while (c >= 0 && !(weight_of(w, first + c, categories) > 0)) --c;
      if (c >= 0) {
        out[i] = first + c;
        return;
      }
    }
  }
};
// Waiting times of rate w, the shortest first: equal to drawing one after the other without putting back.
template <class T>
struct WaitingTimes {
  const T* weights;
  double* times;
  DrawState state;
  TG_DEVICE void operator()(int64_t i) const {
    const double w = static_cast<double>(steps::widen<T>(weights[i]));
    const double draw = philox_uniform(philox_word64(state, static_cast<uint64_t>(i)));
    times[i] = w > 0 ? -std::log1p(-draw) / w : std::numeric_limits<double>::infinity();
  }
};

}  // namespace

void bernoulli_cuda(const Tensor& input, Gen g, const PhiloxState& state, const Tensor& out) {
  toss_each(input, out, draw_state(state, g, out.device()));
}
void bernoulli_tensor_fill_cuda(const Tensor& self, const Tensor& p, Gen g, const PhiloxState& state) {
  toss_each(p, self, draw_state(state, g, self.device()));
}

// Each number gets random bits in front and all are sorted. The order of equal ones is that of the numbers.
void randperm_cuda(int64_t n, Gen g, OptDType, OptDevice, const PhiloxState& state, const Tensor& out) {
  if (n == 0) return;
  TG_CHECK(n < int64_t{1} << 32, NotImplemented, "randperm: more than 2^32 numbers on cuda: got {}", n);
  const Work work(out.device(), {&out});
  const Device device = out.device();
  const int bits = std::min(64 - static_cast<int>(std::bit_width(static_cast<uint64_t>(n - 1))), 40);
  const Tensor keys = empty_tensor({n}, DType::int64, device), sorted = empty_tensor({n}, DType::int64, device);
  const Tensor numbers = empty_tensor({n}, DType::int32, device), order = empty_tensor({n}, DType::int32, device);
  for_elements(
      work, n,
      DrawKeys{target_of<uint64_t>(keys), target_of<uint32_t>(numbers), draw_state(state, g, out.device()), bits});
  sort_pairs(work, data_of<uint64_t>(keys), target_of<uint64_t>(sorted), data_of<uint32_t>(numbers),
             target_of<uint32_t>(order), n, bits);
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (!is_complex_type<T> && !std::is_same_v<T, bool>)
      for_elements(work, n, FromNumbers<T>{data_of<uint32_t>(order), target_of<T>(out)});
  });
}

void multinomial_cuda(const Tensor& given, int64_t num_samples, bool replacement, Gen g, const PhiloxState& state,
                      const Tensor& out) {
  const DrawState drawn_state = draw_state(state, g, out.device());
  const Tensor input = contiguous_or_copy(given);
  const int64_t categories = input.size(-1), rows = categories ? input.numel() / categories : 0;
  const int64_t blocks = (categories + kCategories - 1) / kCategories;
  if (rows == 0) return;
  const Device device = out.device();
  const Work work(device, {&input, &out});
  const Tensor sums = empty_tensor({rows, blocks}, DType::float64, device);
  const Tensor positive = empty_tensor({rows, blocks}, DType::int64, device);
  const Tensor totals = empty_tensor({rows}, DType::float64, device);
  FaultRecord* fault = fault_record(device.index);
  dispatch_floating(input.dtype(), [&]<class T>() {
    for_elements(work, rows * blocks,
                 BlockSums<T>{data_of<T>(input), target_of<double>(sums), target_of<int64_t>(positive), categories,
                              blocks, fault, "multinomial: weights must be finite and not negative"});
    for_elements(
        work, rows,
        RowTotals{target_of<double>(sums), data_of<int64_t>(positive), target_of<double>(totals), blocks,
                  replacement ? 0 : num_samples, fault, "multinomial: the weights of a row must have a positive sum",
                  "multinomial: fewer categories of positive weight than samples without replacement"});
    if (replacement)
      return for_elements(work, rows * num_samples,
                          PickCategory<T>{data_of<T>(input), data_of<double>(sums), data_of<double>(totals),
                                          target_of<int64_t>(out), categories, blocks, num_samples, drawn_state});
    const Tensor times = empty_tensor({rows, categories}, DType::float64, device);
    for_elements(work, rows * categories, WaitingTimes<T>{data_of<T>(input), target_of<double>(times), drawn_state});
    sort_rows(work, RowKeys(work, times, false), rows, categories, num_samples, out);
  });
}

}  // namespace tapegrad::cuda
