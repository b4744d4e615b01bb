// Initialisation of weights: every function writes into its tensor, outside the tape, and returns it. Random numbers
// come from the default generator.
#pragma once

#include <string_view>
#include <utility>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::nn::init {

enum class FanMode { in, out };

// While an instance exists, the functions here leave this thread's tensors unchanged: for modules whose values are
// loaded afterwards, from a file or another module.
class TG_API SkipGuard {
 public:
  SkipGuard();
  ~SkipGuard();
  SkipGuard(const SkipGuard&) = delete;
  SkipGuard& operator=(const SkipGuard&) = delete;
};

// How many inputs reach one output of a weight, and the reverse. Raises Value below two dimensions.
TG_API std::pair<int64_t, int64_t> calculate_fan_in_and_fan_out(const Tensor& weight);
TG_API int64_t calculate_fan_in(const Tensor& weight);
// The factor by which a nonlinearity's input should be scaled to keep its variance.
TG_API double calculate_gain(std::string_view nonlinearity, double param = 0.01);

TG_API Tensor uniform_(const Tensor& t, double low = 0, double high = 1);
TG_API Tensor normal_(const Tensor& t, double mean = 0, double std = 1);
TG_API Tensor constant_(const Tensor& t, double value);
TG_API Tensor ones_(const Tensor& t);
TG_API Tensor zeros_(const Tensor& t);
TG_API Tensor eye_(const Tensor& t);
// Kernels that pass the input's channels through, of three to five dimensions.
TG_API Tensor dirac_(const Tensor& t, int64_t groups = 1);
// Normal numbers restricted to [a, b], by inversion of the distribution function.
TG_API Tensor trunc_normal_(const Tensor& t, double mean = 0, double std = 1, double a = -2, double b = 2);
// Normal numbers, a fraction of each column set to zero.
TG_API Tensor sparse_(const Tensor& t, double sparsity, double std = 0.01);
// A (semi-)orthogonal matrix of the first dimension and all others (Saxe et al., 2013).
TG_API Tensor orthogonal_(const Tensor& t, double gain = 1);
// Glorot and Bengio (2010).
TG_API Tensor xavier_uniform_(const Tensor& t, double gain = 1);
TG_API Tensor xavier_normal_(const Tensor& t, double gain = 1);
// He et al. (2015).
TG_API Tensor kaiming_uniform_(const Tensor& t, double a = 0, FanMode mode = FanMode::in,
                               std::string_view nonlinearity = "leaky_relu");
TG_API Tensor kaiming_normal_(const Tensor& t, double a = 0, FanMode mode = FanMode::in,
                              std::string_view nonlinearity = "leaky_relu");

}  // namespace tapegrad::nn::init
