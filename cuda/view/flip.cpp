#include "tapegrad/cuda/copy/convert.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda {

// A copy that walks the input backwards along some dimensions.
void flip_cuda(const Tensor& input, IntSpan dims, const Tensor& out) {
  if (out.numel() == 0) return;
  const uint64_t mask = dims.empty() ? 0 : dim_mask(dims, input.ndim(), "flip");
  const auto item = static_cast<int64_t>(out.itemsize());
  int64_t to[kMaxDims], from[kMaxDims];
  const char* first = static_cast<const char*>(input.data_ptr());
  for (int d = 0; d < out.ndim(); ++d) {
    to[d] = out.stride(d) * item;
    from[d] = input.stride(d) * item;
    if ((mask >> d & 1) == 0) continue;
    first += (input.size(d) - 1) * from[d];
    from[d] = -from[d];
  }
  const Work work(out.device(), {&input, &out});
  convert_strided(work, out.ndim(), out.sizes().data(), static_cast<char*>(out.data_ptr()), out.dtype(), to, first,
                  input.dtype(), from);
}

}  // namespace tapegrad::cuda
