#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <numeric>
#include <utility>

#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/random/fill.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

constexpr int64_t kBlock = 64;  // categories
typedef double V8 __attribute__((vector_size(64)));
typedef int64_t Flags __attribute__((vector_size(64)));

// The weights of a row, added up block by block.
template <class T>
struct Row {
  const T* weights;
  int64_t categories;
  double* before;  // the sum of the weights before each block

  int64_t blocks() const { return (categories + kBlock - 1) / kBlock; }
  // The weights of a block, followed by zeros.
  void load(int64_t block, double* w) const {
    const T* from = weights + block * kBlock;
    const int64_t n = std::min(kBlock, categories - block * kBlock);
    for (int64_t c = 0; c < n; ++c) w[c] = static_cast<double>(static_cast<compute_t<T>>(from[c]));
    for (int64_t c = n; c < kBlock; ++c) w[c] = 0;
  }

  // Returns the sum and the number of positive weights; -1 where one is negative or not finite.
  std::pair<double, int64_t> add_up() const {
    double total = 0;
    Flags bad{}, positive{};
    WorkCount done;
    for (int64_t k = 0; k < blocks(); ++k, done(kBlock)) {
      alignas(64) double w[kBlock];
      load(k, w);
      V8 sum{};
      for (int64_t c = 0; c < kBlock; c += 8) {
        V8 v;
        std::memcpy(&v, w + c, sizeof v);
        sum += v;
        bad |= ~((v >= 0) & (v <= std::numeric_limits<double>::max()));
        positive -= v > 0;
      }
      before[k] = total;
      total += ((sum[0] + sum[4]) + (sum[1] + sum[5])) + ((sum[2] + sum[6]) + (sum[3] + sum[7]));
    }
    int64_t count = 0, any = 0;
    for (int j = 0; j < 8; ++j) {
      any |= bad[j];
      count += positive[j];
    }
    return {total, any ? -1 : count};
  }

  // The first category whose running sum is above `at`, or the last that has a weight and stands before it.
  // `sums`: the running sums within blocks, where they were worked out.
  int64_t find(double at, const double* sums) const {
    for (int64_t k = std::upper_bound(before, before + blocks(), at) - before - 1;; --k) {
      const int64_t first = k * kBlock, n = std::min(kBlock, categories - first);
      alignas(64) double w[kBlock];
      if (!sums) running(k, w);
      const double* s = sums ? sums + first : w;
      Flags not_above{};
      for (int64_t c = 0; c < kBlock; c += 8) {
        V8 v;
        std::memcpy(&v, s + c, sizeof v);
        not_above -= v <= at;
      }
      int64_t c = 0;
      for (int j = 0; j < 8; ++j) c += not_above[j];
      c = std::min(c, n - 1);
      while (c >= 0 && !(static_cast<compute_t<T>>(weights[first + c]) > 0)) --c;
      if (c >= 0) return first + c;
    }
  }
  void running(int64_t block, double* sums) const {
    load(block, sums);
    const V8 zero{};
    double sum = before[block];
    for (int64_t c = 0; c < kBlock; c += 8) {
      V8 v;
      std::memcpy(&v, sums + c, sizeof v);
      v += __builtin_shufflevector(zero, v, 0, 8, 9, 10, 11, 12, 13, 14);
      v += __builtin_shufflevector(zero, v, 0, 0, 8, 9, 10, 11, 12, 13);
      v += __builtin_shufflevector(zero, v, 0, 0, 0, 0, 8, 9, 10, 11);
      v += sum;
      sum = v[7];
      std::memcpy(sums + c, &v, sizeof v);
    }
  }
};

// Waiting times of rate w, the shortest first: equal to drawing one after the other without putting back.
void without_replacement(const double* weights, int64_t categories, int64_t samples, const double* draws, double* times,
                         int64_t* order, int64_t* to) {
  serial_for(0, categories, [&](int64_t first, int64_t last) {
    for (int64_t c = first; c < last; ++c) times[c] = weights[c] > 0 ? -std::log1p(-draws[c]) / weights[c] : INFINITY;
  });
  std::iota(order, order + categories, int64_t{0});
  WorkCount done;
  std::partial_sort(order, order + samples, order + categories, [&](int64_t a, int64_t b) {
    done(8);  // they lie far from each other
    return times[a] != times[b] ? times[a] < times[b] : a < b;
  });
  std::copy_n(order, samples, to);
}

}  // namespace

void multinomial_cpu(const Tensor& given, int64_t num_samples, bool replacement, const GeneratorPtr&,
                     const PhiloxState& state, const Tensor& out) {
  const Tensor input = contiguous_or_copy(given);
  const int64_t categories = input.size(-1), rows = categories ? input.numel() / categories : 0;
  const int64_t blocks = (categories + kBlock - 1) / kBlock, padded = blocks * kBlock;
  const int64_t grain = std::max<int64_t>(1, 4096 / std::max<int64_t>(1, categories));
  const std::unique_ptr<double[]> before(new double[static_cast<size_t>(rows * blocks)]);
  const std::unique_ptr<double[]> totals(new double[static_cast<size_t>(rows)]);
  const int64_t per_row = replacement ? num_samples : categories;
  Tensor draws = empty_tensor({rows, per_row}, DType::float64);
  double* d = static_cast<double*>(draws.data_ptr());
  int64_t* to = static_cast<int64_t*>(out.data_ptr());
  dispatch_dtype(input.dtype(), [&]<class T>() {
    if constexpr (is_floating_type<T>) {
      auto row = [&](int64_t r) {
        return Row<T>{static_cast<const T*>(input.data_ptr()) + r * categories, categories, before.get() + r * blocks};
      };
      parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
        for (int64_t r = begin; r < end; ++r) {
          const auto [sum, positive] = row(r).add_up();
          for (int64_t c = 0; positive < 0 && c < categories; ++c) {
            const double v = static_cast<double>(static_cast<compute_t<T>>(row(r).weights[c]));
            TG_CHECK(v >= 0 && std::isfinite(v), Runtime,
                     "multinomial: weights must be finite and not negative: got {}", v);
          }
          TG_CHECK(sum > 0, Runtime, "multinomial: the weights of a row sum to {}: row {}", sum, r);
          TG_CHECK(replacement || positive >= num_samples, Runtime,
                   "multinomial: {} samples without replacement from {} categories of positive weight", num_samples,
                   positive);
          totals[r] = sum;
        }
      });
      fill_uniform(Sink<double>(d), draws.numel(), state, [](double u) { return u; });
      parallel_for(0, rows, grain, [&](int64_t begin, int64_t end) {
        const std::unique_ptr<double[]> scratch(new double[static_cast<size_t>(2 * padded)]);
        const std::unique_ptr<int64_t[]> order(new int64_t[static_cast<size_t>(categories)]);
        WorkCount done;
        for (int64_t r = begin; r < end; ++r) {
          const double* draw = d + r * per_row;
          if (replacement) {
            const double* sums = num_samples > blocks ? scratch.get() : nullptr;
            for (int64_t k = 0; sums && k < blocks; ++k, done(kBlock)) row(r).running(k, scratch.get() + k * kBlock);
            for (int64_t s = 0; s < num_samples; ++s, done(kBlock))
              to[r * num_samples + s] = row(r).find(draw[s] * totals[r], sums);
          } else {
            for (int64_t k = 0; k < blocks; ++k, done(kBlock)) row(r).load(k, scratch.get() + k * kBlock);
            without_replacement(scratch.get(), categories, num_samples, draw, scratch.get() + padded, order.get(),
                                to + r * num_samples);
          }
        }
      });
    }
  });
}

}  // namespace tapegrad::cpu::TG_ISA
