#include "tapegrad/aten/index/index_plan.h"

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_index.h"
#include "tapegrad/aten/functions_view.h"

namespace tapegrad {

IndexPlan plan_index(const Tensor& input, TensorSpan indices, const char* op) {
  TG_CHECK(indices.size() <= static_cast<size_t>(input.ndim()), Index,
           "{}: too many indices for a tensor with {} dimensions: got {}", op, input.ndim(), indices.size());
  IndexPlan plan;
  int first = -1, last = -1, count = 0;
  for (size_t d = 0; d < indices.size(); ++d) {
    const Tensor& index = indices[d];
    if (!index.defined()) continue;
    TG_CHECK(index.dtype() == DType::int64 || index.dtype() == DType::int32, Index,
             "{}: indices must be int64, int32, uint8 or bool tensors: got {}", op, index.dtype());
    if (first < 0) first = static_cast<int>(d);
    last = static_cast<int>(d);
    ++count;
    plan.indexed |= uint64_t{1} << d;
    const IntSpan a = plan.index_sizes, b = index.sizes();
    for (size_t i = 1; i <= std::min(a.size(), b.size()); ++i) {
      int64_t x = a[a.size() - i], y = b[b.size() - i];
      TG_CHECK(x == y || x == 1 || y == 1, Index, "{}: shape mismatch: indices of shapes {} and {} do not broadcast",
               op, format_ints(a), format_ints(b));
    }
    plan.index_sizes = broadcast_sizes(plan.index_sizes, index.sizes(), op);
  }
  const bool neighbours = count > 0 && last - first + 1 == count;
  plan.outer_dims = neighbours ? first : 0;
  int seen = 0;
  auto put_index = [&] {
    for (int64_t s : plan.index_sizes) plan.sizes.push_back(s);
  };
  if (plan.outer_dims == 0) put_index();
  for (int d = 0; d < input.ndim(); ++d) {
    if (plan.indexed >> d & 1) continue;
    plan.sizes.push_back(input.impl()->size(d));
    if (++seen == plan.outer_dims) put_index();
  }
  int64_t numel = 1;
  for (int d = 0; d < input.ndim(); ++d)
    if (plan.indexed >> d & 1) numel *= input.impl()->size(d);
  TG_CHECK(numel != 0 || count == 0 || checked_numel(plan.index_sizes, op) == 0, Index,
           "{}: index is out of bounds for dimension with size 0: the tensor has sizes {}", op,
           format_ints(input.sizes()));
  checked_numel(plan.sizes, op);
  return plan;
}

std::vector<Tensor> expand_masks(const Tensor& input, TensorSpan indices, const char* op) {
  std::vector<Tensor> result;
  for (const Tensor& index : indices) {
    if (!index.defined()) {
      result.emplace_back();
      continue;
    }
    if (index.dtype() != DType::bool_ && index.dtype() != DType::uint8) {
      result.push_back(index.device() == input.device() ? index : raw::to(index, {}, input.device()));
      continue;
    }
    for (int k = 0; k < index.ndim(); ++k) {
      const int d = static_cast<int>(result.size()) + k;
      TG_CHECK(d < input.ndim(), Index, "{}: too many indices for a tensor with {} dimensions", op, input.ndim());
      TG_CHECK(index.impl()->size(k) == input.impl()->size(d), Index,
               "{}: the mask of shape {} does not match the indexed tensor of shape {} at dimension {}", op,
               format_ints(index.sizes()), format_ints(input.sizes()), d);
    }
    Tensor places = raw::nonzero(index.device() == input.device() ? index : raw::to(index, {}, input.device()));
    for (int k = 0; k < index.ndim(); ++k) result.push_back(raw::select(places, 1, k));
  }
  return result;
}

}  // namespace tapegrad
