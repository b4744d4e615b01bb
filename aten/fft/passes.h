// The passes of a transform over several lines at once: a Block holds one element of each line, real parts and
// imaginary parts apart, so that every operation below is a loop over lanes that the compiler turns into vector code.
// Pure functions.
#pragma once

#include "tapegrad/aten/fft/plan.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/c10/macros.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

template <class T>
inline constexpr int kLanes = blocks::kVectorLanes<T>;

template <class T>
struct alignas(64) Block {
  T re[kLanes<T>];
  T im[kLanes<T>];
};

// All lanes at once, for sums that must stay in registers.
template <class T>
struct Lanes;
template <>
struct Lanes<float> {
  typedef float type __attribute__((vector_size(64), may_alias));
};
template <>
struct Lanes<double> {
  typedef double type __attribute__((vector_size(64), may_alias));
};

// y = w * (re + i im), lane by lane.
template <class T>
TG_INLINE void put(Block<T>& y, int l, T re, T im, T wr, T wi) {
  y.re[l] = re * wr - im * wi;
  y.im[l] = re * wi + im * wr;
}

template <class T>
TG_NOINLINE void pass2(const fft::Pass& s, const std::complex<T>* w, const Block<T>* __restrict x,
                       Block<T>* __restrict y) {
  for (int64_t p = 0; p < s.m; ++p) {
    T wr = w[p].real(), wi = w[p].imag();
    for (int64_t q = 0; q < s.stride; ++q) {
      const Block<T>&a = x[q + s.stride * p], &b = x[q + s.stride * (p + s.m)];
      Block<T>&c = y[q + s.stride * 2 * p], &d = y[q + s.stride * (2 * p + 1)];
      for (int l = 0; l < kLanes<T>; ++l) {
        T ar = a.re[l], ai = a.im[l], br = b.re[l], bi = b.im[l];
        c.re[l] = ar + br;
        c.im[l] = ai + bi;
        put(d, l, ar - br, ai - bi, wr, wi);
      }
    }
  }
}

template <class T>
TG_NOINLINE void pass3(const fft::Pass& s, const std::complex<T>* w, const Block<T>* __restrict x,
                       Block<T>* __restrict y) {
  constexpr T kSin = T(0.86602540378443864676);
  for (int64_t p = 0; p < s.m; ++p) {
    const std::complex<T> w1 = w[2 * p], w2 = w[2 * p + 1];
    for (int64_t q = 0; q < s.stride; ++q) {
      const Block<T>*a = x + q + s.stride * p, *b = a + s.stride * s.m, *c = b + s.stride * s.m;
      Block<T>* o = y + q + s.stride * 3 * p;
      for (int l = 0; l < kLanes<T>; ++l) {
        T tr = b->re[l] + c->re[l], ti = b->im[l] + c->im[l];
        T dr = kSin * (b->re[l] - c->re[l]), di = kSin * (b->im[l] - c->im[l]);
        T ur = a->re[l] - T(0.5) * tr, ui = a->im[l] - T(0.5) * ti;
        T r0 = a->re[l] + tr, i0 = a->im[l] + ti;
        o[0].re[l] = r0;
        o[0].im[l] = i0;
        put(o[s.stride], l, ur + di, ui - dr, w1.real(), w1.imag());
        put(o[2 * s.stride], l, ur - di, ui + dr, w2.real(), w2.imag());
      }
    }
  }
}

template <class T>
TG_NOINLINE void pass4(const fft::Pass& s, const std::complex<T>* w, const Block<T>* __restrict x,
                       Block<T>* __restrict y) {
  int64_t step = s.stride * s.m;
  for (int64_t p = 0; p < s.m; ++p) {
    const std::complex<T> w1 = w[3 * p], w2 = w[3 * p + 1], w3 = w[3 * p + 2];
    for (int64_t q = 0; q < s.stride; ++q) {
      const Block<T>* a = x + q + s.stride * p;
      Block<T>* o = y + q + s.stride * 4 * p;
      for (int l = 0; l < kLanes<T>; ++l) {
        T ar = a[0].re[l], ai = a[0].im[l], br = a[step].re[l], bi = a[step].im[l];
        T cr = a[2 * step].re[l], ci = a[2 * step].im[l], dr = a[3 * step].re[l], di = a[3 * step].im[l];
        T t0r = ar + cr, t0i = ai + ci, t1r = ar - cr, t1i = ai - ci;
        T t2r = br + dr, t2i = bi + di, t3r = bi - di, t3i = dr - br;
        o[0].re[l] = t0r + t2r;
        o[0].im[l] = t0i + t2i;
        put(o[s.stride], l, t1r + t3r, t1i + t3i, w1.real(), w1.imag());
        put(o[2 * s.stride], l, t0r - t2r, t0i - t2i, w2.real(), w2.imag());
        put(o[3 * s.stride], l, t1r - t3r, t1i - t3i, w3.real(), w3.imag());
      }
    }
  }
}

template <class T>
TG_NOINLINE void pass5(const fft::Pass& s, const std::complex<T>* w, const Block<T>* __restrict x,
                       Block<T>* __restrict y) {
  constexpr T kCos1 = T(0.30901699437494742410), kCos2 = T(-0.80901699437494742410);
  constexpr T kSin1 = T(0.95105651629515357212), kSin2 = T(0.58778525229247312917);
  int64_t step = s.stride * s.m;
  for (int64_t p = 0; p < s.m; ++p) {
    const std::complex<T>* v = w + 4 * p;
    for (int64_t q = 0; q < s.stride; ++q) {
      const Block<T>* a = x + q + s.stride * p;
      Block<T>* o = y + q + s.stride * 5 * p;
      for (int l = 0; l < kLanes<T>; ++l) {
        T ar = a[0].re[l], ai = a[0].im[l];
        T s1r = a[step].re[l] + a[4 * step].re[l], s1i = a[step].im[l] + a[4 * step].im[l];
        T d1r = a[step].re[l] - a[4 * step].re[l], d1i = a[step].im[l] - a[4 * step].im[l];
        T s2r = a[2 * step].re[l] + a[3 * step].re[l], s2i = a[2 * step].im[l] + a[3 * step].im[l];
        T d2r = a[2 * step].re[l] - a[3 * step].re[l], d2i = a[2 * step].im[l] - a[3 * step].im[l];
        T m1r = ar + kCos1 * s1r + kCos2 * s2r, m1i = ai + kCos1 * s1i + kCos2 * s2i;
        T m2r = ar + kCos2 * s1r + kCos1 * s2r, m2i = ai + kCos2 * s1i + kCos1 * s2i;
        T n1r = kSin1 * d1r + kSin2 * d2r, n1i = kSin1 * d1i + kSin2 * d2i;
        T n2r = kSin2 * d1r - kSin1 * d2r, n2i = kSin2 * d1i - kSin1 * d2i;
        o[0].re[l] = ar + s1r + s2r;
        o[0].im[l] = ai + s1i + s2i;
        put(o[s.stride], l, m1r + n1i, m1i - n1r, v[0].real(), v[0].imag());
        put(o[2 * s.stride], l, m2r + n2i, m2i - n2r, v[1].real(), v[1].imag());
        put(o[3 * s.stride], l, m2r - n2i, m2i + n2r, v[2].real(), v[2].imag());
        put(o[4 * s.stride], l, m1r - n1i, m1i + n1r, v[3].real(), v[3].imag());
      }
    }
  }
}

// Any odd radix: sums and differences of elements k and r - k share their products.
template <class T>
TG_NOINLINE void pass_odd(const fft::Pass& s, const std::complex<T>* w, const std::complex<T>* circle,
                          const Block<T>* __restrict x, Block<T>* __restrict y) {
  constexpr int64_t kHalf = fft::kLargestRadix / 2;
  int64_t r = s.radix, half = r / 2, step = s.stride * s.m;
  Block<T> sum[kHalf], difference[kHalf];
  using Vec = typename Lanes<T>::type;
  auto lanes = [](const T* p) { return reinterpret_cast<const Vec*>(p); };
  for (int64_t p = 0; p < s.m; ++p) {
    const std::complex<T>* v = w + (r - 1) * p;
    for (int64_t q = 0; q < s.stride; ++q) {
      const Block<T>* a = x + q + s.stride * p;
      Block<T>* o = y + q + s.stride * r * p;
      const Vec first_re = *lanes(a[0].re), first_im = *lanes(a[0].im);
      Vec total_re = first_re, total_im = first_im;
      for (int64_t k = 0; k < half; ++k) {
        const Block<T>&b = a[step * (k + 1)], &c = a[step * (r - k - 1)];
        for (int l = 0; l < kLanes<T>; ++l) {
          sum[k].re[l] = b.re[l] + c.re[l];
          sum[k].im[l] = b.im[l] + c.im[l];
          difference[k].re[l] = b.re[l] - c.re[l];
          difference[k].im[l] = b.im[l] - c.im[l];
        }
        total_re += *lanes(sum[k].re);
        total_im += *lanes(sum[k].im);
      }
      *reinterpret_cast<Vec*>(o[0].re) = total_re;
      *reinterpret_cast<Vec*>(o[0].im) = total_im;
      for (int64_t j = 1; j <= half; ++j) {
        Vec even_re = first_re, even_im = first_im, odd_re = {}, odd_im = {};
        int64_t turn = 0;
        for (int64_t k = 0; k < half; ++k) {
          turn = turn + j >= r ? turn + j - r : turn + j;
          T c = circle[turn].real(), n = -circle[turn].imag();
          even_re += c * *lanes(sum[k].re);
          even_im += c * *lanes(sum[k].im);
          odd_re += n * *lanes(difference[k].re);
          odd_im += n * *lanes(difference[k].im);
        }
        const std::complex<T> w1 = v[j - 1], w2 = v[r - j - 1];
        const Vec re1 = even_re + odd_im, im1 = even_im - odd_re, re2 = even_re - odd_im, im2 = even_im + odd_re;
        Block<T>&y1 = o[s.stride * j], &y2 = o[s.stride * (r - j)];
        *reinterpret_cast<Vec*>(y1.re) = re1 * w1.real() - im1 * w1.imag();
        *reinterpret_cast<Vec*>(y1.im) = re1 * w1.imag() + im1 * w1.real();
        *reinterpret_cast<Vec*>(y2.re) = re2 * w2.real() - im2 * w2.imag();
        *reinterpret_cast<Vec*>(y2.im) = re2 * w2.imag() + im2 * w2.real();
      }
    }
  }
}

// Transforms n Blocks; a and b are exchanged until the result, which is returned.
template <class T>
Block<T>* run_passes(const fft::Plan<T>& plan, Block<T>* a, Block<T>* b) {
  for (size_t i = 0; i < plan.passes.size(); ++i) {
    const fft::Pass& s = plan.passes[i];
    const std::complex<T>* w = plan.roots.data() + s.roots;
    switch (s.radix) {
      case 2:
        pass2(s, w, a, b);
        break;
      case 3:
        pass3(s, w, a, b);
        break;
      case 4:
        pass4(s, w, a, b);
        break;
      case 5:
        pass5(s, w, a, b);
        break;
      default:
        pass_odd(s, w, plan.circle.data() + plan.circle_at[i], a, b);
    }
    std::swap(a, b);
  }
  return a;
}

}  // namespace
}  // namespace tapegrad::cpu::TG_ISA
