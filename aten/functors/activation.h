// Activations of neural networks and their derivatives. The `_backward` functors take the gradient of the
// result first and give the gradient of the input in one pass.
#pragma once

#include "tapegrad/aten/functors/math.h"

namespace tapegrad::fn {

template <class T>
TG_HD inline T sigmoid_of(T x) {
  if constexpr (is_complex_type<T>)
    return math::div(T(1), T(1) + math::exp(-x));
  else
    return T(1) / (T(1) + math::exp(-x));
}
template <class T>
struct sigmoid {
  static constexpr int kCost = 8;
  TG_HD T operator()(T x) const { return sigmoid_of(x); }
};
template <class T>
struct sigmoid_backward {
  TG_HD T operator()(T grad, T y) const { return math::mul(grad, math::conj(math::mul(T(1) - y, y))); }
};
template <class T>
struct tanh_backward {
  TG_HD T operator()(T grad, T y) const { return math::mul(grad, math::conj(T(1) - math::mul(y, y))); }
};
template <class T>
struct logsigmoid {
  static constexpr int kCost = 16;
  // min(x, 0) - log(1 + e^-|x|)
  TG_HD T operator()(T x) const { return math::minimum(x, T(0)) - math::log1p(math::exp(-math::magnitude(x))); }
};
template <class T>
struct logsigmoid_backward {
  static constexpr int kCost = 8;
  TG_HD T operator()(T grad, T x) const { return grad * sigmoid_of(-x); }
};

template <class T>
struct relu {
  TG_HD T operator()(T x) const { return x <= T(0) ? T(0) : x; }
};
template <class T>
struct threshold {
  T limit, value;
  TG_HD T operator()(T x) const { return x <= limit ? value : x; }
};
template <class T>
struct threshold_backward {
  T limit;
  TG_HD T operator()(T grad, T x) const { return x <= limit ? T(0) : grad; }
};
template <class T>
struct hardtanh {
  T low, high;
  TG_HD T operator()(T x) const { return math::clamp(x, low, high); }
};
template <class T>
struct hardtanh_backward {
  T low, high;
  TG_HD T operator()(T grad, T x) const { return (x <= low) | (x >= high) ? T(0) : grad; }
};
template <class T>
struct leaky_relu {
  T slope;
  TG_HD T operator()(T x) const { return x > T(0) ? x : x * slope; }
};
template <class T>
struct leaky_relu_backward {
  T slope;
  TG_HD T operator()(T grad, T x) const { return x > T(0) ? grad : grad * slope; }
};
template <class T>
struct prelu {
  TG_HD T operator()(T x, T weight) const { return x > T(0) ? x : x * weight; }
};

// scale * (x if x > 0 else alpha * (exp(x * input_scale) - 1))
template <class T>
struct elu {
  T alpha, scale, input_scale;
  static constexpr int kCost = 8;
  TG_HD T operator()(T x) const {
    const T low = T(0) < x ? T(0) : x;  // a vector of zeros is fast
    const T e = math::expm1(low * input_scale) * (alpha * scale);
    return x < T(0) ? e : x * scale;
  }
};
template <class T>
struct elu_backward {
  T alpha, scale, input_scale;
  static constexpr int kCost = 8;
  TG_HD T operator()(T grad, T x) const {
    const T e = grad * (input_scale * alpha * scale) * math::exp(x * input_scale);
    return x <= T(0) ? e : grad * scale;
  }
};
// max(x, 0) + min(alpha (exp(x / alpha) - 1), 0)
template <class T>
struct celu {
  T alpha;
  static constexpr int kCost = 8;
  TG_HD T operator()(T x) const {
    const T low = T(0) < x ? T(0) : x;
    const T e = math::expm1(low / alpha) * alpha;
    return x < T(0) ? e : x;
  }
};
template <class T>
struct celu_backward {
  T alpha;
  static constexpr int kCost = 8;
  TG_HD T operator()(T grad, T x) const {
    const T e = grad * math::exp(x / alpha);
    return x <= T(0) ? e : grad;
  }
};

inline constexpr double kSqrt2OverPi = 0.79788456080286535588;
inline constexpr double kGeluCubic = 0.044715;

template <class T>
struct gelu {
  static constexpr int kCost = 14;
  TG_HD T operator()(T x) const { return x * math::normal_cdf(x); }
  TG_HALF_PRECISION(10, x* tg_short_normal_cdff(x))
};
template <class T>
struct gelu_backward {
  static constexpr int kCost = 14;
  TG_HD T operator()(T grad, T x) const { return grad * math::gelu_slope(x); }
};
template <class T>
struct gelu_tanh {
  static constexpr int kCost = 14;
  TG_HD T operator()(T x) const {
    const T inner = T(kSqrt2OverPi) * (x + T(kGeluCubic) * x * x * x);
    return T(0.5) * x * (T(1) + math::tanh(inner));
  }
};
template <class T>
struct gelu_tanh_backward {
  static constexpr int kCost = 18;
  TG_HD T operator()(T grad, T x) const {
    const T t = math::tanh(T(kSqrt2OverPi) * (x + T(kGeluCubic) * x * x * x));
    const T slope = T(kSqrt2OverPi) * (T(1) + T(3 * kGeluCubic) * x * x);
    return grad * (T(0.5) * (T(1) + t) + T(0.5) * x * (T(1) - t * t) * slope);
  }
};
template <class T>
struct silu {
  static constexpr int kCost = 8;
  TG_HD T operator()(T x) const { return math::div(x, T(1) + math::exp(-x)); }
};
template <class T>
struct silu_backward {
  static constexpr int kCost = 10;
  TG_HD T operator()(T grad, T x) const {
    const T s = sigmoid_of(x);
    return grad * s * (T(1) + x * (T(1) - s));
  }
};
// softplus(x) = log(1 + e^(beta x)) / beta, and x itself beyond the threshold.
template <class T>
struct softplus {
  T beta, limit;
  static constexpr int kCost = 16;
  TG_HD T operator()(T x) const {
    const T z = x * beta;
    const T s = math::log1p(math::exp(z)) / beta;
    return z > limit ? x : s;
  }
};
template <class T>
struct softplus_backward {
  T beta, limit;
  static constexpr int kCost = 8;
  TG_HD T operator()(T grad, T x) const {
    const T z = x * beta;
    const T s = grad * sigmoid_of(z);
    return z > limit ? grad : s;
  }
};
// x tanh(softplus(x)). With n = e^x (e^x + 2), tanh(log(1 + e^x)) = n / (n + 2); beyond 20 it is 1.
template <class T>
TG_HD inline T tanh_softplus(T x) {
  const T e = math::exp(math::minimum(x, T(20)));
  const T n = e * (e + T(2));
  return n / (n + T(2));
}
template <class T>
struct mish {
  static constexpr int kCost = 10;
  TG_HD T operator()(T x) const { return x * tanh_softplus(x); }
};
template <class T>
struct mish_backward {
  static constexpr int kCost = 16;
  TG_HD T operator()(T grad, T x) const {
    const T t = tanh_softplus(x);
    return grad * (t + x * (T(1) - t * t) * sigmoid_of(x));
  }
};
template <class T>
struct hardsigmoid {
  TG_HD T operator()(T x) const { return math::clamp(T(x + T(3)), T(0), T(6)) * T(1.0 / 6); }
};
template <class T>
struct hardsigmoid_backward {
  TG_HD T operator()(T grad, T x) const { return (x > T(-3)) & (x < T(3)) ? grad * T(1.0 / 6) : T(0); }
};
template <class T>
struct hardswish {
  // Not math::clamp(): a NaN is one because of the first factor.
  TG_HD T operator()(T x) const {
    const T raised = x + T(3) > T(0) ? x + T(3) : T(0);
    return x * (raised < T(6) ? raised : T(6)) * T(1.0 / 6);
  }
};
template <class T>
struct hardswish_backward {
  TG_HD T operator()(T grad, T x) const {
    const T inner = grad * (x * T(1.0 / 3) + T(0.5));
    return x <= T(-3) ? T(0) : x < T(3) ? inner : grad;
  }
};
template <class T>
struct softsign {
  TG_HD T operator()(T x) const { return x / (1 + math::abs(x)); }
};
template <class T>
struct softshrink {
  T lambda;
  TG_HD T operator()(T x) const { return x > lambda ? x - lambda : x < -lambda ? x + lambda : x * T(0); }
};
template <class T>
struct hardshrink {
  T lambda;
  TG_HD T operator()(T x) const { return (x >= -lambda) & (x <= lambda) ? T(0) : x; }
};
template <class T>
struct shrink_backward {
  T lambda;
  TG_HD T operator()(T grad, T x) const { return (x >= -lambda) & (x <= lambda) ? T(0) : grad; }
};
template <class T>
struct tanhshrink {
  static constexpr int kCost = 12;
  TG_HD T operator()(T x) const { return x - math::tanh(x); }
};

}  // namespace tapegrad::fn
