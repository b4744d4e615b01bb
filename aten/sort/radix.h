// Sorting items (keys.h) by their keys: least significant digit first, by several threads where it is long. Compiled
// per instruction set.
#pragma once

#include <algorithm>
#include <memory>

#include "tapegrad/aten/sort/keys.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

inline constexpr int64_t kTinyRow = 32;       // up to it counting what is smaller is fastest
inline constexpr int64_t kShortRow = 192;     // below it comparisons are faster than digits
inline constexpr int64_t kLongRow = 1 << 16;  // from it on several threads sort one row
inline constexpr int kDigit = 8, kBuckets = 1 << kDigit;

template <class Item>
int digit_of(const Item& item, int shift) {
  return static_cast<int>(key_of(item) >> shift & (kBuckets - 1));
}

// Moves items to the places that `at` gives per bucket.
template <class Item>
void scatter_items(const Item* from, Item* to, int64_t n, int shift, int64_t* at) {
  for (int64_t i = 0; i < n; ++i) to[at[digit_of(from[i], shift)]++] = from[i];
}

template <class Item>
Item* radix_sort_serial(Item* a, Item* b, int64_t n, int bits) {
  int64_t counts[8][kBuckets] = {};
  const int digits = bits / kDigit;
  for (int64_t i = 0; i < n; ++i)
    for (int d = 0; d < digits; ++d) ++counts[d][digit_of(a[i], d * kDigit)];
  for (int d = 0; d < digits; ++d) {
    int64_t* count = counts[d];
    if (count[digit_of(a[0], d * kDigit)] == n) continue;
    int64_t at = 0;
    for (int k = 0; k < kBuckets; ++k) at += std::exchange(count[k], at);
    scatter_items(a, b, n, d * kDigit, count);
    std::swap(a, b);
  }
  return a;
}

// Each chunk counts its digits, then knows where its items go.
template <class Item>
Item* radix_sort_parallel(Item* a, Item* b, int64_t n, int bits) {
  constexpr int64_t kChunks = 16;
  const int64_t per_chunk = (n + kChunks - 1) / kChunks;
  std::unique_ptr<int64_t[]> counts(new int64_t[kChunks * kBuckets]);
  for (int shift = 0; shift < bits; shift += kDigit) {
    auto each_chunk = [&](auto&& f) {
      parallel_for(0, kChunks, 1, [&](int64_t begin, int64_t end) {
        for (int64_t c = begin; c < end; ++c)
          f(std::min(c * per_chunk, n), std::min((c + 1) * per_chunk, n), counts.get() + c * kBuckets);
      });
    };
    each_chunk([&](int64_t first, int64_t last, int64_t* count) {
      int64_t local[kBuckets] = {};
      for (int64_t i = first; i < last; ++i) ++local[digit_of(a[i], shift)];
      std::copy_n(local, kBuckets, count);
    });
    int64_t at = 0;
    bool sorted = false;
    for (int k = 0; k < kBuckets; ++k) {
      const int64_t before = at;
      for (int64_t c = 0; c < kChunks; ++c) at += std::exchange(counts[c * kBuckets + k], at);
      sorted |= at - before == n;
    }
    if (sorted) continue;
    each_chunk([&](int64_t first, int64_t last, int64_t* places) {
      scatter_items(a + first, b, last - first, shift, places);
    });
    std::swap(a, b);
  }
  return a;
}

// Each item goes to the place that the number of smaller ones gives: no branches that depend on data.
inline void sort_by_counting(const uint64_t* a, uint64_t* b, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    const uint64_t item = a[i];
    uint64_t smaller = 0;
    for (int64_t j = 0; j < n; ++j) smaller += a[j] < item;
    b[smaller] = item;
  }
}

// The k smallest of n items before the others. Like sort_items not inlined: every dtype calls it.
template <class Item>
[[gnu::noinline]] void split_items(Item* items, int64_t k, int64_t n) {
  std::nth_element(items, items + k, items + n);
}

// Sorts a[0, n); b is scratch. Keys are below 2^bits. Returns the one of the two that has the result.
// Items must come in the order of their places, which is kept among equal keys.
template <class Item>
[[gnu::noinline]] Item* sort_items(Item* a, Item* b, int64_t n, int bits) {
  if constexpr (std::is_same_v<Item, uint64_t>) {
    if (n <= kTinyRow) {
      sort_by_counting(a, b, n);
      return b;
    }
  }
  if (n < kShortRow) {
    std::sort(a, a + n);
    return a;
  }
  if (n >= kLongRow && !in_parallel_region() && get_num_threads() > 1) return radix_sort_parallel(a, b, n, bits);
  return radix_sort_serial(a, b, n, bits);
}

}  // namespace tapegrad::cpu::TG_ISA
