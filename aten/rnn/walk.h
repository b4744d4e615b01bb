// The order in which a recurrent layer goes through its steps. Rows of all steps lie one after the other; a step has
// as many rows as there are sequences that long, longest first. Plain values; no ownership of the sizes.
#pragma once

#include <algorithm>
#include <vector>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::rnn {

struct Walk {
  IntSpan sizes;  // rows of each step
  bool reverse;
  int64_t steps, sequences;
  std::vector<int64_t> start;  // first row of each step

  Walk(IntSpan batch_sizes, bool backwards)
      : sizes(batch_sizes),
        reverse(backwards),
        steps(static_cast<int64_t>(batch_sizes.size())),
        sequences(batch_sizes[0]) {
    int64_t at = 0;
    for (int64_t size : sizes) {
      start.push_back(at);
      at += size;
    }
  }
  // The i-th step to be computed, its rows and their number.
  int64_t step(int64_t i) const { return reverse ? steps - 1 - i : i; }
  int64_t first(int64_t i) const { return start[static_cast<size_t>(step(i))]; }
  int64_t count(int64_t i) const { return sizes[static_cast<size_t>(step(i))]; }
  // How many of the i-th step's rows go on from the step before it; the others begin with the initial state.
  int64_t carried(int64_t i) const { return i == 0 ? 0 : std::min(count(i), count(i - 1)); }
  bool even() const { return sizes.front() == sizes.back(); }
  // The row that holds the state in which sequence `row` ends, and -1 when it has no step at all.
  int64_t last_row(int64_t row) const {
    if (reverse) return row < sizes[0] ? row : -1;
    const auto longer = std::partition_point(sizes.begin(), sizes.end(), [&](int64_t size) { return size > row; });
    return longer == sizes.begin() ? -1 : start[static_cast<size_t>(longer - sizes.begin()) - 1] + row;
  }
  // A row's predecessor of the i-th step: in `states` (a row each, `width` wide) or the initial one.
  template <class T>
  const T* previous(int64_t i, int64_t row, const T* states, const T* initial, int64_t width) const {
    return row < carried(i) ? states + (first(i - 1) + row) * width : initial + row * width;
  }
};

}  // namespace tapegrad::rnn
