// Reading and writing at listed places of a tensor on a device: the common part of index, index_put, index_select,
// scatter, embedding and their relatives, as aten/index/places.h is for the CPU. Some dimensions of a tensor are
// replaced by a list of places; dimensions before the list are called outer, those behind it inner. The other side, the
// rows, is dense: [outer..., places, inner...]. Writing is deterministic: places are sorted, equal ones stay in the
// order of the list, and one thread takes all rows of a place. A bad index is recorded as a fault and its rows are
// skipped.
#pragma once

#include <memory>
#include <vector>

#include "tapegrad/aten/tensor.h"
#include "tapegrad/cuda/launch/divide.h"
#include "tapegrad/cuda/launch/faults.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/reduce/plan.h"

namespace tapegrad::cuda {

using reduce_rows::Places;
inline constexpr int kMostIndices = 8;

// The list: sums of index[k] * stride over index tensors, in elements of the indexed tensor.
struct PlaceList {
  struct Term {
    const void* index;  // dense
    bool narrow;        // int32, else int64
    bool wrap;          // negative ones count from the end
    int64_t size, stride, dim;
  };
  Term terms[kMostIndices];
  int num_terms = 0;
  int64_t count = 0;
  FaultText op;
  FaultRecord* fault = nullptr;

  // The place of k, or -1 with the fault recorded.
  TG_DEVICE int64_t at(int64_t k) const {
    int64_t place = 0;
    for (int t = 0; t < num_terms; ++t) {
      const Term& term = terms[t];
      const int64_t given = term.narrow ? static_cast<int64_t>(static_cast<const int32_t*>(term.index)[k])
                                        : static_cast<const int64_t*>(term.index)[k];
      const int64_t i = given < 0 && term.wrap ? given + term.size : given;
      if (i < 0 || i >= term.size) {
        record_fault(fault, Fault::Index, op, given, term.size, term.dim);
        return -1;
      }
      place += i * term.stride;
    }
    return place;
  }
};

// Input of SortedPlaces; List gives the place of k, or -1.
template <class List>
struct KeyOf {
  List list;
  uint64_t* keys;
  int64_t* order;
  uint64_t bad;
  TG_DEVICE void operator()(int64_t k) const {
    const int64_t place = list.at(k);
    keys[k] = place < 0 ? bad : static_cast<uint64_t>(place);
    order[k] = k;
  }
};

// Index tensors on the device, dense; kept alive as long as this is.
class Indices {
 public:
  Indices(Device device, int64_t count, const char* op) : device_(device) {
    list_.count = count;
    list_.op = op;
    list_.fault = fault_record(device.index);
  }
  // `sizes`: what the index is broadcast to.
  void add(const Tensor& index, IntSpan sizes, int64_t size, int64_t stride, bool wrap, int64_t dim);
  const PlaceList& list() const { return list_; }
  // Whether every place is a multiple of 16 bytes from the first one.
  bool steps_in_packs(int64_t item) const {
    for (int t = 0; t < list_.num_terms; ++t)
      if (list_.terms[t].stride * item % 16 != 0) return false;
    return true;
  }

 private:
  Device device_;
  PlaceList list_;
  std::vector<Tensor> kept_;
};

// Both sides of the tensor whose dimensions in `indexed` (bits) are replaced; strides in elements.
struct PlaceGeometry {
  Places outer, inner;
  int64_t outer_numel = 1, inner_numel = 1;
  PlaceGeometry(const Tensor& t, uint64_t indexed, int outer_dims);
  bool dense_inner() const { return inner.ndim == 0 || (inner.ndim == 1 && inner.strides[0] == 1); }
};

// The list sorted by place: keys ascending (bad ones after all others), `order` the k of each.
struct SortedPlaces {
  Tensor keys, order;
  // From keys and 0, 1, 2, ...; `bad` is the key of bad ones, and larger than all others.
  SortedPlaces(const Work& work, const Tensor& given_keys, const Tensor& given_order, uint64_t bad);
  const uint64_t* key_data() const { return static_cast<const uint64_t*>(keys.data_ptr()); }
  const int64_t* order_data() const { return static_cast<const int64_t*>(order.data_ptr()); }
};
inline constexpr uint64_t kBadPlace = uint64_t{1} << 62;

// Of `count` places that list.at(k) gives, which lie below `extent`.
template <class List>
SortedPlaces sorted_places(const Work& work, Device device, const List& list, int64_t count, int64_t extent) {
  const Tensor keys = empty_tensor({count}, DType::int64, device), order = empty_tensor({count}, DType::int64, device);
  const auto bad = static_cast<uint64_t>(extent);
  for_elements(work, count, KeyOf<List>{list, target_of<uint64_t>(keys), target_of<int64_t>(order), bad});
  return SortedPlaces(work, keys, order, bad);
}

// Whether entry i of sorted keys is the first of a good place.
TG_DEVICE bool begins_place(const uint64_t* keys, int64_t i) {
  return keys[i] != kBadPlace && (i == 0 || keys[i - 1] != keys[i]);
}

// Sorted places and what is done to the element at each: step(accumulator, row) in the order of the list.
template <class F>
struct PlaceWriter {
  const uint64_t* keys;
  const int64_t* order;
  int64_t count;
  F f;

  TG_DEVICE bool begins(int64_t first) const { return begins_place(keys, first); }
  // `target`: V elements at the place that begins at entry `first`; load(k, to): those of row k of the list.
  template <int V, class T, class Load>
  TG_DEVICE void write(T (&target)[V], int64_t first, const Load& load) const {
    decltype(f.start(target[0])) acc[V];
    TG_UNROLL
    for (int v = 0; v < V; ++v) acc[v] = f.start(target[v]);
    int64_t p = first;
    for (; p < count && keys[p] == keys[first]; ++p) {
      T row[V];
      load(order[p], row);
      TG_UNROLL
      for (int v = 0; v < V; ++v) acc[v] = f.step(acc[v], row[v]);
    }
    TG_UNROLL
    for (int v = 0; v < V; ++v) f.finish(target[v], acc[v], p - first);
  }
};

// The outer element, the number in the list and the inner element of an element of the rows.
struct RowSteps {
  Divider by_inner, by_list;
  RowSteps(const PlaceGeometry& side, int64_t count, int pack = 1)
      : by_inner(side.inner_numel / pack, side.inner_numel * count * side.outer_numel),
        by_list(count, count * side.outer_numel) {}
  TG_DEVICE void divide(int64_t i, int64_t& outer, int64_t& k, int64_t& inner) const {
    int64_t row;
    by_inner.divide(i, row, inner);
    by_list.divide(row, outer, k);
  }
};

template <class T>
struct ReadPlaces {
  const T* from;
  T* rows;
  PlaceGeometry side;
  PlaceList list;
  RowSteps steps;
  ReadPlaces(const T* f, T* r, const PlaceGeometry& s, const PlaceList& l)
      : from(f), rows(r), side(s), list(l), steps(s, l.count) {}
  TG_DEVICE void operator()(int64_t i) const {
    int64_t o, k, j;
    steps.divide(i, o, k, j);
    const int64_t place = list.at(k);
    if (place < 0) return;
    rows[i] = from[place + side.outer.at(o) + side.inner.at(j)];
  }
};
// The same where what lies behind each place is dense, in packs of 16 bytes; `per_row` of them.
struct ReadRows {
  const char* from;
  char* rows;
  int64_t item;  // bytes of an element
  PlaceList list;
  Divider by_row;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t k, j;
    by_row.divide(i, k, j);
    const int64_t place = list.at(k);
    if (place < 0) return;
    store_pack<uint32_t, 4>(rows + i * 16, load_pack<uint32_t, 4>(from + place * item + j * 16));
  }
};

// For each place and inner and outer element one thread, or for V neighbours of dense inner elements.
template <class T, class F, int V = 1>
struct WritePlaces {
  T* to;
  const T* rows;  // null where the functor needs none
  PlaceGeometry side;
  PlaceWriter<F> places;
  RowSteps steps;
  WritePlaces(T* t, const T* r, const PlaceGeometry& s, const PlaceWriter<F>& p)
      : to(t), rows(r), side(s), places(p), steps(s, p.count, V) {}
  TG_DEVICE void operator()(int64_t i) const {
    int64_t o, first, j;
    steps.divide(i, o, first, j);
    const int64_t count = places.count;
    if (!places.begins(first)) return;
    T* const target = to + static_cast<int64_t>(places.keys[first]) + side.outer.at(o) + side.inner.at(j * V);
    T values[V];
    load_pieces<T, V>(values, target);
    places.write(values, first, [&](int64_t k, T(&row)[V]) {
      if (rows != nullptr)
        load_pieces<T, V>(row, rows + (o * count + k) * side.inner_numel + j * V);
      else
        for (T& x : row) x = T{};
    });
    store_pieces<T, V>(target, values);
  }
};

}  // namespace tapegrad::cuda
