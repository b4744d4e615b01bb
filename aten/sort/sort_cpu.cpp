// sort, argsort and topk.
#include "tapegrad/aten/iterate/only_element.h"
#include "tapegrad/aten/sort/rank.h"
#include "tapegrad/aten/sort/unsigned_order.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// Rows of 64-bit keys: by their upper halves, which share a word with the place, then runs of equal ones by their
// lower halves. Half the memory is moved, and most keys differ in the upper half or not at all.
template <class T>
const uint64_t* sort_by_halves(const T* x, int64_t n, bool turn, uint64_t* a, uint64_t* b) {
  const uint64_t mask = turn ? Keys<T>::kAll : 0;
  parallel_for(0, n, kLongRow / 2, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) a[i] = make_item(static_cast<uint32_t>((Keys<T>::of(x[i]) ^ mask) >> 32), i);
  });
  uint64_t* sorted = sort_items(a, b, n, 32);
  uint64_t* scratch = sorted == a ? b : a;
  for (int64_t i = 0; i < n;) {
    int64_t end = i + 1;
    while (end < n && key_of(sorted[end]) == key_of(sorted[i])) ++end;
    if (end - i > 1) {
      for (int64_t j = i; j < end; ++j) {
        const int64_t place = place_of(sorted[j]);
        sorted[j] = make_item(static_cast<uint32_t>(Keys<T>::of(x[place]) ^ mask), place);
      }
      const uint64_t* run = sort_items(sorted + i, scratch + i, end - i, 32);
      if (run != sorted + i) std::copy_n(run, end - i, sorted + i);
    }
    i = end;
  }
  return sorted;
}

template <class T>
void sort_rows(const RowsIn& in, bool descending, T* values, int64_t* places) {
  TG_CHECK(in.n <= kMostPlaces, NotImplemented, "sort: rows of more than 2^32 elements: got {}", in.n);
  for_rows<uint64_t>(in.rows, in.n, in.n, [&](int64_t r, uint64_t* a, uint64_t* b) {
    const T* x = in.row<T>(r);
    T* v = values ? values + r * in.n : nullptr;
    int64_t* p = places ? places + r * in.n : nullptr;
    if constexpr (sizeof(T) == 8) {
      const uint64_t* sorted = sort_by_halves(x, in.n, descending, a, b);
      parallel_for(0, in.n, kLongRow / 2, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t place = place_of(sorted[i]);
          if (v != nullptr) v[i] = x[place];
          if (p != nullptr) p[i] = place;
        }
      });
    } else {
      fill_items(x, in.n, descending, a);
      write_items(sort_items(a, b, in.n, Keys<T>::kBits), in.n, descending, x, v, p);
    }
  });
}

// A key that at least k <= kLanes / 2 elements of a row do not exceed, and few others: the k-th smallest of the minima
// of every kLanes-th element.
template <int64_t kLanes, class T>
typename Keys<T>::U bound_of(const T* x, int64_t n, int64_t k, typename Keys<T>::U mask) {
  using K = Keys<T>;
  using U = typename K::U;
  U least[kLanes], rank[kLanes] = {};
  std::fill(least, least + kLanes, K::kAll);
  for (int64_t i = 0; i + kLanes <= n; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) {
      const U key = K::of(x[i + j]) ^ mask;
      least[j] = key < least[j] ? key : least[j];
    }
  for (int64_t i = 0; i < kLanes; ++i)
    for (int64_t j = 0; j < kLanes; ++j) rank[j] += least[i] < least[j];
  U bound = 0;
  for (int64_t j = 0; j < kLanes; ++j) bound = rank[j] < static_cast<U>(k) && least[j] > bound ? least[j] : bound;
  return bound;
}

// The k smallest items of part of a row, in any order, at the front of `buffer`, which holds `capacity` items,
// at least k + 2 * kBlock. Most elements are only compared, a block at a time, with the worst one that is kept.
inline constexpr int64_t kBlock = 32;
template <class T>
int64_t smallest(const T* x, int64_t begin, int64_t end, int64_t k, bool turn, ItemOf<T>* buffer, int64_t capacity) {
  using K = Keys<T>;
  using U = typename K::U;
  const U mask = turn ? K::kAll : 0;
  auto item_at = [&](int64_t i) { return make_item(static_cast<U>(K::of(x[i]) ^ mask), i); };
  int64_t kept = std::min(capacity, end - begin);
  U worst = 0;
  if (k <= 16 && end - begin >= 128) {
    const U bound =
        k <= 8 ? bound_of<16>(x + begin, end - begin, k, mask) : bound_of<32>(x + begin, end - begin, k, mask);
    if (bound < K::kAll) worst = bound + 1;
  }
  if (worst != 0) {
    kept = 0;
  } else {
    for (int64_t i = 0; i < kept; ++i) buffer[i] = item_at(begin + i);
  }
  if (worst != 0 || kept > k) {
    int64_t i = begin + kept;
    if (worst == 0) {
      split_items(buffer, k - 1, kept);
      kept = k;
      worst = key_of(buffer[k - 1]);
    }
    auto keep = [&](int64_t j) {
      // Later elements lose against equal ones.
      if ((K::of(x[j]) ^ mask) < worst) buffer[kept++] = item_at(j);
    };
    auto prune = [&] {
      split_items(buffer, k - 1, kept);
      kept = k;
      worst = key_of(buffer[k - 1]);
    };
    for (; i + kBlock <= end; i += kBlock) {
      uint32_t better = 0;
      for (int64_t j = 0; j < kBlock; ++j)
        better |= static_cast<uint32_t>((K::of(x[i + j]) ^ mask) < worst) << static_cast<uint32_t>(j);
      for (; better != 0; better &= better - 1) buffer[kept++] = item_at(i + std::countr_zero(better));
      if (kept + kBlock > capacity) prune();
    }
    for (; i < end; ++i) keep(i);
    if (kept > k) prune();
  }
  return kept;
}

// The k smallest items of a row when k is a large part of it, as the first of what is returned.
template <class T>
const ItemOf<T>* smallest_by_rank(const T* x, int64_t n, int64_t k, bool turn, bool sorted, ItemOf<T>* a,
                                  ItemOf<T>* b) {
  if (n <= kTinyRow || k == n) {
    fill_items(x, n, turn, a);
    return sort_items(a, b, n, Keys<T>::kBits);
  }
  if (n < 4096) {
    fill_items(x, n, turn, a);
    split_items(a, k, n);
    if (sorted) std::sort(a, a + k);
    return a;
  }
  const typename Keys<T>::U mask = turn ? Keys<T>::kAll : 0;
  const ItemOf<T> last = item_of_rank(x, n, k - 1, turn, b);
  int64_t kept = 0;
  for (int64_t i = 0; kept < k; ++i) {
    const ItemOf<T> item = make_item(static_cast<typename Keys<T>::U>(Keys<T>::of(x[i]) ^ mask), i);
    a[kept] = item;
    kept += !(last < item);
  }
  return sorted ? sort_items(a, b, k, Keys<T>::kBits) : a;
}

template <class T>
void top_rows(const RowsIn& in, int64_t k, bool largest, bool sorted, T* values, int64_t* places) {
  using Item = ItemOf<T>;
  check_row_length<T>(in.n, "topk");
  const bool by_rank = k * 32 > in.n || in.n < 128;
  constexpr int64_t kParts = 16;
  const int64_t capacity = by_rank ? in.n : std::min(in.n, 4 * k + 2 * kBlock);
  const bool in_parts = !by_rank && k <= 256 && in.n >= 4 * kLongRow && in.rows < 2 * get_num_threads();
  for_rows<Item>(in.rows, in.n, in_parts ? capacity * kParts : capacity, [&](int64_t r, Item* a, Item* b) {
    const T* x = in.row<T>(r);
    const Item* result = a;
    if (by_rank) {
      result = smallest_by_rank(x, in.n, k, largest, sorted, a, b);
    } else {
      int64_t kept;
      if (in_parts) {
        const int64_t per_part = (in.n + kParts - 1) / kParts;
        int64_t found[kParts];
        parallel_for(0, kParts, 1, [&](int64_t begin, int64_t end) {
          for (int64_t p = begin; p < end; ++p)
            found[p] =
                smallest(x, p * per_part, std::min((p + 1) * per_part, in.n), k, largest, a + p * capacity, capacity);
        });
        kept = found[0];
        for (int64_t p = 1; p < kParts; ++p) {
          std::copy_n(a + p * capacity, found[p], a + kept);
          kept += found[p];
        }
      } else {
        kept = smallest(x, 0, in.n, k, largest, a, capacity);
      }
      if (k < kept) split_items(a, k, kept);
      if (sorted) std::sort(a, a + k);
    }
    write_items(result, k, largest, x, values + r * k, places + r * k);
  });
}

// `values` may be undefined.
void sort_into(const Tensor& input, int64_t dim, bool descending, const Tensor& values, const Tensor& indices) {
  const RowsIn in(input, dim);
  const RowsOut v(values, dim), p(indices, dim);
  for_ordered(input.dtype(),
              [&]<class T>() { sort_rows(in, descending, target_of<T>(v.memory), target_of<int64_t>(p.memory)); });
  v.finish();
  p.finish();
}

}  // namespace

void sort_cpu(const Tensor& input, int64_t dim, bool descending, bool, const Tensor& values, const Tensor& indices) {
  if (is_wide_unsigned(input.dtype())) {
    sort_cpu(unsigned_order::as_signed(input), dim, descending, true, unsigned_order::bits_of(values), indices);
    return unsigned_order::turn_back(values);
  }
  sort_into(input, dim, descending, values, indices);
}

void argsort_cpu(const Tensor& input, int64_t dim, bool descending, bool, const Tensor& out) {
  if (is_wide_unsigned(input.dtype())) return argsort_cpu(unsigned_order::as_signed(input), dim, descending, true, out);
  sort_into(input, dim, descending, {}, out);
}

void topk_cpu(const Tensor& input, int64_t k, int64_t dim, bool largest, bool sorted, const Tensor& values,
              const Tensor& indices) {
  if (wrote_only_element(input, values, indices) || k == 0) return;
  const RowsIn in(input, dim);
  const RowsOut v(values, dim), p(indices, dim);
  for_ordered(input.dtype(), [&]<class T>() {
    top_rows(in, k, largest, sorted, static_cast<T*>(v.memory.data_ptr()), static_cast<int64_t*>(p.memory.data_ptr()));
  });
  v.finish();
  p.finish();
}

}  // namespace tapegrad::cpu::TG_ISA
