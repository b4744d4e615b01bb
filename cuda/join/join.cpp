// cat and stack: one copy per tensor into its place. Few launches, each at the rate of a copy.
#include "tapegrad/aten/join/pieces.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {

namespace {
void copy_piece(const Tensor& to, const Tensor& from) { copy_any(to, from, true); }
}  // namespace

void cat_cuda(TensorSpan tensors, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  cat_pieces(tensors, wrap_dim(dim, out.ndim(), "cat"), out, copy_piece);
}
void stack_cuda(TensorSpan tensors, int64_t dim, const Tensor& out) { stack_pieces(tensors, dim, out, copy_piece); }

}  // namespace tapegrad::cuda
