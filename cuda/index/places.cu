#include "tapegrad/cuda/index/places.h"

#include <bit>

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/sort/device_sort.h"

namespace tapegrad::cuda {
namespace {

struct MarkBad {
  uint64_t* keys;
  uint64_t bad;
  TG_DEVICE void operator()(int64_t k) const {
    if (keys[k] == bad) keys[k] = kBadPlace;
  }
};

}  // namespace

void Indices::add(const Tensor& given, IntSpan sizes, int64_t size, int64_t stride, bool wrap, int64_t dim) {
  TG_CHECK(list_.num_terms < kMostIndices, NotImplemented, "{}: more than {} index tensors on cuda", list_.op.text,
           kMostIndices);
  const bool narrow = given.dtype() == DType::int32;
  const Tensor index = contiguous_as(given, sizes, narrow ? DType::int32 : DType::int64, device_);
  kept_.push_back(index);
  list_.terms[list_.num_terms++] = {index.data_ptr(), narrow, wrap, size, stride, dim};
}

PlaceGeometry::PlaceGeometry(const Tensor& t, uint64_t indexed, int outer_dims) {
  int64_t shape[2][kMaxDims], strides[2][kMaxDims];
  int n[2] = {0, 0}, seen = 0;
  for (int d = 0; d < t.ndim(); ++d) {
    if (indexed >> d & 1) continue;
    const int side = seen++ < outer_dims ? 0 : 1;
    const int64_t size = t.impl()->size(d), stride = t.impl()->stride(d);
    (side == 0 ? outer_numel : inner_numel) *= size;
    if (size == 1) continue;
    if (n[side] > 0 && strides[side][n[side] - 1] == stride * size) {  // one with the dimension before
      shape[side][n[side] - 1] *= size;
      strides[side][n[side] - 1] = stride;
      continue;
    }
    shape[side][n[side]] = size;
    strides[side][n[side]++] = stride;
  }
  outer = Places(n[0], shape[0], strides[0]);
  inner = Places(n[1], shape[1], strides[1]);
}

SortedPlaces::SortedPlaces(const Work& work, const Tensor& given_keys, const Tensor& given_order, uint64_t bad)
    : keys(empty_tensor(given_keys.sizes(), DType::int64, given_keys.device())),
      order(empty_tensor(given_keys.sizes(), DType::int64, given_keys.device())) {
  auto* k = static_cast<uint64_t*>(keys.data_ptr());
  // Places are below `bad`, so that few bits have to be sorted.
  sort_pairs(work, static_cast<const uint64_t*>(given_keys.data_ptr()), k,
             static_cast<const int64_t*>(given_order.data_ptr()), static_cast<int64_t*>(order.data_ptr()), keys.numel(),
             static_cast<int>(std::bit_width(bad)));
  for_elements(work, keys.numel(), MarkBad{k, bad});
}

}  // namespace tapegrad::cuda
