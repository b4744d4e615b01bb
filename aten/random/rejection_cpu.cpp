// Distributions that are drawn by rejection, so that an element needs an unknown number of words: every element has a
// stream of its own, derived from the call's state and its number. Computed in double.
#include <cmath>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/kernels_random.h"
#include "tapegrad/aten/random/fill.h"

namespace tapegrad::cpu::TG_ISA {

using Gen = const GeneratorPtr&;

namespace {

class Stream {
 public:
  Stream(PhiloxState call, int64_t element)
      : state_{philox_derive_seed(call.seed, call.offset, static_cast<uint64_t>(element)), 0} {}
  // In (0, 1).
  double uniform() {
    if (left_ == 0) {
      block_ = philox_block(state_, next_++);
      left_ = 2;
    }
    const int at = 2 * (2 - left_--);
    return open_uniform(block_.word[at] | uint64_t{block_.word[at + 1]} << 32);
  }

 private:
  PhiloxState state_;
  PhiloxBlock block_{};
  uint64_t next_ = 0;
  int left_ = 0;
};

// Knuth's product of uniforms for small rates; above, W. Hoermann, "The transformed rejection method for generating
// Poisson random variables", Insurance: Mathematics and Economics 12 (1993), algorithm PTRS.
double poisson_of(double rate, Stream& stream) {
  if (rate == 0) return 0;
  if (rate < 10) {
    const double end = std::exp(-rate);
    double product = stream.uniform(), k = 0;
    for (; product > end; ++k) product *= stream.uniform();
    return k;
  }
  const double root = std::sqrt(rate), log_rate = std::log(rate);
  const double b = 0.931 + 2.53 * root, a = -0.059 + 0.02483 * b;
  const double inv_alpha = 1.1239 + 1.1328 / (b - 3.4), v_r = 0.9277 - 3.6224 / (b - 2);
  while (true) {
    const double u = stream.uniform() - 0.5, v = stream.uniform(), us = 0.5 - std::fabs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= v_r) return k;
    if (k < 0 || (us < 0.013 && v > us)) continue;
    if (std::log(v) + std::log(inv_alpha) - std::log(a / (us * us) + b) <= -rate + k * log_rate - std::lgamma(k + 1))
      return k;
  }
}

// For p up to a half: sums of geometric waiting times where few successes are expected; else W. Hoermann, "The
// generation of binomial random variates", J. Statistical Computation and Simulation 46 (1993), algorithm BTRS.
double few_or_half(double n, double p, Stream& stream) {
  if (n * p < 10) {
    const double scale = 1 / std::log1p(-p);
    double trials = 0, successes = 0;
    while (true) {
      trials += std::ceil(std::log(stream.uniform()) * scale);
      if (!(trials <= n)) return successes;
      ++successes;
    }
  }
  const double q = 1 - p, spread = std::sqrt(n * p * q);
  const double b = 1.15 + 2.53 * spread, a = -0.0873 + 0.0248 * b + 0.01 * p, c = n * p + 0.5;
  const double v_r = 0.92 - 4.2 / b, alpha = (2.83 + 5.1 / b) * spread, log_odds = std::log(p / q);
  const double m = std::floor((n + 1) * p), h = std::lgamma(m + 1) + std::lgamma(n - m + 1);
  while (true) {
    const double u = stream.uniform() - 0.5, us = 0.5 - std::fabs(u);
    double v = stream.uniform();
    const double k = std::floor((2 * a / us + b) * u + c);
    if (k < 0 || k > n) continue;
    if (us >= 0.07 && v <= v_r) return k;
    v = std::log(v * alpha / (a / (us * us) + b));
    if (v <= h - std::lgamma(k + 1) - std::lgamma(n - k + 1) + (k - m) * log_odds) return k;
  }
}

double binomial_of(double n, double p, Stream& stream) {
  if (n == 0 || p == 0) return 0;
  if (p == 1) return n;
  return p <= 0.5 ? few_or_half(n, p, stream) : n - few_or_half(n, 1 - p, stream);
}

double normal_of(Stream& stream) {
  const double radius = std::sqrt(-2 * std::log(stream.uniform()));
  return radius * std::cos(2 * math::kPi * stream.uniform());
}

// The logarithm of a gamma variate, as shapes near zero give numbers below any dtype's. G. Marsaglia and W. W. Tsang,
// "A simple method for generating gamma variables", ACM Transactions on Mathematical Software 26 (2000).
double log_gamma_variate(double shape, Stream& stream) {
  if (!(shape > 0)) return shape == 0 ? -std::numeric_limits<double>::infinity() : std::nan("");
  if (std::isinf(shape)) return shape;
  if (shape < 1) {
    const double boost = std::log(stream.uniform()) / shape;
    return log_gamma_variate(shape + 1, stream) + boost;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal_of(stream), root = 1 + c * x;
    if (root <= 0) continue;
    const double log_v = 3 * std::log(root);
    if (std::log(stream.uniform()) < 0.5 * x * x + d - d * std::exp(log_v) + d * log_v) return std::log(d) + log_v;
  }
}

// The least positive normal number and the distance of 1 from the number before it.
std::pair<double, double> limits_of(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return {6.103515625e-05, 0x1p-11};
    case DType::bfloat16:
      return {std::numeric_limits<float>::min(), 0x1p-8};
    case DType::float32:
      return {std::numeric_limits<float>::min(), 0x1p-24};
    default:
      return {std::numeric_limits<double>::min(), 0x1p-53};
  }
}

Tensor in_double(const Tensor& t, IntSpan sizes) {
  Tensor wide = empty_tensor(sizes, DType::float64);
  copy_cpu(wide, t, false);
  return wide;
}

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
  const Tensor rates = in_double(input, input.sizes());
  const auto* rate = static_cast<const double*>(rates.data_ptr());
  for (int64_t i = 0; i < rates.numel(); ++i)
    TG_CHECK(rate[i] >= 0 && rate[i] <= 1e300, Runtime, "poisson: rates must be finite and not negative: got {}",
             rate[i]);
  draw_each(out, [&](int64_t i) {
    Stream stream(state, i);
    return poisson_of(rate[i], stream);
  });
}

void standard_gamma_cpu(const Tensor& input, Gen, const PhiloxState& state, const Tensor& out) {
  const Tensor shapes = in_double(input, input.sizes());
  const auto* shape = static_cast<const double*>(shapes.data_ptr());
  const double least = limits_of(out.dtype()).first;
  draw_each(out, [&](int64_t i) {
    Stream stream(state, i);
    const double drawn = std::exp(log_gamma_variate(shape[i], stream));
    return drawn < least ? least : drawn;
  });
}

// Normalised gamma variates, by their logarithms: of tiny concentrations all variates may be below any number.
void sample_dirichlet_cpu(const Tensor& input, Gen, const PhiloxState& state, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor drawn = in_double(input, input.sizes());
  auto* value = static_cast<double*>(drawn.data_ptr());
  const int64_t n = input.size(-1);
  const auto [least, gap] = limits_of(out.dtype());
  parallel_for(0, out.numel() / n, std::max<int64_t>(1, 512 / n),
               [&, least = least, gap = gap](int64_t first, int64_t last) {
                 for (int64_t row = first; row < last; ++row) {
                   double* p = value + row * n;
                   double largest = -std::numeric_limits<double>::infinity(), sum = 0;
                   for (int64_t k = 0; k < n; ++k) {
                     Stream stream(state, row * n + k);
                     p[k] = log_gamma_variate(p[k], stream);
                     largest = std::max(largest, p[k]);
                   }
                   for (int64_t k = 0; k < n; ++k) sum += p[k] = std::exp(p[k] - largest);
                   for (int64_t k = 0; k < n; ++k) p[k] = std::min(std::max(p[k] / sum, least), 1 - gap);
                 }
               });
  copy_cpu(out, drawn, false);
}

void binomial_cpu(const Tensor& count, const Tensor& prob, Gen, const PhiloxState& state, const Tensor& out) {
  const Tensor counts = in_double(count, out.sizes()), probs = in_double(prob, out.sizes());
  const auto *n = static_cast<const double*>(counts.data_ptr()), *p = static_cast<const double*>(probs.data_ptr());
  for (int64_t i = 0; i < out.numel(); ++i) {
    TG_CHECK(n[i] >= 0 && n[i] <= 9007199254740992.0 && n[i] == std::floor(n[i]), Runtime,
             "binomial: counts must be whole numbers from 0 to 2^53: got {}", n[i]);
    TG_CHECK(p[i] >= 0 && p[i] <= 1, Runtime, "binomial: probabilities lie between 0 and 1: got {}", p[i]);
  }
  draw_each(out, [&](int64_t i) {
    Stream stream(state, i);
    return binomial_of(n[i], p[i], stream);
  });
}

}  // namespace tapegrad::cpu::TG_ISA
