// Factorisation of the lengths of Fourier transforms, and their roots of unity; shared by all devices.
#pragma once

#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdint>
#include <vector>

#include "tapegrad/c10/macros.h"

namespace tapegrad::fft {

inline std::vector<int64_t> prime_factors(int64_t n) {
  std::vector<int64_t> found;
  for (int64_t p = 2; p * p <= n; ++p)
    while (n % p == 0) {
      found.push_back(p);
      n /= p;
    }
  if (n > 1) found.push_back(n);
  return found;
}

// Radices in the order in which they are applied: fours first, whose butterflies are the cheapest per element.
inline std::vector<int64_t> radices_of(std::vector<int64_t> primes) {
  std::vector<int64_t> radices;
  auto twos = std::count(primes.begin(), primes.end(), 2);
  for (; twos >= 2; twos -= 2) radices.push_back(4);
  if (twos) radices.push_back(2);
  for (int64_t p : primes)
    if (p > 2) radices.push_back(p);
  return radices;
}

// The smallest length of at least n whose prime factors are 2, 3 and 5.
inline int64_t good_length(int64_t n) {
  int64_t best = 1;
  while (best < n) best *= 2;
  for (int64_t five = 1; five < best; five *= 5)
    for (int64_t three = five; three < best; three *= 3) {
      int64_t x = three;
      while (x < n) x *= 2;
      best = std::min(best, x);
    }
  return best;
}

// exp(-2 pi i k / n), for any k >= 0.
TG_HD inline std::complex<double> root_of_unity(int64_t k, int64_t n) {
  k %= n;
  // Octant by octant, so that the argument is small and the exact values come out exact.
  int64_t eighth = 8 * k;
  double step = 6.28318530717958647692 / static_cast<double>(n);
  bool lower = eighth > 4 * n;  // conjugate
  if (lower) k = n - k, eighth = 8 * k;
  bool left = eighth > 2 * n;  // mirrored at the imaginary axis
  double c = 0, s = 0;
  if (left) {
    // angle = pi - a
    int64_t twice = n - 2 * k;                                 // a = pi * twice / n
    if (4 * twice > n) {                                       // a > pi / 4: from pi / 2
      double b = (static_cast<double>(4 * k - n) / 4) * step;  // angle - pi / 2
      c = -std::sin(b);
      s = std::cos(b);
    } else {
      double a = static_cast<double>(twice) / 2 * step;
      c = -std::cos(a);
      s = std::sin(a);
    }
  } else if (eighth > n) {
    double b = static_cast<double>(n - 4 * k) / 4 * step;  // pi / 2 - angle
    c = std::sin(b);
    s = std::cos(b);
  } else {
    double a = static_cast<double>(k) * step;
    c = std::cos(a);
    s = std::sin(a);
  }
  return {c, lower ? s : -s};
}

}  // namespace tapegrad::fft
