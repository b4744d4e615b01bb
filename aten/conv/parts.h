// Gradients of weights that several threads sum up, each over some of the images.
#pragma once

#include <algorithm>

#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::conv {

// w = the sum of `count` parts, which lie one after another, in order. w may be the first part.
template <class C>
void add_parts(const C* parts, int64_t count, int64_t size, C* w) {
  constexpr int64_t kBlock = 512;
  parallel_for(0, size, 32768, [&](int64_t first, int64_t last) {
    C sums[kBlock];
    for (int64_t at = first; at < last; at += kBlock) {
      const int64_t n = std::min(kBlock, last - at);
      std::copy_n(parts + at, n, sums);
      for (int64_t p = 1; p < count; ++p) {
        const C* part = parts + p * size + at;
        for (int64_t j = 0; j < n; ++j) sums[j] = static_cast<C>(sums[j] + part[j]);
      }
      std::copy_n(sums, n, w + at);
    }
  });
}

}  // namespace tapegrad::conv
