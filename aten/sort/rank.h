// Selecting by rank. Compiled per instruction set.
#pragma once

#include <memory>

#include "tapegrad/aten/sort/rows.h"

namespace tapegrad::cpu::TG_ISA {

// Item k (from 0) of the sorted row; `turn` as in fill_items; `items` is scratch for n of them. Long rows are counted
// by their top bits first, so that only the elements that share them with the wanted one become items.
template <class T>
ItemOf<T> item_of_rank(const T* x, int64_t n, int64_t k, bool turn, ItemOf<T>* items) {
  using K = Keys<T>;
  using U = typename K::U;
  const U mask = turn ? K::kAll : 0;
  int64_t many = n;
  if (n < 4096) {
    fill_items(x, n, turn, items);
  } else {
    constexpr int kTopBits = std::min(K::kBits, 11), kShift = K::kBits - kTopBits, kCounts = 1 << kTopBits;
    constexpr int64_t kParts = 8;
    const int64_t per_part = (n + kParts - 1) / kParts;
    std::unique_ptr<int64_t[]> counts(new int64_t[kParts * kCounts]());
    auto each_part = [&](auto&& f) {
      parallel_for(0, kParts, std::max<int64_t>(1, kLongRow / per_part), [&](int64_t begin, int64_t end) {
        for (int64_t p = begin; p < end; ++p)
          f(std::min(p * per_part, n), std::min((p + 1) * per_part, n), counts.get() + p * kCounts);
      });
    };
    each_part([&](int64_t first, int64_t last, int64_t* count) {
      for (int64_t i = first; i < last; ++i) ++count[static_cast<U>(K::of(x[i]) ^ mask) >> kShift];
    });
    int64_t before = 0, bucket = 0;
    for (; bucket < kCounts; ++bucket) {
      int64_t here = 0;
      for (int64_t p = 0; p < kParts; ++p) here += counts[p * kCounts + bucket];
      if (k < before + here) {
        many = here;
        break;
      }
      before += here;
    }
    k -= before;
    int64_t at = 0;
    for (int64_t p = 0; p < kParts; ++p) at += std::exchange(counts[p * kCounts + bucket], at);
    each_part([&](int64_t first, int64_t last, const int64_t* count) {
      ItemOf<T>* to = items + count[bucket];
      for (int64_t i = first; i < last; ++i) {
        const U key = K::of(x[i]) ^ mask;
        if (static_cast<int64_t>(key >> kShift) == bucket) *to++ = make_item(key, i);
      }
    });
  }
  split_items(items, k, many);
  return items[k];
}

}  // namespace tapegrad::cpu::TG_ISA
