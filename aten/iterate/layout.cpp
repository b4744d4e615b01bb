#include "tapegrad/aten/iterate/layout.h"

namespace tapegrad {
namespace {

// Stride in elements of operand t along dimension d of the broadcast shape; 0 where it is repeated.
int64_t broadcast_stride(const TensorImpl& t, size_t d, size_t ndim) {
  const auto missing = static_cast<int64_t>(ndim) - t.ndim();
  const auto own = static_cast<int64_t>(d) - missing;
  if (own < 0 || t.size(static_cast<int>(own)) == 1) return 0;
  return t.stride(static_cast<int>(own));
}

// -1: dimension a is faster than b, 1: slower, 0: undetermined.
int compare_dims(std::span<const Tensor* const> operands, IntSpan sizes, size_t a, size_t b) {
  for (const Tensor* t : operands) {
    const int64_t sa = std::abs(broadcast_stride(*t->impl(), a, sizes.size()));
    const int64_t sb = std::abs(broadcast_stride(*t->impl(), b, sizes.size()));
    if (sa == 0 || sb == 0) continue;
    if (sa != sb) return sa < sb ? -1 : 1;
    if (sizes[a] > sizes[b]) return 1;
  }
  return 0;
}

// Dimensions from the fastest to the slowest; without evidence the last is the fastest. Insertion sort, since
// "cannot tell" makes the order partial: an undecided pair is stepped over.
void sort_dims(std::span<const Tensor* const> operands, IntSpan sizes, size_t* order) {
  const size_t n = sizes.size();
  for (size_t i = 0; i < n; ++i) order[i] = n - 1 - i;
  for (size_t i = 1; i < n; ++i) {
    size_t moving = i;
    for (size_t j = i; j-- > 0;) {
      const int c = compare_dims(operands, sizes, order[j], order[moving]);
      if (c > 0) {
        std::swap(order[j], order[moving]);
        moving = j;
      } else if (c < 0) {
        break;
      }
    }
  }
}

bool is_identity(const size_t* order, size_t n) {
  for (size_t i = 0; i < n; ++i)
    if (order[i] != n - 1 - i) return false;
  return true;
}

// All operands have the same sizes and strides, without gaps: the result takes the strides as they are.
bool same_dense_strides(std::span<const Tensor* const> inputs) {
  const TensorImpl& first = *inputs[0]->impl();
  for (const Tensor* t : inputs)
    if (!(t->sizes() == first.sizes() && t->strides() == first.strides())) return false;
  return first.is_non_overlapping_and_dense();
}

}  // namespace

Layout broadcast_layout(std::span<const Tensor* const> inputs, const char* op, bool with_strides) {
  Layout layout;
  bool all_contiguous = true;
  bool same_shape = true;
  layout.sizes = inputs[0]->sizes();
  for (const Tensor* t : inputs) {
    all_contiguous &= t->is_contiguous();
    if (t->sizes() == IntSpan(layout.sizes)) continue;
    same_shape = false;
    layout.sizes = broadcast_sizes(layout.sizes, t->sizes(), op);
  }
  if (!with_strides || all_contiguous || layout.sizes.size() < 2) return layout;
  if (same_shape && same_dense_strides(inputs)) {
    layout.strides = inputs[0]->strides();
    return layout;
  }
  size_t order[kMaxDims];
  sort_dims(inputs, layout.sizes, order);
  const size_t n = layout.sizes.size();
  if (is_identity(order, n)) return layout;
  layout.strides.resize(n);
  int64_t stride = 1;
  for (size_t i = 0; i < n; ++i) {
    layout.strides[order[i]] = stride;
    stride *= std::max<int64_t>(layout.sizes[order[i]], 1);
  }
  return layout;
}

int iteration_space(std::span<const Tensor* const> operands, IntSpan sizes, int64_t* shape, int64_t* const* strides) {
  if (std::find(sizes.begin(), sizes.end(), 0) != sizes.end()) {  // strides mean nothing then, and may be anything
    shape[0] = 0;
    for (size_t k = 0; k < operands.size(); ++k) strides[k][0] = 0;
    return 1;
  }
  size_t order[kMaxDims];
  sort_dims(operands, sizes, order);
  // From the slowest to the fastest dimension, merging each into the one before where that is possible.
  int ndim = 0;
  const size_t n = sizes.size();
  for (size_t i = n; i-- > 0;) {
    const size_t d = order[i];
    if (sizes[d] == 1) continue;
    bool merge = ndim > 0;
    for (size_t k = 0; k < operands.size(); ++k) {
      const TensorImpl& t = *operands[k]->impl();
      const int64_t bytes = broadcast_stride(t, d, n) * static_cast<int64_t>(t.itemsize());
      strides[k][ndim] = bytes;
      merge &= ndim > 0 && strides[k][ndim - 1] == bytes * sizes[d];
    }
    if (merge) {
      shape[ndim - 1] *= sizes[d];
      for (size_t k = 0; k < operands.size(); ++k) strides[k][ndim - 1] = strides[k][ndim];
    } else {
      shape[ndim++] = sizes[d];
    }
  }
  if (ndim == 0) {
    shape[0] = 1;
    for (size_t k = 0; k < operands.size(); ++k) strides[k][0] = static_cast<int64_t>(operands[k]->itemsize());
    ndim = 1;
  }
  return ndim;
}

}  // namespace tapegrad
