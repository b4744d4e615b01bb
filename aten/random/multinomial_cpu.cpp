#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>

#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/kernels_random.h"
#include "tapegrad/aten/random/fill.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

// Inverts the running sum: the first category whose sum is above the draw.
void with_replacement(const double* weights, int64_t categories, int64_t samples, const double* draws, double* sums,
                      int64_t* to) {
  double sum = 0;
  int64_t last = 0;  // the last category that has a weight
  for (int64_t c = 0; c < categories; ++c) {
    sum += weights[c];
    sums[c] = sum;
    if (weights[c] > 0) last = c;
  }
  for (int64_t s = 0; s < samples; ++s) {
    const int64_t c = std::upper_bound(sums, sums + categories, draws[s] * sum) - sums;
    to[s] = std::min(c, last);
  }
}

// Waiting times of rate w, the shortest first: equal to drawing one after the other without putting back.
void without_replacement(const double* weights, int64_t categories, int64_t samples, const double* draws, double* times,
                         int64_t* order, int64_t* to) {
  for (int64_t c = 0; c < categories; ++c) times[c] = weights[c] > 0 ? -std::log1p(-draws[c]) / weights[c] : INFINITY;
  std::iota(order, order + categories, int64_t{0});
  std::partial_sort(order, order + samples, order + categories,
                    [&](int64_t a, int64_t b) { return times[a] != times[b] ? times[a] < times[b] : a < b; });
  std::copy_n(order, samples, to);
}

}  // namespace

void multinomial_cpu(const Tensor& input, int64_t num_samples, bool replacement, const GeneratorPtr&,
                     const PhiloxState& state, const Tensor& out) {
  const int64_t categories = input.size(-1), rows = categories ? input.numel() / categories : 0;
  Tensor weights = empty_tensor(input.sizes(), DType::float64);
  copy_cpu(weights, input, false);
  const double* w = static_cast<const double*>(weights.data_ptr());
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    int64_t positive = 0;
    for (int64_t c = 0; c < categories; ++c) {
      const double v = w[r * categories + c];
      TG_CHECK(v >= 0 && std::isfinite(v), Runtime, "multinomial: weights must be finite and not negative: got {}", v);
      sum += v;
      positive += v > 0;
    }
    TG_CHECK(sum > 0, Runtime, "multinomial: the weights of a row sum to {}: row {}", sum, r);
    TG_CHECK(replacement || positive >= num_samples, Runtime,
             "multinomial: {} samples without replacement from {} categories of positive weight", num_samples,
             positive);
  }
  const int64_t per_row = replacement ? num_samples : categories;
  Tensor draws = empty_tensor({rows, per_row}, DType::float64);
  double* d = static_cast<double*>(draws.data_ptr());
  fill_uniform(d, draws.numel(), state, [](double u) { return u; });
  int64_t* to = static_cast<int64_t*>(out.data_ptr());
  parallel_for(0, rows, std::max<int64_t>(1, 4096 / std::max<int64_t>(1, categories)), [&](int64_t begin, int64_t end) {
    std::unique_ptr<double[]> scratch(new double[static_cast<size_t>(categories)]);
    std::unique_ptr<int64_t[]> order(new int64_t[static_cast<size_t>(categories)]);
    for (int64_t r = begin; r < end; ++r) {
      if (replacement)
        with_replacement(w + r * categories, categories, num_samples, d + r * per_row, scratch.get(),
                         to + r * num_samples);
      else
        without_replacement(w + r * categories, categories, num_samples, d + r * per_row, scratch.get(), order.get(),
                            to + r * num_samples);
    }
  });
}

}  // namespace tapegrad::cpu::TG_ISA
