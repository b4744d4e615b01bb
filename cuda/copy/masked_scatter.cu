// masked_scatter: the place of an element in the source is the number of true ones before it, a prefix sum of the mask.
#include "tapegrad/aten/copy/flags.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/launch/value_fault.h"
#include "tapegrad/cuda/sort/device_sort.h"

namespace tapegrad::cuda {
namespace {

template <class T>
struct Scatter {
  FaultRecord* fault;
  FaultText sentence;
  const uint8_t* mask;
  const int64_t* sums;
  const T* from;
  T* to;
  int64_t available;
  TG_DEVICE void operator()(int64_t i) const {
    if (mask[i] == 0) return;
    if (sums[i] > available)
      record_value_fault(fault, sentence, static_cast<double>(sums[i]));
    else
      to[i] = from[sums[i] - 1];
  }
};

}  // namespace

void masked_scatter_cuda(const Tensor& input, const Tensor& mask, const Tensor& source, const Tensor& out) {
  Tensor dense_mask = raw::contiguous(raw::expand(clean_flags(mask), out.sizes())), from = raw::contiguous(source);
  if (may_overlap(out, from)) from = raw::clone(from);
  if (may_overlap(out, mask) && dense_mask.data_ptr() == mask.data_ptr()) dense_mask = raw::clone(dense_mask);
  if (!out.is_same(input)) raw::copy_(out, input);
  const int64_t n = out.numel();
  if (n == 0) return;
  const Work work(out.device(), {&dense_mask, &from, &out});
  const Workspace sums(static_cast<size_t>(n) * sizeof(int64_t), work);
  auto* counts = static_cast<int64_t*>(sums.data());
  inclusive_sums(work, data_of<uint8_t>(dense_mask), counts, n);
  dispatch_bytes(out.dtype(), [&]<class T>() {
    for_elements(work, n,
                 Scatter<T>{fault_record(out.device().index),
                            "masked_scatter: the mask has more true elements than the source elements",
                            data_of<uint8_t>(dense_mask), counts, data_of<T>(from), target_of<T>(out), from.numel()});
  });
}

}  // namespace tapegrad::cuda
