// Indices of triangles: an element finds its row by the number of elements of the rows before.
#include "tapegrad/aten/create/triangle.h"

#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

template <class T>
struct TriangleIndices {
  bool lower;
  int64_t rows, columns, offset, count;
  T* out;
  TG_DEVICE int64_t before(int64_t row) const {
    return lower ? triangle::lower_rows(row, columns, offset).count : triangle::upper_rows(row, columns, offset).count;
  }
  TG_DEVICE void operator()(int64_t i) const {
    int64_t first = 0, last = rows;  // the row with before(row) <= i < before(row + 1) is in [first, last)
    while (last - first > 1) {
      const int64_t middle = first + (last - first) / 2;
      (before(middle) <= i ? first : last) = middle;
    }
    const auto range = lower ? triangle::lower(first, columns, offset) : triangle::upper(first, columns, offset);
    out[i] = static_cast<T>(first);
    out[count + i] = static_cast<T>(range.begin + i - before(first));
  }
};

void triangle_indices(bool lower, int64_t row, int64_t col, int64_t offset, const Tensor& out) {
  const Work work(out.device(), {&out});
  const int64_t n = out.size(1);
  if (out.dtype() == DType::int32)
    for_elements(work, n, TriangleIndices<int32_t>{lower, row, col, offset, n, target_of<int32_t>(out)});
  else
    for_elements(work, n, TriangleIndices<int64_t>{lower, row, col, offset, n, target_of<int64_t>(out)});
}

}  // namespace

void tril_indices_cuda(int64_t row, int64_t col, int64_t offset, std::optional<DType>, std::optional<Device>,
                       const Tensor& out) {
  triangle_indices(true, row, col, offset, out);
}
void triu_indices_cuda(int64_t row, int64_t col, int64_t offset, std::optional<DType>, std::optional<Device>,
                       const Tensor& out) {
  triangle_indices(false, row, col, offset, out);
}

}  // namespace tapegrad::cuda
