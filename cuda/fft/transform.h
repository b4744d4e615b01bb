// Index arithmetic and butterflies of Fourier transforms, as functions of host and device. A transform of `length`
// complex numbers is a chain of Stockham's self-sorting passes (aten/fft/plan.h names the sources); a pass consists of
// units that do not depend on each other: butterflies of radix 2 to 5, single outputs of larger radices. Real lines of
// even length are transformed as complex ones of half the length, whose result is then separated (Van Loan, section
// 4.3).
#pragma once

#include <vector>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/cuda/launch/divide.h"
#include "tapegrad/cuda/reduce/plan.h"

namespace tapegrad::cuda::fft {

struct Pass {
  int64_t radix = 1, m = 0, stride = 0;
  int64_t units = 0;             // of a line
  int64_t turn = 0, circle = 0;  // steps through the table of roots: of what is left, and of the radix
  Divider by_stride, by_butterflies;
};

// The passes of a length without prime factors above kLargestRadix, for a table of `roots` roots of unity, a multiple
// of the length.
TG_API std::vector<Pass> passes_of(int64_t length, int64_t roots);

namespace detail {
template <class C>
TG_HD inline C turned_back(const C& x) {  // -i x
  return C(x.imag(), -x.real());
}
template <class C, class R>
TG_HD inline C scaled(R a, const C& x) {
  return C(a * x.real(), a * x.imag());
}
}  // namespace detail

// One unit of a pass from x to y; w[k] = exp(-2 pi i k / roots).
template <class T>
TG_HD inline void run_unit(const Pass& s, const std::complex<T>* w, int64_t unit, const std::complex<T>* x,
                           std::complex<T>* y) {
  using C = std::complex<T>;
  using math::add, math::sub, math::mul, detail::turned_back, detail::scaled;
  int64_t p, q, t = unit, j = 0;
  if (s.radix > 5) s.by_butterflies.divide(unit, j, t);
  s.by_stride.divide(t, p, q);
  const int64_t step = s.stride * s.m, turn = p * s.turn;
  const C* a = x + t;
  C* out = y + q + s.stride * s.radix * p;
  switch (s.radix) {
    case 2: {
      out[0] = add(a[0], a[step]);
      out[s.stride] = mul(sub(a[0], a[step]), w[turn]);
      return;
    }
    case 3: {
      constexpr T kSin = T(0.86602540378443864676);
      const C sum = add(a[step], a[2 * step]), d = turned_back(scaled(kSin, sub(a[step], a[2 * step])));
      const C u = sub(a[0], scaled(T(0.5), sum));
      out[0] = add(a[0], sum);
      out[s.stride] = mul(add(u, d), w[turn]);
      out[2 * s.stride] = mul(sub(u, d), w[2 * turn]);
      return;
    }
    case 4: {
      const C even = add(a[0], a[2 * step]), odd = add(a[step], a[3 * step]);
      const C u = sub(a[0], a[2 * step]), d = turned_back(sub(a[step], a[3 * step]));
      out[0] = add(even, odd);
      out[s.stride] = mul(add(u, d), w[turn]);
      out[2 * s.stride] = mul(sub(even, odd), w[2 * turn]);
      out[3 * s.stride] = mul(sub(u, d), w[3 * turn]);
      return;
    }
    case 5: {
      constexpr T kCos1 = T(0.30901699437494742410), kCos2 = T(-0.80901699437494742410);
      constexpr T kSin1 = T(0.95105651629515357212), kSin2 = T(0.58778525229247312917);
      const C s1 = add(a[step], a[4 * step]), d1 = turned_back(sub(a[step], a[4 * step]));
      const C s2 = add(a[2 * step], a[3 * step]), d2 = turned_back(sub(a[2 * step], a[3 * step]));
      const C u1 = add(a[0], add(scaled(kCos1, s1), scaled(kCos2, s2)));
      const C u2 = add(a[0], add(scaled(kCos2, s1), scaled(kCos1, s2)));
      const C v1 = add(scaled(kSin1, d1), scaled(kSin2, d2)), v2 = sub(scaled(kSin2, d1), scaled(kSin1, d2));
      out[0] = add(a[0], add(s1, s2));
      out[s.stride] = mul(add(u1, v1), w[turn]);
      out[2 * s.stride] = mul(add(u2, v2), w[2 * turn]);
      out[3 * s.stride] = mul(sub(u2, v2), w[3 * turn]);
      out[4 * s.stride] = mul(sub(u1, v1), w[4 * turn]);
      return;
    }
    default: {
      C sum = a[0];
      int64_t at = 0;
      for (int64_t k = 1; k < s.radix; ++k) {
        at = at + j >= s.radix ? at + j - s.radix : at + j;
        sum = add(sum, mul(a[k * step], w[at * s.circle]));
      }
      out[j * s.stride] = mul(sum, w[j * turn]);
    }
  }
}

enum class Kind : uint8_t {
  Complex,    // n complex numbers to n
  Real,       // n real numbers to the first half of n complex ones, or all of them
  RealPairs,  // the same by pairs, for an even n
  Half,       // the reverse
  HalfPairs,
};

// What is transformed, line by line: where its elements are, and what they are to the complex transform between.
template <class T>
struct Ends {
  using C = std::complex<T>;
  Kind kind;
  bool inverse;        // by conjugates before and after
  int64_t n, outputs;  // elements of a line, and those that are written
  const void* in;
  void* out;
  int64_t in_step, out_step;
  reduce_rows::Places in_lines, out_lines;
  const C* roots;  // of n, for pairs
  T scale;

  // Element i of the complex transform's input.
  TG_HD C load(int64_t line, int64_t i) const {
    switch (kind) {
      case Kind::Complex: {
        const C x = complex_at(line, i);
        return inverse ? math::conj(x) : x;
      }
      case Kind::Real:
        return C(real_at(line, i), T(0));
      case Kind::RealPairs:
        return C(real_at(line, 2 * i), real_at(line, 2 * i + 1));
      case Kind::Half:
        return i <= n / 2 ? math::conj(half_at(line, i)) : half_at(line, n - i);
      default: {
        const C a = half_at(line, i), b = math::conj(half_at(line, n / 2 - i));
        const C odd = math::mul(math::sub(a, b), math::conj(roots[i]));
        return math::conj(math::add(math::add(a, b), C(-odd.imag(), odd.real())));
      }
    }
  }
  // Writes output k, from the complex transform's result, which z(k) gives.
  template <class Z>
  TG_HD void store(int64_t line, int64_t k, const Z& z) const {
    switch (kind) {
      case Kind::Complex: {
        const C x = z(k);
        return put(line, k, inverse ? math::conj(x) : x);
      }
      case Kind::Real:
        return put(line, k, k <= n / 2 ? z(k) : math::conj(z(n - k)));
      case Kind::RealPairs: {
        const int64_t half = n / 2, at = k <= half ? k : n - k;
        const C a = z(at == half ? 0 : at), b = math::conj(z(at == 0 ? 0 : half - at));
        const C d = detail::scaled(T(0.5), math::sub(a, b));
        const C x = math::add(detail::scaled(T(0.5), math::add(a, b)), math::mul(roots[at], detail::turned_back(d)));
        return put(line, k, k <= half ? x : math::conj(x));
      }
      case Kind::Half:
        return put_real(line, k, z(k).real());
      default:
        return put_real(line, k, k % 2 == 0 ? z(k / 2).real() : -z(k / 2).imag());
    }
  }

 private:
  TG_HD C complex_at(int64_t line, int64_t i) const {
    return static_cast<const C*>(in)[in_lines.at(line) + i * in_step];
  }
  TG_HD T real_at(int64_t line, int64_t i) const { return static_cast<const T*>(in)[in_lines.at(line) + i * in_step]; }
  // Frequencies 0 and n / 2 are real; their imaginary part is ignored.
  TG_HD C half_at(int64_t line, int64_t i) const {
    const C x = complex_at(line, i);
    return i == 0 || 2 * i == n ? C(x.real(), T(0)) : x;
  }
  TG_HD void put(int64_t line, int64_t k, const C& x) const {
    static_cast<C*>(out)[out_lines.at(line) + k * out_step] = detail::scaled(scale, x);
  }
  TG_HD void put_real(int64_t line, int64_t k, T x) const {
    static_cast<T*>(out)[out_lines.at(line) + k * out_step] = scale * x;
  }
};

// Lengths with a large prime factor as a convolution of `m` elements (L. I. Bluestein, 1970): x[k] times exp(-pi i k^2
// / n), transformed, times the transform of the chirp, transformed back. Null pointers for other lengths.
template <class T>
struct Chirp {
  using C = std::complex<T>;
  const C* chirp = nullptr;      // n
  const C* transform = nullptr;  // m, divided by m
  int64_t n = 0;

  TG_HD C load(const Ends<T>& ends, int64_t line, int64_t i) const {
    if (chirp == nullptr) return ends.load(line, i);
    return i < n ? math::mul(ends.load(line, i), chirp[i]) : C(T(0), T(0));
  }
  // Between the two transforms: the second one is inverse by conjugates.
  TG_HD C between(const C& x, int64_t i) const { return math::conj(math::mul(x, transform[i])); }
  TG_HD C result(const C& x, int64_t k) const { return chirp == nullptr ? x : math::mul(math::conj(x), chirp[k]); }
};

}  // namespace tapegrad::cuda::fft
