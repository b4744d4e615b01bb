// The kinds of recurrent cells, as the rows of rnn.toml number them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapegrad::rnn {

enum class Cell : int64_t { Tanh = 0, Relu = 1, Lstm = 2, Gru = 3 };

// Rows of a weight per element of the state.
inline int64_t gate_count(Cell cell) { return cell == Cell::Lstm ? 4 : cell == Cell::Gru ? 3 : 1; }
// The row stride of a matrix of which many rows are in use at once. Rows a power of two apart map to the same few cache
// sets; one more cache line avoids these conflicts.
inline int64_t row_stride(int64_t width, size_t itemsize) {
  const int64_t line = 64 / static_cast<int64_t>(itemsize);
  return width > 0 && width % (16 * line) == 0 ? width + line : width;
}
// The values that a layer saves for its gradient, per row: the gates' values; of a GRU also the state's part of the new
// value. Elman networks need nothing but their output.
inline int64_t kept_width(Cell cell, int64_t h, size_t itemsize) {
  return cell == Cell::Lstm || cell == Cell::Gru ? row_stride(4 * h, itemsize) : 0;
}

}  // namespace tapegrad::rnn
