// The passes of a transform as kernels run them, and how dimensions are described to a library.
#include "tapegrad/cuda/fft/transform.h"

#include <catch2/catch.hpp>
#include <complex>
#include <numeric>
#include <vector>

#include "tapegrad/aten/fft/lengths.h"
#include "tapegrad/cuda/fft/fft_library.h"

using namespace tapegrad;
using C = std::complex<double>;

namespace {

std::vector<C> definition(const std::vector<C>& x) {
  const auto n = static_cast<int64_t>(x.size());
  std::vector<C> y(x.size());
  for (int64_t k = 0; k < n; ++k)
    for (int64_t j = 0; j < n; ++j)
      y[static_cast<size_t>(k)] += x[static_cast<size_t>(j)] * fft::root_of_unity(j * k % n, n);
  return y;
}
std::vector<C> some_numbers(size_t n) {
  std::vector<C> x(n);
  for (size_t i = 0; i < n; ++i) x[i] = {std::sin(0.7 * double(i * i)), std::cos(1.3 * double(i))};
  return x;
}

}  // namespace

TEST_CASE("Units of passes write every element once and give the transform", "[cuda]") {
  for (int64_t n : {1, 2, 3, 4, 5, 7, 8, 30, 31, 64, 77, 125, 210, 480, 961})
    for (int64_t times : {1, 2}) {  // of a table that is longer than the transform
      std::vector<C> x = some_numbers(static_cast<size_t>(n)), roots;
      for (int64_t k = 0; k < n * times; ++k) roots.push_back(fft::root_of_unity(k, n * times));
      const std::vector<C> expected = definition(x);
      for (const cuda::fft::Pass& pass : cuda::fft::passes_of(n, n * times)) {
        std::vector<C> y(x.size(), C(1e300, 0));
        for (int64_t unit = pass.units - 1; unit >= 0; --unit)
          cuda::fft::run_unit(pass, roots.data(), unit, x.data(), y.data());
        x.swap(y);
      }
      for (size_t k = 0; k < x.size(); ++k) REQUIRE(std::abs(x[k] - expected[k]) < 1e-12 * double(n));
    }
}

TEST_CASE("A library is told where the elements of a dimension lie", "[cuda]") {
  const DimVector sizes{3, 4, 5, 2};
  for (int first = 0; first < 4; ++first)
    for (int rank = 1; rank <= 4 - first && rank <= 3; ++rank) {
      if (rank > 1 && first + rank < 4) continue;  // asked for at the end only
      const cuda::fft::Dims dims(sizes, first, rank);
      std::vector<int> seen(120);
      for (int64_t call = 0; call < dims.calls(); ++call)
        for (int64_t b = 0; b < dims.count(); ++b)
          for (int64_t i = 0; i < dims.n[0] * dims.n[1] * dims.n[2]; ++i) {
            const int64_t at = call * dims.part() + b * dims.dist() + i * dims.step();
            ++seen[static_cast<size_t>(at)];
            if (rank > 1 || i == 0) continue;
            int64_t stride = 1;
            for (int d = 3; d > first; --d) stride *= sizes[static_cast<size_t>(d)];
            REQUIRE(at / stride % sizes[static_cast<size_t>(first)] == i);
          }
      REQUIRE(std::accumulate(seen.begin(), seen.end(), 0) == 120);
      for (int n : seen) REQUIRE(n == 1);
    }
}
