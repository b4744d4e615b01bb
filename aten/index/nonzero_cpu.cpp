#include "tapegrad/aten/copy/strided_loop.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/kernels_index.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

constexpr int64_t kGrain = 32768;

template <class T>
inline bool is_set(const T& v) {
  if constexpr (is_half_type<T>)
    return (v.bits & 0x7fffu) != 0;
  else
    return seen(v) != T(0);
}

}  // namespace

// Counted per chunk, so that every chunk knows where its rows begin.
Tensor nonzero_cpu(const Tensor& input) {
  const Tensor from = contiguous_or_copy(input);
  const int64_t n = from.numel();
  const int ndim = input.ndim();
  const Split split = split_range(n, kGrain);
  std::vector<int64_t> starts(static_cast<size_t>(split.count) + 1, 0);
  Tensor out;
  dispatch_dtype(bits_dtype(from.dtype()), [&]<class T>() {
    const T* p = static_cast<const T*>(from.data_ptr());
    parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end, int64_t chunk) {
      int64_t count = 0;
      for (int64_t i = begin; i < end; ++i) count += is_set(p[i]);
      starts[static_cast<size_t>(chunk) + 1] = count;
    });
    for (size_t c = 0; c < starts.size() - 1; ++c) starts[c + 1] += starts[c];
    out = empty_tensor({starts.back(), ndim}, DType::int64);
    if (ndim == 0) return;
    int64_t* rows = static_cast<int64_t*>(out.data_ptr());
    const IntSpan sizes = from.sizes();
    parallel_for(0, n, kGrain, [&](int64_t begin, int64_t end, int64_t chunk) {
      int64_t* row = rows + starts[static_cast<size_t>(chunk)] * ndim;
      const int64_t* stop = rows + starts[static_cast<size_t>(chunk) + 1] * ndim;
      if (ndim == 1) {
        // Written always, kept when set: no branch to guess.
        int64_t i = begin;
        for (; i < end && row < stop; ++i) {
          *row = i;
          row += is_set(p[i]);
        }
        return;
      }
      int64_t at[kMaxDims];
      int64_t rest = begin;
      for (int d = ndim - 1; d >= 0; --d) {
        at[d] = rest % sizes[d];
        rest /= sizes[d];
      }
      const int last = ndim - 1;
      for (int64_t i = begin; i < end;) {
        const int64_t run = std::min(sizes[last] - at[last], end - i);
        for (int64_t k = 0; k < run; ++k) {
          if (!is_set(p[i + k])) continue;
          for (int d = 0; d < last; ++d) row[d] = at[d];
          row[last] = at[last] + k;
          row += ndim;
        }
        i += run;
        at[last] = 0;
        for (int d = last - 1; d >= 0 && ++at[d] == sizes[d]; --d) at[d] = 0;
      }
    });
  });
  return out;
}

}  // namespace tapegrad::cpu::TG_ISA
