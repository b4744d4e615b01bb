// The interface to an optional library of Fourier transforms (cuFFT; cuda/libraries/): fft.cu tries it first, and
// computes itself what the library refuses. A simulated device has none; tests install a double.
#pragma once

#include <array>
#include <atomic>

#include "tapegrad/c10/tensor/small_vector.h"
#include "tapegrad/cuda/runtime/stream.h"

namespace tapegrad::cuda::fft {

enum class Between : uint8_t { ComplexToComplex, RealToComplex, ComplexToReal };

// `count` transforms of `rank` dimensions, without a factor. Element (i, j, k) of transform b is at b * dist +
// ((i * n[1] + j) * n[2] + k) * step for rank 3, and so on; on the side of a half n counts the half of the last
// dimension. ComplexToReal may destroy what it reads.
struct Request {
  Between between;
  bool wide;     // float64, complex128
  bool forward;  // the sign of the exponent, for ComplexToComplex
  int rank;
  std::array<int64_t, 3> n;  // the numbers of real elements where one side is real
  int64_t count;
  const void* in;
  int64_t in_step, in_dist;
  void* out;
  int64_t out_step, out_dist;
};

// Queues the transforms on the stream, or returns false without any effect. Raises if a call of the library fails.
using Library = bool (*)(const Stream& stream, const Request& request);
TG_API extern std::atomic<Library> library;  // null: none

// `rank` neighbouring dimensions of a contiguous tensor, from `first` on: `outer` parts of count transforms each, of
// elements `step` apart.
struct Dims {
  int64_t outer = 1, length = 1, inner = 1;
  int rank;
  std::array<int64_t, 3> n{1, 1, 1};

  Dims(IntSpan sizes, int first, int many) : rank(many) {
    for (int d = 0; d < static_cast<int>(sizes.size()); ++d) {
      if (d < first)
        outer *= sizes[static_cast<size_t>(d)];
      else if (d < first + many)
        length *= n[static_cast<size_t>(d - first)] = sizes[static_cast<size_t>(d)];
      else
        inner *= sizes[static_cast<size_t>(d)];
    }
  }
  // Contiguous lines are transformed in one call; interleaved ones part by part.
  int64_t calls() const { return inner == 1 ? 1 : outer; }
  int64_t count() const { return inner == 1 ? outer : inner; }
  int64_t step() const { return inner; }
  int64_t dist() const { return inner == 1 ? length : 1; }
  int64_t part() const { return length * inner; }  // elements from call to call
};

}  // namespace tapegrad::cuda::fft
