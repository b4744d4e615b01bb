// Distributions that are drawn by rejection (rejection.h).
#include <cmath>

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/random/fill.h"
#include "tapegrad/aten/random/rejection.h"
#include "tapegrad/aten/typed.h"

namespace tapegrad::cpu::TG_ISA {

using Gen = const GeneratorPtr&;

namespace {

// out = draw(element's number)
template <class F>
void draw_each(const Tensor& out, F&& draw) {
  Tensor drawn = empty_tensor(out.sizes(), DType::float64);
  auto* to = static_cast<double*>(drawn.data_ptr());
  parallel_for(0, out.numel(), 512, [&](int64_t first, int64_t last) {
    for (int64_t i = first; i < last; ++i) to[i] = draw(i);
  });
  copy_cpu(out, drawn, false);
}

}  // namespace

void poisson_cpu(const Tensor& input, Gen, const PhiloxState& state, const Tensor& out) {
  const Tensor rates = contiguous_as(input, DType::float64);
  const auto* rate = data_of<double>(rates);
  for (int64_t i = 0; i < rates.numel(); ++i)
    TG_CHECK(rate[i] >= 0 && rate[i] <= 1e300, Runtime, "poisson: rates must be finite and not negative: got {}",
             rate[i]);
  draw_each(out, [&](int64_t i) {
    DrawStream stream(state, i);
    return poisson_of(rate[i], stream);
  });
}

void standard_gamma_cpu(const Tensor& input, Gen, const PhiloxState& state, const Tensor& out) {
  const Tensor shapes = contiguous_as(input, DType::float64);
  const auto* shape = data_of<double>(shapes);
  const double least = limits_of(out.dtype()).first;
  draw_each(out, [&](int64_t i) {
    DrawStream stream(state, i);
    const double drawn = std::exp(log_gamma_variate(shape[i], stream));
    return drawn < least ? least : drawn;
  });
}

// Normalised gamma variates, by their logarithms: of tiny concentrations all variates may be below any number.
void sample_dirichlet_cpu(const Tensor& input, Gen, const PhiloxState& state, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor shapes = contiguous_as(input, DType::float64), drawn = empty_tensor(out.sizes(), DType::float64);
  const auto* shape = data_of<double>(shapes);
  auto* value = target_of<double>(drawn);
  const int64_t n = input.size(-1);
  const auto [least, gap] = limits_of(out.dtype());
  parallel_for(0, out.numel() / n, std::max<int64_t>(1, 512 / n),
               [&, least = least, gap = gap](int64_t first, int64_t last) {
                 for (int64_t row = first; row < last; ++row) {
                   double* p = value + row * n;
                   double largest = -std::numeric_limits<double>::infinity(), sum = 0;
                   for (int64_t k = 0; k < n; ++k) {
                     DrawStream stream(state, row * n + k);
                     p[k] = log_gamma_variate(shape[row * n + k], stream);
                     largest = std::max(largest, p[k]);
                   }
                   for (int64_t k = 0; k < n; ++k) sum += p[k] = std::exp(p[k] - largest);
                   for (int64_t k = 0; k < n; ++k) p[k] = std::min(std::max(p[k] / sum, least), 1 - gap);
                 }
               });
  copy_cpu(out, drawn, false);
}

void binomial_cpu(const Tensor& count, const Tensor& prob, Gen, const PhiloxState& state, const Tensor& out) {
  const Tensor counts = contiguous_as(count, out.sizes(), DType::float64, out.device()),
               probs = contiguous_as(prob, out.sizes(), DType::float64, out.device());
  const auto *n = data_of<double>(counts), *p = data_of<double>(probs);
  for (int64_t i = 0; i < out.numel(); ++i) {
    TG_CHECK(n[i] >= 0 && n[i] <= 9007199254740992.0 && n[i] == std::floor(n[i]), Runtime,
             "binomial: counts must be whole numbers from 0 to 2^53: got {}", n[i]);
    TG_CHECK(p[i] >= 0 && p[i] <= 1, Runtime, "binomial: probabilities lie between 0 and 1: got {}", p[i]);
  }
  draw_each(out, [&](int64_t i) {
    DrawStream stream(state, i);
    return binomial_of(n[i], p[i], stream);
  });
}

}  // namespace tapegrad::cpu::TG_ISA
