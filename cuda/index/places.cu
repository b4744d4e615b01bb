#include "tapegrad/cuda/index/places.h"

#include <bit>

#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/sort/device_sort.h"

namespace tapegrad::cuda {
namespace {

struct KeyOf {
  PlaceList list;
  uint64_t* keys;
  int64_t* order;
  uint64_t bad;
  TG_DEVICE void operator()(int64_t k) const {
    const int64_t place = list.at(k);
    keys[k] = place < 0 ? bad : static_cast<uint64_t>(place);
    order[k] = k;
  }
};
struct MarkBad {
  uint64_t* keys;
  uint64_t bad;
  TG_DEVICE void operator()(int64_t k) const {
    if (keys[k] == bad) keys[k] = kBadPlace;
  }
};

}  // namespace

void Indices::add(const Tensor& given, IntSpan sizes, int64_t size, int64_t stride, bool wrap, int64_t dim) {
  TG_CHECK(list_.num_terms < kMostIndices, NotImplemented, "{}: more than {} index tensors on cuda", list_.op,
           kMostIndices);
  Tensor index = given;
  const bool narrow = given.dtype() == DType::int32;
  const bool fits = narrow || given.dtype() == DType::int64;
  if (!fits || index.device() != device_ || !index.is_contiguous() || index.sizes() != sizes) {
    index = empty_tensor(sizes, narrow ? DType::int32 : DType::int64, device_);
    raw::copy_(index, given);
  }
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

SortedPlaces::SortedPlaces(const Work& work, Device device, const PlaceList& list, int64_t extent)
    : keys(empty_tensor({list.count}, DType::int64, device)), order(empty_tensor({list.count}, DType::int64, device)) {
  if (list.count == 0) return;
  const Tensor raw_keys = empty_tensor({list.count}, DType::int64, device);
  const Tensor raw_order = empty_tensor({list.count}, DType::int64, device);
  // Places lie below `extent`, so that few bits have to be looked at.
  const auto bad = static_cast<uint64_t>(extent);
  auto* k = static_cast<uint64_t*>(raw_keys.data_ptr());
  auto* o = static_cast<int64_t*>(raw_order.data_ptr());
  for_elements(work, list.count, KeyOf{list, k, o, bad});
  sort_pairs(work, k, static_cast<uint64_t*>(keys.data_ptr()), o, static_cast<int64_t*>(order.data_ptr()), list.count,
             std::bit_width(bad));
  for_elements(work, list.count, MarkBad{static_cast<uint64_t*>(keys.data_ptr()), bad});
}

}  // namespace tapegrad::cuda
