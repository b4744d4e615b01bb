// The loops of the fused steps, compiled once per instruction set. Plain loops over independent elements: the
// compiler vectorises them. 16-bit types compute in float.
#include <algorithm>
#include <cmath>

#include "tapegrad/nn/optim/kernels.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

template <class T, bool kAmsgrad>
void adam_loop(const nn::AdamRun& run, const nn::AdamConstants& constants) {
  using C = compute_t<T>;
  T* __restrict param = static_cast<T*>(run.param);
  const T* __restrict grad = static_cast<const T*>(run.grad);
  T* __restrict exp_avg = static_cast<T*>(run.exp_avg);
  T* __restrict exp_avg_sq = static_cast<T*>(run.exp_avg_sq);
  T* __restrict max_exp_avg_sq = static_cast<T*>(run.max_exp_avg_sq);
  const C sign = constants.maximize ? C(-1) : C(1);
  const C weight_decay = static_cast<C>(constants.weight_decay), decay = static_cast<C>(constants.decay);
  const C beta2 = static_cast<C>(constants.beta2), eps = static_cast<C>(constants.eps);
  const C weight1 = static_cast<C>(1 - constants.beta1), weight2 = static_cast<C>(1 - constants.beta2);
  const C step_size = static_cast<C>(run.step_size), root = static_cast<C>(run.root);
  for (int64_t i = 0; i < run.n; ++i) {
    C p = static_cast<C>(param[i]) * decay;
    const C g = sign * static_cast<C>(grad[i]) + weight_decay * p;
    C m = static_cast<C>(exp_avg[i]);
    m += weight1 * (g - m);
    C v = beta2 * static_cast<C>(exp_avg_sq[i]) + weight2 * g * g;
    exp_avg[i] = static_cast<T>(m);
    exp_avg_sq[i] = static_cast<T>(v);
    if constexpr (kAmsgrad) {
      const C old = static_cast<C>(max_exp_avg_sq[i]);
      v = old > v ? old : v;
      max_exp_avg_sq[i] = static_cast<T>(v);
    }
    p -= step_size * m / (std::sqrt(v) / root + eps);
    param[i] = static_cast<T>(p);
  }
}

template <class T>
void sgd_loop(const nn::SgdRun& run, const nn::SgdConstants& constants) {
  using C = compute_t<T>;
  T* __restrict param = static_cast<T*>(run.param);
  const T* __restrict grad = static_cast<const T*>(run.grad);
  T* __restrict buffer = static_cast<T*>(run.buffer);
  const C sign = constants.maximize ? C(-1) : C(1);
  const C lr = static_cast<C>(constants.lr), weight_decay = static_cast<C>(constants.weight_decay);
  if (buffer == nullptr) {
    for (int64_t i = 0; i < run.n; ++i) {
      const C p = static_cast<C>(param[i]);
      param[i] = static_cast<T>(p - lr * (sign * static_cast<C>(grad[i]) + weight_decay * p));
    }
    return;
  }
  // The first step sets the buffer to the gradient: momentum 0, no dampening.
  const C keep = run.first ? C(0) : static_cast<C>(constants.momentum);
  const C take = run.first ? C(1) : static_cast<C>(1 - constants.dampening);
  const C look_ahead = static_cast<C>(constants.momentum);
  if (constants.nesterov) {
    for (int64_t i = 0; i < run.n; ++i) {
      const C p = static_cast<C>(param[i]);
      const C g = sign * static_cast<C>(grad[i]) + weight_decay * p;
      const C b = keep * static_cast<C>(buffer[i]) + take * g;
      buffer[i] = static_cast<T>(b);
      param[i] = static_cast<T>(p - lr * (g + look_ahead * b));
    }
  } else {
    for (int64_t i = 0; i < run.n; ++i) {
      const C p = static_cast<C>(param[i]);
      const C g = sign * static_cast<C>(grad[i]) + weight_decay * p;
      const C b = keep * static_cast<C>(buffer[i]) + take * g;
      buffer[i] = static_cast<T>(b);
      param[i] = static_cast<T>(p - lr * b);
    }
  }
}

template <class F>
void for_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::float32:
      return f.template operator()<float>();
    case DType::float64:
      return f.template operator()<double>();
    case DType::float16:
      return f.template operator()<Half>();
    default:
      return f.template operator()<BFloat16>();
  }
}

}  // namespace

void fused_adam(DType dtype, const nn::AdamRun& run, const nn::AdamConstants& constants) {
  for_floating(dtype, [&]<class T>() {
    run.max_exp_avg_sq ? adam_loop<T, true>(run, constants) : adam_loop<T, false>(run, constants);
  });
}

void fused_sgd(DType dtype, const nn::SgdRun& run, const nn::SgdConstants& constants) {
  for_floating(dtype, [&]<class T>() { sgd_loop<T>(run, constants); });
}

}  // namespace tapegrad::cpu::TG_ISA
