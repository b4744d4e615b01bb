// The entries of a sparse matrix, row by row.
#pragma once

#include <cstdint>
#include <vector>

#include "tapegrad/c10/macros.h"

namespace tapegrad::cpu {

// The entries of row i are entry(k) for k from starts[i] to before starts[i + 1], in their order.
struct Rows {
  std::vector<int64_t> starts, order;  // no order: they are sorted by rows
  int64_t entry(int64_t k) const { return order.empty() ? k : order[static_cast<size_t>(k)]; }
};

// Of n entries at (index[k], index[n + k]) of a matrix of that size; raises Index for one outside of it. O(n + rows).
TG_API Rows by_rows(const char* op, const int64_t* index, int64_t n, int64_t rows, int64_t columns);

}  // namespace tapegrad::cpu
