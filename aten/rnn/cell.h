// The kinds of recurrent cells, as the rows of rnn.toml number them.
#pragma once

#include <cstdint>

namespace tapegrad::rnn {

enum class Cell : int64_t { Tanh = 0, Relu = 1, Lstm = 2, Gru = 3 };

// Rows of a weight per element of the state.
inline int64_t gate_count(Cell cell) { return cell == Cell::Lstm ? 4 : cell == Cell::Gru ? 3 : 1; }
// What a layer keeps per element of the state for its gradient: the gates' values; of a GRU also the state's part of
// the new value. Elman networks need nothing but their output.
inline int64_t kept_count(Cell cell) { return cell == Cell::Lstm || cell == Cell::Gru ? 4 : 0; }

}  // namespace tapegrad::rnn
