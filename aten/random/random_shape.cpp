#include <algorithm>

#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/kernels_random.h"
#include "tapegrad/aten/random/ranges.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad {

using OptDType = std::optional<DType>;
using OptDevice = std::optional<Device>;
using OptFormat = std::optional<MemoryFormat>;
using Gen = const GeneratorPtr&;

namespace {

void check_floating(DType t, const char* op, bool complex = false) {
  TG_CHECK(is_floating_point(t) || (complex && is_complex(t)), Runtime, "{}: expected a floating dtype: got {}", op, t);
}

TensorSpec like(const Tensor& input, OptDType dtype, OptDevice device, OptFormat format, const char* op) {
  TensorSpec spec{DimVector(input.sizes()), dtype.value_or(input.dtype()), device.value_or(input.device()), {}};
  MemoryFormat wanted = format.value_or(MemoryFormat::Preserve);
  if (wanted == MemoryFormat::ChannelsLast || (wanted == MemoryFormat::Preserve && !input.is_contiguous()))
    spec.strides = geometry::format_strides(input.sizes(), wanted, input, op);
  return spec;
}

// The range [low, high) must not be empty and must be made of values of the dtype.
void check_range(int64_t low, int64_t high, DType dtype, const char* op) {
  TG_CHECK(low < high, Runtime, "{} expects 'from' to be less than 'to', but got from={} >= to={}", op, low, high);
  if (!is_integral(dtype) && dtype != DType::bool_) {
    // The whole numbers beyond 2 to the number of digits are not all there.
    const int digits = dtype == DType::float64 ? 53 : dtype == DType::float32 ? 24 : dtype == DType::float16 ? 11 : 8;
    for (const auto& [name, value] : {std::pair{"from", low}, std::pair{"to - 1", high - 1}})
      if (value < -(int64_t{1} << digits) || value > int64_t{1} << digits)
        warn(
            fmt::format("{}: {} is out of bounds [-(2^{}), 2^{}]. Due to precision limitations {} can support discrete "
                        "uniform distribution only within this range",
                        op, name, digits, digits, dtype));
    TG_CHECK(dtype != DType::float16 || (low >= -65504 && high - 1 <= 65504), Runtime,
             "{}: [{}, {}) does not fit into {}", op, low, high, dtype);
    TG_CHECK(random::integers_in(low, high, dtype).range != 0, Runtime, "{}: no number of {} lies in [{}, {})", op,
             dtype, low, high);
    return;
  }
  dispatch_stored(dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) {
      const int64_t least = static_cast<int64_t>(std::numeric_limits<T>::min());
      const int64_t most = static_cast<int64_t>(std::min<uint64_t>(static_cast<uint64_t>(std::numeric_limits<T>::max()),
                                                                   std::numeric_limits<int64_t>::max()));
      TG_CHECK(low >= least && low <= most, Runtime, "{}: from is out of bounds for {}: got {}", op, dtype, low);
      TG_CHECK(high - 1 >= least && high - 1 <= most, Runtime, "{}: to - 1 is out of bounds for {}: got {}", op, dtype,
               high - 1);
    }
  });
}

void check_probability(double p, const char* op) {
  TG_CHECK(p >= 0 && p <= 1, Runtime, "{}: p lies in [0, 1]: got {}", op, p);
}

}  // namespace

TensorSpec rand_shape(IntSpan size, Gen, OptDType dtype, OptDevice device) {
  TensorSpec spec = create_spec(size, dtype, device, "rand");
  check_floating(spec.dtype, "rand", true);
  return spec;
}
TensorSpec randn_shape(IntSpan size, Gen, OptDType dtype, OptDevice device) {
  TensorSpec spec = create_spec(size, dtype, device, "randn");
  check_floating(spec.dtype, "randn", true);
  return spec;
}
TensorSpec rand_like_shape(const Tensor& input, Gen, OptDType dtype, OptDevice device, OptFormat format) {
  TensorSpec spec = like(input, dtype, device, format, "rand_like");
  check_floating(spec.dtype, "rand_like", true);
  return spec;
}
TensorSpec randn_like_shape(const Tensor& input, Gen, OptDType dtype, OptDevice device, OptFormat format) {
  TensorSpec spec = like(input, dtype, device, format, "randn_like");
  check_floating(spec.dtype, "randn_like", true);
  return spec;
}
TensorSpec randint_shape(int64_t low, int64_t high, IntSpan size, Gen, OptDType dtype, OptDevice device) {
  TensorSpec spec = create_spec(size, dtype.value_or(DType::int64), device, "randint");
  check_range(low, high, spec.dtype, "randint");
  return spec;
}
TensorSpec randint_high_shape(int64_t high, IntSpan size, Gen generator, OptDType dtype, OptDevice device) {
  return randint_shape(0, high, size, generator, dtype, device);
}
TensorSpec randint_like_shape(const Tensor& input, int64_t low, int64_t high, Gen, OptDType dtype, OptDevice device,
                              OptFormat format) {
  TensorSpec spec = like(input, dtype, device, format, "randint_like");
  check_range(low, high, spec.dtype, "randint_like");
  return spec;
}
TensorSpec randint_like_high_shape(const Tensor& input, int64_t high, Gen generator, OptDType dtype, OptDevice device,
                                   OptFormat format) {
  return randint_like_shape(input, 0, high, generator, dtype, device, format);
}
TensorSpec randperm_shape(int64_t n, Gen, OptDType dtype, OptDevice device) {
  TG_CHECK(n >= 0, Runtime, "randperm: n must not be negative: got {}", n);
  TensorSpec spec = create_spec({n}, dtype.value_or(DType::int64), device, "randperm");
  TG_CHECK(!is_complex(spec.dtype) && spec.dtype != DType::bool_, NotImplemented,
           "randperm: not implemented for dtype {}", spec.dtype);
  if (n > 0 && !is_floating_point(spec.dtype)) check_range(0, n, spec.dtype, "randperm");
  // PyTorch takes all n of bfloat16, whose equal numbers stand for several integers.
  TG_CHECK(!is_floating_point(spec.dtype) || spec.dtype == DType::bfloat16 ||
               static_cast<uint64_t>(n) <= random::exact_range(spec.dtype),
           Runtime, "randperm: {} does not hold all integers below {}", spec.dtype, n);
  return spec;
}

void normal_check(const Tensor& self, double, double std, Gen) {
  check_floating(self.dtype(), "normal_", true);
  TG_CHECK(std >= 0, Runtime, "normal_: normal expects std >= 0.0, but found std {}", std);
}
double largest(DType dtype) {
  if (dtype == DType::float16) return 65504;
  if (dtype == DType::bfloat16) return 0x1.fep127;
  return dtype == DType::float32 || dtype == DType::complex64 ? std::numeric_limits<float>::max()
                                                              : std::numeric_limits<double>::max();
}

void uniform_check(const Tensor& self, double from, double to, Gen) {
  if (!self.is_complex()) check_floating(self.dtype(), "uniform_");
  TG_CHECK(from <= to, Runtime, "uniform_ expects to return a [from, to) range, but found from={} > to={}", from, to);
  const double most = largest(self.dtype());
  TG_CHECK(from >= -most, Runtime, "uniform_: from is out of bounds for {}: got {}", self.dtype(), from);
  TG_CHECK(to <= most, Runtime, "uniform_: to is out of bounds for {}: got {}", self.dtype(), to);
  TG_CHECK(to - from <= most, Runtime,
           "uniform_ expects to-from to be at most the largest number of the dtype, but found from={} and to={}", from,
           to);
}
void exponential_check(const Tensor& self, double lambd, Gen) {
  check_floating(self.dtype(), "exponential_");
  TG_CHECK(lambd > 0, Runtime, "exponential_: lambd must be positive: got {}", lambd);
}
void log_normal_check(const Tensor& self, double, double std, Gen) {
  check_floating(self.dtype(), "log_normal_");
  TG_CHECK(std > 0, Runtime, "log_normal_: std must be positive: got {}", std);
}
void cauchy_check(const Tensor& self, double, double sigma, Gen) {
  check_floating(self.dtype(), "cauchy_");
  TG_CHECK(sigma > 0, Runtime, "cauchy_: sigma must be positive: got {}", sigma);
}
void geometric_check(const Tensor& self, double p, Gen) {
  TG_CHECK(!self.is_complex() && self.dtype() != DType::bool_, NotImplemented,
           "geometric_: not implemented for dtype {}", self.dtype());
  TG_CHECK(p > 0 && p < 1, Runtime, "geometric_: p lies between 0 and 1: got {}", p);
}
void random_to_check(const Tensor& self, int64_t to, Gen) { check_range(0, to, self.dtype(), "random_"); }
void random_from_check(const Tensor& self, int64_t from, std::optional<int64_t> to, Gen) {
  if (to) return check_range(from, *to, self.dtype(), "random_");
  const bool whole = is_integral(self.dtype()) || self.dtype() == DType::bool_;
  check_range(from, whole ? std::max<int64_t>(from, 0) + 1 : static_cast<int64_t>(random::exact_range(self.dtype())),
              self.dtype(), "random_");
}

TensorSpec bernoulli_shape(const Tensor& input, Gen) {
  check_floating(input.dtype(), "bernoulli");
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}
TensorSpec bernoulli_p_shape(const Tensor& input, double p, Gen) {
  check_probability(p, "bernoulli");
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}
void bernoulli_float_check(const Tensor&, double p, Gen) { check_probability(p, "bernoulli_"); }
void bernoulli_tensor_check(const Tensor& self, const Tensor& p, Gen) {
  check_floating(p.dtype(), "bernoulli_");
  TG_CHECK(p.device() == self.device() || (p.is_cpu() && self.is_cuda()), Runtime,
           "bernoulli_: expected p on the device of self, or on the CPU: got {} and {}", p.device(), self.device());
  TG_CHECK(IntSpan(broadcast_sizes(self.sizes(), p.sizes(), "bernoulli_")) == self.sizes(), Runtime,
           "bernoulli_: p of shape {} does not broadcast to {}", format_ints(p.sizes()), format_ints(self.sizes()));
}

TensorSpec poisson_shape(const Tensor& input, Gen) {
  check_floating(input.dtype(), "poisson");
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}

TensorSpec standard_gamma_shape(const Tensor& input, Gen) {
  check_floating(input.dtype(), "_standard_gamma");
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}

TensorSpec sample_dirichlet_shape(const Tensor& input, Gen) {
  check_floating(input.dtype(), "_sample_dirichlet");
  TG_CHECK(input.ndim() > 0, Runtime, "_sample_dirichlet: expected at least one dimension: got a tensor without");
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}

TensorSpec binomial_shape(const Tensor& count, const Tensor& prob, Gen) {
  check_floating(count.dtype(), "binomial");
  TG_CHECK(prob.dtype() == count.dtype(), Runtime, "binomial: count and prob must have one dtype: got {} and {}",
           count.dtype(), prob.dtype());
  return {broadcast_sizes(count.sizes(), prob.sizes(), "binomial"), count.dtype(), count.device(), {}};
}

TensorSpec multinomial_shape(const Tensor& input, int64_t num_samples, bool replacement, Gen) {
  check_floating(input.dtype(), "multinomial");
  TG_CHECK(input.ndim() == 1 || input.ndim() == 2, Runtime, "multinomial: expected 1 or 2 dimensions: got {}",
           format_ints(input.sizes()));
  TG_CHECK(num_samples > 0, Runtime, "multinomial: expected at least one sample: got {}", num_samples);
  TG_CHECK(input.size(-1) > 0, Runtime, "multinomial: expected at least one category: got {}",
           format_ints(input.sizes()));
  TG_CHECK(replacement || num_samples <= input.size(-1), Runtime,
           "multinomial: {} samples without replacement from {} categories", num_samples, input.size(-1));
  DimVector sizes(input.sizes());
  sizes[sizes.size() - 1] = num_samples;
  checked_numel(sizes, "multinomial");
  return {sizes, DType::int64, input.device(), {}};
}

std::array<TensorSpec, 2> dropout_shape(const Tensor& input, double p, Gen) {
  TG_CHECK(p >= 0 && p < 1, Value, "dropout: p lies in [0, 1]: got {}", p);
  check_floating(input.dtype(), "dropout", true);
  return {TensorSpec{DimVector(input.sizes()), input.dtype(), input.device(), {}},
          TensorSpec{DimVector(input.sizes()), DType::bool_, input.device(), {}}};
}

TensorSpec masked_scale_shape(const Tensor& input, const Tensor& mask, double) {
  TG_CHECK(input.sizes() == mask.sizes() && mask.dtype() == DType::bool_, Runtime,
           "masked_scale: expected a bool mask of sizes {}: got {} of dtype {}", format_ints(input.sizes()),
           format_ints(mask.sizes()), mask.dtype());
  return {DimVector(input.sizes()), input.dtype(), input.device(), {}};
}

}  // namespace tapegrad
