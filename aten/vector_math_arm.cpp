// The vector functions that g++ calls when it vectorises a loop over sinf, cosf, ... for NEON: _ZGVnN4v_sinf (four
// floats), _ZGVnN2v_sinf (two), _ZGVnN2v_sin (two doubles), by SLEEF's own. The float forms of exp, expm1, log, erf and
// tanh are in vector_math_cpu.cpp.
//
// SLEEF's libsleefgnuabi defines some of these names, but not the halves, and as functions of the common calling
// convention: g++ expects the vector one, in which a function keeps q8 to q23, and would lose values there.

#if defined(__aarch64__) && !defined(__clang__)

#include <arm_neon.h>

#define TG_VECTOR_CALL __attribute__((aarch64_vector_pcs))

#define TG_ONE_FLOAT(name, ulp)                                                                              \
  float32x4_t Sleef_##name##f4##ulp##advsimd(float32x4_t);                                                   \
  TG_VECTOR_CALL float32x4_t _ZGVnN4v_##name##f(float32x4_t x) { return Sleef_##name##f4##ulp##advsimd(x); } \
  TG_VECTOR_CALL float32x2_t _ZGVnN2v_##name##f(float32x2_t x) {                                             \
    return vget_low_f32(Sleef_##name##f4##ulp##advsimd(vcombine_f32(x, x)));                                 \
  }
#define TG_ONE_DOUBLE_AS(as, name, ulp)                    \
  float64x2_t Sleef_##name##d2##ulp##advsimd(float64x2_t); \
  TG_VECTOR_CALL float64x2_t _ZGVnN2v_##as(float64x2_t x) { return Sleef_##name##d2##ulp##advsimd(x); }
#define TG_ONE_DOUBLE(name, ulp) TG_ONE_DOUBLE_AS(name, name, ulp)
#define TG_ONE(name, ulp) \
  TG_ONE_FLOAT(name, ulp) \
  TG_ONE_DOUBLE(name, ulp)
#define TG_TWO(name, ulp)                                                                        \
  float32x4_t Sleef_##name##f4##ulp##advsimd(float32x4_t, float32x4_t);                          \
  float64x2_t Sleef_##name##d2##ulp##advsimd(float64x2_t, float64x2_t);                          \
  TG_VECTOR_CALL float32x4_t _ZGVnN4vv_##name##f(float32x4_t x, float32x4_t y) {                 \
    return Sleef_##name##f4##ulp##advsimd(x, y);                                                 \
  }                                                                                              \
  TG_VECTOR_CALL float32x2_t _ZGVnN2vv_##name##f(float32x2_t x, float32x2_t y) {                 \
    return vget_low_f32(Sleef_##name##f4##ulp##advsimd(vcombine_f32(x, x), vcombine_f32(y, y))); \
  }                                                                                              \
  TG_VECTOR_CALL float64x2_t _ZGVnN2vv_##name(float64x2_t x, float64x2_t y) {                    \
    return Sleef_##name##d2##ulp##advsimd(x, y);                                                 \
  }

extern "C" {
TG_ONE_DOUBLE_AS(tg_short_sin, sin, _u35)
TG_ONE_DOUBLE_AS(tg_short_cos, cos, _u35)
TG_ONE_DOUBLE(exp, _u10)
TG_ONE(exp2, _u10)
TG_ONE_DOUBLE(expm1, _u10)
TG_ONE_DOUBLE(log, _u10)
TG_ONE(log2, _u10)
TG_ONE(log10, _u10)
TG_ONE(log1p, _u10)
TG_ONE(sin, _u10)
TG_ONE(cos, _u10)
TG_ONE(tan, _u10)
TG_ONE(asin, _u10)
TG_ONE(acos, _u10)
TG_ONE(atan, _u10)
TG_ONE(sinh, _u10)
TG_ONE(cosh, _u10)
TG_ONE_DOUBLE(tanh, _u10)
TG_ONE(asinh, _u10)
TG_ONE(acosh, _u10)
TG_ONE(atanh, _u10)
TG_ONE_DOUBLE(erf, _u10)
TG_ONE(erfc, _u15)
TG_ONE(lgamma, _u10)
TG_ONE(tgamma, _u10)
TG_ONE(cbrt, _u10)
TG_TWO(pow, _u10)
TG_TWO(atan2, _u10)
TG_TWO(hypot, _u05)
TG_TWO(fmod, _)
}

#endif  // defined(__aarch64__) && !defined(__clang__)
