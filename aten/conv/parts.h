// Gradients of weights that several threads sum up, each over some of the images.
#pragma once

#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::conv {

// w = the sum of `count` parts, which lie one after another, in order.
template <class C>
void add_parts(const C* parts, int64_t count, int64_t size, C* w) {
  parallel_for(0, size, 32768, [&](int64_t first, int64_t last) {
    for (int64_t j = first; j < last; ++j) {
      C s = parts[j];
      for (int64_t p = 1; p < count; ++p) s = static_cast<C>(s + parts[p * size + j]);
      w[j] = s;
    }
  });
}

}  // namespace tapegrad::conv
