#include <cstring>

#include "tapegrad/aten/kernels_index.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu {

namespace {

// Row by row: what belongs to the triangle is copied, the rest is zero. `lower`: columns up to row + diagonal.
template <bool kLower>
void triangle(const Tensor& input, int64_t diagonal, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor from = contiguous_or_copy(input);
  const int64_t rows = out.size(-2), columns = out.size(-1), item = static_cast<int64_t>(out.itemsize());
  const char* f = static_cast<const char*>(from.data_ptr());
  char* t = static_cast<char*>(out.data_ptr());
  // Kept within the matrix, so that the sum with a row does not overflow.
  const int64_t k = std::clamp(diagonal, -rows - 1, columns + 1);
  const int64_t grain = std::max<int64_t>(1, (64 << 10) / (columns * item));
  parallel_for(0, out.numel() / columns, grain, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t edge = std::clamp<int64_t>(r % rows + k + (kLower ? 1 : 0), 0, columns) * item;
      const int64_t row = r * columns * item, width = columns * item;
      const int64_t keep0 = kLower ? 0 : edge, keep1 = kLower ? edge : width;
      if (keep1 > keep0) std::memcpy(t + row + keep0, f + row + keep0, static_cast<size_t>(keep1 - keep0));
      const int64_t zero0 = kLower ? edge : 0, zero1 = kLower ? width : edge;
      if (zero1 > zero0) std::memset(t + row + zero0, 0, static_cast<size_t>(zero1 - zero0));
    }
  });
}

}  // namespace

void tril_cpu(const Tensor& input, int64_t diagonal, const Tensor& out) { triangle<true>(input, diagonal, out); }
void triu_cpu(const Tensor& input, int64_t diagonal, const Tensor& out) { triangle<false>(input, diagonal, out); }

}  // namespace tapegrad::cpu
