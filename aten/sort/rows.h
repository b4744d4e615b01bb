// How operators of this family see tensors: dense rows along one dimension. Compiled per instruction set.
#pragma once

#include "tapegrad/aten/copy/flags.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/sort/radix.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/aten/typed.h"

namespace tapegrad::cpu::TG_ISA {

// `t` with dimension d last.
inline Tensor with_last(const Tensor& t, int64_t d) {
  DimVector sizes(t.sizes()), strides(t.strides());
  for (size_t i = static_cast<size_t>(d); i + 1 < sizes.size(); ++i) {
    std::swap(sizes[i], sizes[i + 1]);
    std::swap(strides[i], strides[i + 1]);
  }
  return alias_tensor(t, sizes, strides, t.storage_offset());
}

// The input as [rows, n].
struct RowsIn {
  Tensor dense;
  int64_t rows = 1, n = 1;

  RowsIn(const Tensor& input, int64_t dim) : dense(clean_flags(input)) {
    if (input.ndim() > 0) {
      const int64_t d = wrap_dim(dim, input.ndim(), "sort");
      n = input.size(d);
      dense = with_last(dense, d);
      rows = n == 0 ? 0 : input.numel() / n;
    }
    dense = contiguous_or_copy(dense);
  }
  template <class T>
  const T* row(int64_t r) const {
    return static_cast<const T*>(dense.data_ptr()) + r * n;
  }
};

// Rows to write, of an output that may be undefined; `finish` brings them to it.
struct RowsOut {
  Tensor target, memory;

  RowsOut(const Tensor& out, int64_t dim) : target(out) {
    if (!out.defined()) return;
    if (out.ndim() > 0) target = with_last(out, wrap_dim(dim, out.ndim(), "sort"));
    memory = target.is_contiguous() ? target : empty_tensor(target.sizes(), target.dtype());
  }
  void finish() const {
    if (!memory.is_same(target)) copy_cpu(target, memory, false);
  }
};

// f(row, a, b) with two buffers of `need` items, rows shared between threads; one at a time where they are long and
// few, for f to use the threads.
template <class Item, class F>
void for_rows(int64_t rows, int64_t n, int64_t need, F&& f) {
  if (rows == 0) return;
  auto some = [&](int64_t begin, int64_t end) {
    const Tensor memory = empty_tensor({2 * need * static_cast<int64_t>(sizeof(Item))}, DType::uint8);
    Item* a = static_cast<Item*>(memory.data_ptr());
    for (int64_t r = begin; r < end; ++r) f(r, a, a + need);
  };
  if (n >= kLongRow && rows < 2 * get_num_threads())
    some(0, rows);
  else
    parallel_for(0, rows, std::max<int64_t>(1, 2048 / std::max<int64_t>(n, 1)), some);
}

// Calls f.operator()<T>() for dtypes that have an order (the others are refused by the shape functions); bool, whose
// bytes RowsIn cleans, as a byte.
template <class F>
void for_ordered(DType t, F&& f) {
  dispatch_dtype(t, [&]<class T>() {
    if constexpr (!is_complex_type<T>) f.template operator()<stored_t<T>>();
  });
}

// Items of a row. `turn`: the order is reversed by turning the keys' bits.
template <class T>
void fill_items(const T* x, int64_t n, bool turn, ItemOf<T>* items) {
  const typename Keys<T>::U mask = turn ? Keys<T>::kAll : 0;
  auto fill = [=](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      items[i] = make_item(static_cast<typename Keys<T>::U>(Keys<T>::of(x[i]) ^ mask), i);
  };
  parallel_for(0, n, kLongRow / 2, fill);
}

// Values and places of sorted items; either may be absent.
template <class T>
void write_items(const ItemOf<T>* items, int64_t n, bool turn, const T* x, T* values, int64_t* places) {
  using K = Keys<T>;
  const typename K::U mask = turn ? K::kAll : 0;
  auto write = [=](int64_t begin, int64_t end) {
    if (values != nullptr)
      for (int64_t i = begin; i < end; ++i) {
        const typename K::U key = key_of(items[i]) ^ mask;
        values[i] = K::exact(key) ? K::value(key) : x[place_of(items[i])];
      }
    if (places != nullptr)
      for (int64_t i = begin; i < end; ++i) places[i] = place_of(items[i]);
  };
  parallel_for(0, n, kLongRow / 2, write);
}

template <class T>
void check_row_length(int64_t n, const char* op) {
  TG_CHECK(sizeof(T) == 8 || n <= kMostPlaces, NotImplemented,
           "{}: rows of more than 2^32 elements of this dtype: got {}", op, n);
}

}  // namespace tapegrad::cpu::TG_ISA
