#include <cstring>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/kernels_index.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu {

// Counted per chunk, so that every chunk knows where its elements begin.
Tensor masked_select_cpu(const Tensor& input, const Tensor& mask) {
  TG_CHECK(mask.dtype() == DType::bool_, Runtime, "masked_select: expected BoolTensor for mask: got {}", mask.dtype());
  const DimVector sizes = broadcast_sizes(input.sizes(), mask.sizes(), "masked_select");
  const Tensor from = raw::contiguous(raw::expand(input, sizes));
  const Tensor dense_mask = raw::contiguous(raw::expand(mask, sizes));
  const uint8_t* m = stored(dense_mask.data<bool>());
  const int64_t n = from.numel();
  constexpr int64_t kGrain = 32768;
  std::vector<int64_t> starts(static_cast<size_t>(split_range(n, kGrain).count) + 1, 0);
  parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end, int64_t chunk) {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) count += m[i] != 0;
    starts[static_cast<size_t>(chunk) + 1] = count;
  });
  for (size_t c = 0; c + 1 < starts.size(); ++c) starts[c + 1] += starts[c];
  Tensor out = empty_tensor({starts.back()}, input.dtype());
  dispatch_bytes(from.itemsize(), [&]<class T>() {
    const T* p = static_cast<const T*>(from.data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end, int64_t chunk) {
      T* t = to + starts[static_cast<size_t>(chunk)];
      const T* stop = to + starts[static_cast<size_t>(chunk) + 1];
      for (int64_t i = begin; i < end && t < stop; ++i) {
        std::memcpy(t, p + i, sizeof(T));
        t += m[i] != 0;
      }
    });
  });
  return out;
}

}  // namespace tapegrad::cpu
