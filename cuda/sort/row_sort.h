// Sorting the rows of a matrix on a device: stable, ascending, by keys (aten/sort/keys.h), with NaN last. Rows of up to
// 2048 elements are sorted in shared memory, several to a block where they are short; of longer rows the few smallest
// are found tile by tile, and whole ones are sorted by sort_pairs, all rows at once.
#pragma once

#include "tapegrad/aten/sort/keys.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {

using cpu::TG_ISA::Keys;

// A tensor as dense rows [rows, n] along one dimension, which comes last.
struct Rows {
  Tensor dense;
  int64_t rows = 1, n = 1;
  Rows(const Tensor& input, int64_t dim);
};

// A result with `keep` elements per row: dense memory to write to, and `finish`, which copies it to the output if
// needed.
struct RowsTarget {
  Tensor target, memory;
  RowsTarget(const Tensor& out, int64_t dim);
  void finish() const;
};

// The elements' keys: uint32 in a tensor of int32, or uint64 in one of int64.
struct RowKeys {
  Tensor memory;
  int bits = 32;
  bool wide() const { return memory.dtype() == DType::int64; }
  // `turn`: in descending order, equal elements still in the order of their places.
  RowKeys(const Work& work, const Tensor& dense, bool turn);
};

// The places in their row of the `keep` smallest keys of each row, in order; int64, [rows, keep]. Where `sorted` is
// defined, their keys as well, in the same form as the given ones.
void sort_rows(const Work& work, const RowKeys& keys, int64_t rows, int64_t n, int64_t keep, const Tensor& places,
               const Tensor& sorted = {});

// out[r, j] = dense[r, places[r, j]]
void take_places(const Work& work, const Tensor& dense, int64_t n, const Tensor& places, int64_t keep,
                 const Tensor& out);

}  // namespace tapegrad::cuda
