// Index arithmetic of CUDA kernels, which is the same on the host: divisions by constants, strided offsets, and the
// pieces into which large iterations are cut.
#include "tapegrad/cuda/launch/index.h"

#include <catch2/catch.hpp>
#include <random>
#include <vector>

using tapegrad::cuda::FastDivide;
using tapegrad::cuda::for_32_bit_pieces;
using tapegrad::cuda::kKernelDims;
using tapegrad::cuda::Offsets;
using tapegrad::cuda::Piece;

TEST_CASE("FastDivide gives quotient and rest of every divisor and number below 2^31", "[cuda]") {
  std::mt19937 random(1);
  std::vector<uint32_t> numbers = {0,    1,     2,     3,          7,          31,         32,        33,
                                   1000, 65535, 65536, 0x3fffffff, 0x40000000, 0x7ffffffe, 0x7fffffff};
  for (int i = 0; i < 300; ++i) numbers.push_back(static_cast<uint32_t>(random() & 0x7fffffff) >> (random() % 31));
  int wrong = 0;
  for (uint32_t divisor : numbers) {
    if (divisor == 0) continue;
    const FastDivide divide(divisor);
    for (uint32_t n : numbers) {
      uint32_t quotient, rest;
      divide.divide(n, quotient, rest);
      wrong += quotient != n / divisor || rest != n % divisor;
    }
  }
  CHECK(wrong == 0);
}

TEST_CASE("Offsets are those of nested loops", "[cuda]") {
  Offsets<2> offsets;
  const int64_t shape[] = {3, 4, 5};
  const int32_t strides[2][3] = {{80, 20, 4}, {-8, 0, 24}};
  offsets.ndim = 3;
  for (int d = 0; d < 3; ++d) {
    offsets.shape[d] = FastDivide(static_cast<uint32_t>(shape[d]));
    for (int k = 0; k < 2; ++k) offsets.strides[k][d] = strides[k][d];
  }
  uint32_t n = 0;
  for (int32_t i = 0; i < 3; ++i)
    for (int32_t j = 0; j < 4; ++j)
      for (int32_t k = 0; k < 5; ++k, ++n) {
        int32_t at[2];
        offsets.at(n, at);
        REQUIRE(at[0] == 80 * i + 20 * j + 4 * k);
        REQUIRE(at[1] == -8 * i + 24 * k);
      }
}

namespace {

// Every piece fits; returns how many elements they have together.
int64_t covered(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides, int* pieces) {
  const int64_t* all[] = {strides.data()};
  int64_t numel = 0;
  *pieces = 0;
  for_32_bit_pieces(static_cast<int>(shape.size()), shape.data(), 1, all, [&](const Piece& piece) {
    int64_t n = 1, high = 0;
    for (int d = 0; d < piece.ndim; ++d) {
      n *= piece.shape[d];
      high += (piece.shape[d] - 1) * piece.strides[0][d];
    }
    REQUIRE(piece.ndim <= kKernelDims);
    REQUIRE(piece.numel == n);
    REQUIRE(n < (int64_t{1} << 31));
    REQUIRE(high < (int64_t{1} << 31));
    numel += n;
    ++*pieces;
  });
  return numel;
}

}  // namespace

TEST_CASE("Iterations beyond 32 bits or 12 dimensions are cut into pieces that cover them once", "[cuda]") {
  int pieces = 0;
  CHECK(covered({7, 5}, {20, 4}, &pieces) == 35);
  CHECK(pieces == 1);
  const int64_t large = int64_t{5} << 30;
  CHECK(covered({3, large}, {large * 4, 4}, &pieces) == 3 * large);
  CHECK(pieces > 1);
  CHECK(pieces < 64);
  CHECK(covered({2, 3}, {int64_t{1} << 40, 4}, &pieces) == 6);  // few elements, far apart
  CHECK(pieces == 2);
  const std::vector<int64_t> shape(14, 2);
  std::vector<int64_t> strides(14);
  for (size_t d = 0; d < 14; ++d) strides[d] = int64_t{8} << (13 - d);
  CHECK(covered(shape, strides, &pieces) == int64_t{1} << 14);
  CHECK(pieces == 4);
}
