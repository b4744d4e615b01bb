// One element of each row by its rank: kthvalue, median, nanmedian; and mode.
#include "tapegrad/aten/iterate/only_element.h"
#include "tapegrad/aten/sort/rank.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

template <class T>
int64_t count_nan(const T* x, int64_t n) {
  int64_t many = 0;
  if constexpr (is_floating_type<T>)
    for (int64_t i = 0; i < n; ++i) many += Keys<T>::of(x[i]) == Keys<T>::kAll;
  return many;
}

enum class Wanted { rank, median, nanmedian };

template <class T>
int64_t place_of_wanted(const T* x, int64_t n, int64_t k, Wanted wanted, ItemOf<T>* items) {
  int64_t rank = k;
  if (wanted != Wanted::rank) {
    const int64_t nan = count_nan(x, n);
    if (nan > 0 && wanted == Wanted::median) {
      int64_t i = 0;
      while (Keys<T>::of(x[i]) != Keys<T>::kAll) ++i;
      return i;
    }
    rank = std::max<int64_t>(n - nan - 1, 0) / 2;
  }
  return place_of(item_of_rank(x, n, rank, false, items));
}

void select(const RowsIn& in, int64_t k, Wanted wanted, void* values, int64_t* places) {
  for_ordered(in.dense.dtype(), [&]<class T>() {
    check_row_length<T>(in.n, "kthvalue");
    for_rows<ItemOf<T>>(in.rows, in.n, in.n, [&](int64_t r, ItemOf<T>* a, ItemOf<T>*) {
      const T* x = in.row<T>(r);
      const int64_t place = place_of_wanted(x, in.n, k, wanted, a);
      static_cast<T*>(values)[r] = x[place];
      if (places != nullptr) places[r] = place;
    });
  });
}

// The most frequent key, the smallest of equally frequent ones, and the last place that has it. NaN equals nothing.
template <class T>
int64_t place_of_mode(const ItemOf<T>* sorted, int64_t n) {
  int64_t best = 0, most = 0;
  for (int64_t i = 0; i < n;) {
    int64_t end = i + 1;
    const auto key = key_of(sorted[i]);
    if (!is_floating_type<T> || key != Keys<T>::kAll)
      while (end < n && key_of(sorted[end]) == key) ++end;
    if (end - i > most) {
      most = end - i;
      best = end - 1;
    }
    i = end;
  }
  return place_of(sorted[best]);
}

void median_of_all(const Tensor& input, Wanted wanted, const Tensor& out) {
  RowsIn in(input, 0);
  in.rows = 1;
  in.n = input.numel();
  if (in.n > 0) return select(in, 0, wanted, out.data_ptr(), nullptr);
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      T* to = static_cast<T*>(out.data_ptr());
      if constexpr (is_floating_type<T>)
        *to = static_cast<T>(std::numeric_limits<float>::quiet_NaN());
      else
        *to = std::numeric_limits<T>::min();
    }
  });
}

}  // namespace

void kthvalue_cpu(const Tensor& input, int64_t k, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  if (wrote_only_element(input, values, indices)) return;
  select(RowsIn(input, dim), k - 1, Wanted::rank, values.data_ptr(), static_cast<int64_t*>(indices.data_ptr()));
}
void median_dim_cpu(const Tensor& input, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  select(RowsIn(input, dim), 0, Wanted::median, values.data_ptr(), static_cast<int64_t*>(indices.data_ptr()));
}
void nanmedian_dim_cpu(const Tensor& input, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  select(RowsIn(input, dim), 0, Wanted::nanmedian, values.data_ptr(), static_cast<int64_t*>(indices.data_ptr()));
}
void median_cpu(const Tensor& input, const Tensor& out) { median_of_all(input, Wanted::median, out); }
void nanmedian_cpu(const Tensor& input, const Tensor& out) { median_of_all(input, Wanted::nanmedian, out); }

void mode_cpu(const Tensor& input, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  if (wrote_only_element(input, values, indices)) return;
  const RowsIn in(input, dim);
  int64_t* places = static_cast<int64_t*>(indices.data_ptr());
  for_ordered(input.dtype(), [&]<class T>() {
    check_row_length<T>(in.n, "mode");
    T* to = static_cast<T*>(values.data_ptr());
    for_rows<ItemOf<T>>(in.rows, in.n, in.n, [&](int64_t r, ItemOf<T>* a, ItemOf<T>* b) {
      const T* x = in.row<T>(r);
      fill_items(x, in.n, false, a);
      places[r] = place_of_mode<T>(sort_items(a, b, in.n, Keys<T>::kBits), in.n);
      to[r] = x[places[r]];
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
