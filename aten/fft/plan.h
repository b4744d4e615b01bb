// The plan of a Fourier transform of a given length: its passes and their roots of unity. Plans are built once per
// length and cached; they are immutable and may be used by any number of threads at once. The method:
// - lengths whose prime factors are at most kLargestRadix: Stockham's self-sorting passes of radix 4, 2, 3, 5 and odd
//   primes (C. Van Loan, Computational frameworks for the fast Fourier transform, 1992, section 1.7);
// - long ones of these as a matrix of n1 x n2 elements (the "four-step" transform, section 3.3), so that
//   the working set stays in the cache;
// - other lengths as a convolution (L. I. Bluestein, 1970) of a length of the first kind.
// Roots are computed in double from the nearest multiple of a quarter turn and rounded once; long tables of float ones
// from products of two. Building a long plan takes longer than using it; several threads build it, and Ctrl-C
// interrupts it.
#pragma once

#include <complex>
#include <cstdint>
#include <memory>
#include <vector>

namespace tapegrad::fft {

inline constexpr int64_t kLargestRadix = 31;
inline constexpr int64_t kDirect = 1024;  // longer ones are split or convolved piece by piece

struct Pass {
  int64_t radix;
  int64_t m;       // butterflies: n / radix of what is left
  int64_t stride;  // elements that are transformed already
  size_t roots;    // where this pass's roots start: w^(j p) for p < m, 0 < j < radix
};

template <class T>
struct Plan {
  explicit Plan(int64_t n);

  int64_t n;
  bool smooth = false;  // the first kind
  std::vector<Pass> passes;
  std::vector<std::complex<T>> roots;
  std::vector<std::complex<T>> circle;  // exp(-2 pi i j / r) of the odd radices above 5, one after the other
  std::vector<size_t> circle_at;        // per pass

  // Split: n = n1 * n2, and exp(-2 pi i k1 j2 / n) at [k1][j2].
  int64_t n1 = 0, n2 = 0;
  std::shared_ptr<const Plan> first, second;
  std::vector<std::complex<T>> twist;

  // Convolved: chirp[k] = exp(-pi i k^2 / n), and the transform of its conjugate, divided by the length.
  std::shared_ptr<const Plan> convolution;
  std::vector<std::complex<T>> chirp, chirp_transform;
};

// The plan of a length, from the cache or made now. Thread-safe.
template <class T>
std::shared_ptr<const Plan<T>> plan_for(int64_t n);

// exp(-2 pi i k / n) for k up to n / 2, which real transforms need in addition to a plan. Cached, thread-safe.
template <class T>
std::shared_ptr<const std::vector<std::complex<T>>> half_circle(int64_t n);

// The transform of one line in double, as the definition has it but in n log n: for the chirps of plans.
void reference_transform(std::vector<std::complex<double>>& x);

}  // namespace tapegrad::fft
