// The places of a triangle of a matrix, listed row by row; for host and device. Sizes are not negative, their product
// fits, and |offset| is below 2^62, so no sum here overflows.
#pragma once

#include <cstdint>

#include "tapegrad/c10/macros.h"

namespace tapegrad::triangle {

TG_HD inline int64_t limited(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

// The columns [begin, end) of row i that belong to the triangle.
struct Columns {
  int64_t begin, end;
};
TG_HD inline Columns lower(int64_t i, int64_t columns, int64_t offset) {
  return {0, limited(i + offset + 1, 0, columns)};
}
TG_HD inline Columns upper(int64_t i, int64_t columns, int64_t offset) {
  return {limited(i + offset, 0, columns), columns};
}

// The rows of a triangle that are not empty, and how many elements they have together.
struct Rows {
  int64_t begin, end, count;
};
TG_HD inline Rows lower_rows(int64_t row, int64_t col, int64_t offset) {
  const int64_t first = offset + 1;  // columns of row 0, before they are cut to 0 .. col
  const int64_t begin = limited(-offset, 0, row), full = limited(col - first, begin, row);
  const int64_t partial = full - begin;
  const int64_t sum = partial == 0 ? 0 : partial * (begin + first) + partial * (partial - 1) / 2;
  return {begin, row, col == 0 ? 0 : sum + col * (row - full)};
}
TG_HD inline Rows upper_rows(int64_t row, int64_t col, int64_t offset) {
  const int64_t count = row * col - lower_rows(row, col, offset - 1).count;
  return {0, limited(col - offset, 0, row), count};
}

}  // namespace tapegrad::triangle
