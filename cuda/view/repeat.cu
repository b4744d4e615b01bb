// The indices of repeat_interleave: each element of the result finds its number among the sums of the repeats. Without
// output_size their total is a value that the host waits for.
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/index/search.h"
#include "tapegrad/cuda/index/last_sum.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/launch/value_fault.h"

namespace tapegrad::cuda {

void cumsum_cuda(const Tensor& input, int64_t dim, std::optional<DType>, const Tensor& out);  // scan/scan.cu

namespace {

struct CheckRepeats {
  const int64_t *counts, *sums;
  int64_t n, expected;  // expected: the total, or -1
  FaultRecord* fault;
  FaultText negative, total;
  TG_DEVICE void operator()(int64_t i) const {
    if (counts[i] < 0) record_value_fault(fault, negative, static_cast<double>(counts[i]));
    if (i == n - 1 && expected >= 0 && sums[i] != expected)
      record_value_fault(fault, total, static_cast<double>(sums[i]));
  }
};
struct FillIndices {
  const int64_t* sums;
  int64_t n;
  int64_t* out;
  TG_DEVICE void operator()(int64_t i) const {
    // The first whose sum is above i.
    out[i] = cpu::TG_ISA::first_not(n - 1, [&](int64_t k) { return sums[k] <= i; });
  }
};

}  // namespace

Tensor repeat_indices_cuda(const Tensor& repeats, std::optional<int64_t> output_size) {
  TG_CHECK(repeats.ndim() == 1, Runtime, "repeat_interleave: expected repeats with 1 dimension: got {}",
           format_ints(repeats.sizes()));
  TG_CHECK(repeats.dtype() == DType::int64 || repeats.dtype() == DType::int32, Runtime,
           "repeat_interleave: expected repeats of dtype int32 or int64: got {}", repeats.dtype());
  const Tensor counts = raw::contiguous(raw::to(repeats, DType::int64));
  const int64_t n = counts.numel();
  TG_CHECK(n > 0 || output_size.value_or(0) == 0, Runtime, "repeat_interleave: output_size is {}, the repeats give 0",
           *output_size);
  if (n == 0) return empty_tensor({0}, DType::int64, repeats.device());
  const Tensor sums = empty_tensor({n}, DType::int64, repeats.device());
  cumsum_cuda(counts, 0, {}, sums);
  const Work work(repeats.device(), {&counts, &sums});
  for_elements(work, n,
               CheckRepeats{data_of<int64_t>(counts), data_of<int64_t>(sums), n, output_size.value_or(-1),
                            fault_record(repeats.device().index), "repeat_interleave: repeats must not be negative",
                            "repeat_interleave: output_size differs from the sum of the repeats"});
  const int64_t total = output_size ? *output_size : last_sum(work, data_of<int64_t>(sums), n, "repeat_interleave");
  TG_CHECK(total >= 0, Runtime, "repeat_interleave: the number of elements does not fit into 63 bits");
  const Tensor out = empty_tensor({total}, DType::int64, repeats.device());
  for_elements(work, total, FillIndices{data_of<int64_t>(sums), n, target_of<int64_t>(out)});
  return out;
}

}  // namespace tapegrad::cuda
