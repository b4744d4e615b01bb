#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

template <class T>
struct Triangle {
  const T* from;
  T* to;
  int64_t rows, columns, diagonal;
  bool lower;
  // Elements of one row. All are loaded before it is known which count.
  template <int V>
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t column = i % columns, edge = i / columns % rows + diagonal;
    T x[V];
    load_pieces<T, V>(x, from + i);
    TG_UNROLL
    for (int j = 0; j < V; ++j)
      if (lower ? column + j > edge : column + j < edge) x[j] = T{};
    store_pieces<T, V>(to + i, x);
  }
};

void triangle(const Tensor& input, int64_t diagonal, bool lower, const Tensor& out) {
  if (out.numel() == 0) return;
  const Tensor from = contiguous_or_copy(input);
  const Work work(out.device(), {&from, &out});
  const int64_t rows = out.size(-2), columns = out.size(-1);
  // Kept within the matrix, so that the sum with a row does not overflow.
  const int64_t k = std::clamp(diagonal, -rows - 1, columns + 1);
  dispatch_bytes(out.dtype(), [&]<class T>() {
    for_element_packs<T>(work, out.numel(), columns, {&from, &out},
                         Triangle<T>{data_of<T>(from), target_of<T>(out), rows, columns, k, lower});
  });
}

}  // namespace

void tril_cuda(const Tensor& input, int64_t diagonal, const Tensor& out) { triangle(input, diagonal, true, out); }
void triu_cuda(const Tensor& input, int64_t diagonal, const Tensor& out) { triangle(input, diagonal, false, out); }

}  // namespace tapegrad::cuda
