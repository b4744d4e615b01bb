// Index mapping between a line and the padded line; for host and device.
#pragma once

#include <cstdint>
#include <string_view>

#include "tapegrad/c10/macros.h"

namespace tapegrad::padding {

enum class Mode : uint8_t { Constant, Reflect, Replicate, Circular };

inline Mode parse(std::string_view mode) {
  return mode == "reflect" ? Mode::Reflect : mode == "replicate" ? Mode::Replicate : Mode::Circular;
}

// Where position i of the padded line, counted from the unpadded line's start, comes from in a line of n elements; -1:
// a constant.
TG_HD inline int64_t source(int64_t i, int64_t n, Mode mode) {
  if (i >= 0 && i < n) return i;
  switch (mode) {
    case Mode::Constant:
      return -1;
    case Mode::Reflect:
      return i < 0 ? -i : 2 * (n - 1) - i;
    case Mode::Replicate:
      return i < 0 ? 0 : n - 1;
    default:
      return i < 0 ? i + n : i - n;
  }
}

struct Range {
  int64_t first, last;
};

// The positions, counted from the padded line's start, that element i of a line of n elements goes to: three ranges, in
// order. `before` elements are put before the line, which is `out` long then.
TG_HD inline void targets(int64_t i, int64_t n, int64_t before, int64_t out, Mode mode, Range (&to)[3]) {
  const int64_t low = -before, high = out - before;
  to[0] = to[2] = {0, 0};
  to[1] = {i, i + 1};
  if (mode == Mode::Reflect) {
    if (i > 0) to[0] = {-i, -i + 1};
    if (i < n - 1) to[2] = {2 * (n - 1) - i, 2 * (n - 1) - i + 1};
  } else if (mode == Mode::Replicate) {
    if (i == 0) to[0] = {low, 0};
    if (i == n - 1) to[2] = {n, high};
  } else if (mode == Mode::Circular) {
    to[0] = {i - n, i - n + 1};
    to[2] = {i + n, i + n + 1};
  }
  for (Range& r : to) {
    r.first = (r.first < low ? low : r.first) + before;
    r.last = (r.last > high ? high : r.last) + before;
  }
}

}  // namespace tapegrad::padding
