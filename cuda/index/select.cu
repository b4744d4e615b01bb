// Operators whose result size depends on values: nonzero and masked_select. Positions come from prefix sums; the size
// is a value that the host waits for.
#include "tapegrad/aten/copy/flags.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/index/last_sum.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/sort/device_sort.h"

namespace tapegrad::cuda {
namespace {

template <class T>
struct IsSet {
  const T* from;
  uint8_t* flags;
  TG_DEVICE void operator()(int64_t i) const {
    if constexpr (is_half_type<T>)
      flags[i] = (from[i].bits & 0x7fffu) != 0;
    else
      flags[i] = from[i] != T(0);
  }
};
struct Coordinates {
  const uint8_t* flags;
  const int64_t* sums;
  int64_t* rows;
  int ndim;
  int64_t sizes[kMaxDims];
  TG_DEVICE void operator()(int64_t i) const {
    if (flags[i] == 0) return;
    int64_t* row = rows + (sums[i] - 1) * ndim;
    int64_t rest = i;
    for (int d = ndim - 1; d >= 0; --d) {
      row[d] = rest % sizes[d];
      rest /= sizes[d];
    }
  }
};
template <class T>
struct Select {
  const uint8_t* flags;
  const int64_t* sums;
  const T* from;
  T* to;
  TG_DEVICE void operator()(int64_t i) const {
    if (flags[i] != 0) to[sums[i] - 1] = from[i];
  }
};

// The number of set flags, and the sums up to each.
int64_t count_flags(const Work& work, const Tensor& flags, const Tensor& sums, const char* op) {
  const int64_t n = flags.numel();
  if (n == 0) return 0;
  inclusive_sums(work, static_cast<const uint8_t*>(flags.data_ptr()), target_of<int64_t>(sums), n);
  return last_sum(work, data_of<int64_t>(sums), n, op);
}

}  // namespace

Tensor nonzero_cuda(const Tensor& input) {
  const Tensor from = contiguous_or_copy(input);
  const Work work(input.device(), {&from});
  const int64_t n = from.numel();
  const Tensor flags = empty_tensor({n}, DType::uint8, input.device());
  const Tensor sums = empty_tensor({n}, DType::int64, input.device());
  dispatch_dtype(bits_dtype(from.dtype()), [&]<class T>() {
    using S = stored_t<T>;
    for_elements(work, n, IsSet<S>{data_of<S>(from), target_of<uint8_t>(flags)});
  });
  const int64_t count = count_flags(work, flags, sums, "nonzero");
  const Tensor out = empty_tensor({count, input.ndim()}, DType::int64, input.device());
  if (out.numel() == 0) return out;
  Coordinates body{
      data_of<uint8_t>(flags), data_of<int64_t>(sums), target_of<int64_t>(out), static_cast<int>(input.ndim()), {}};
  for (int d = 0; d < body.ndim; ++d) body.sizes[d] = from.size(d);
  for_elements(work, n, body);
  return out;
}

Tensor masked_select_cuda(const Tensor& input, const Tensor& mask) {
  TG_CHECK(mask.dtype() == DType::bool_, Runtime, "masked_select: expected a mask of dtype bool: got {}", mask.dtype());
  const DimVector sizes = broadcast_sizes(input.sizes(), mask.sizes(), "masked_select");
  const Tensor from = raw::contiguous(raw::expand(input, sizes));
  const Tensor flags = raw::contiguous(raw::expand(clean_flags(mask), sizes));
  const Work work(input.device(), {&from, &flags});
  const int64_t n = from.numel();
  const Tensor sums = empty_tensor({n}, DType::int64, input.device());
  const Tensor out = empty_tensor({count_flags(work, flags, sums, "masked_select")}, input.dtype(), input.device());
  dispatch_bytes(from.dtype(), [&]<class T>() {
    for_elements(work, n,
                 Select<T>{data_of<uint8_t>(flags), data_of<int64_t>(sums), data_of<T>(from), target_of<T>(out)});
  });
  return out;
}

}  // namespace tapegrad::cuda
