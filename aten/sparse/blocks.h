// What sparse_tensor.cpp and compressed.cpp share: places as numbers, and dense tensors divided into blocks.
#pragma once

#include "tapegrad/aten/sparse/sparse_tensor.h"

namespace tapegrad::sparse {

// How many places each of the first `dims` dimensions has, the last two being those of the matrices: elements, or
// blocks.
DimVector places_along(const Form& form, IntSpan sizes, size_t dims);
// Each column of `index` (dimensions, entries) as one number among places of so many along each dimension; and back.
Tensor flat_index(const Tensor& index, IntSpan along);
Tensor index_of_flat(const Tensor& flat, IntSpan along);

// Raises Runtime for a number in `index` (dimensions, entries) that is not one of the places; on a device later.
void check_in_bounds(const Tensor& index, IntSpan along, const char* op);

// (batch ..., rows, columns, dense ...) as (batch ..., blocks below each other, blocks in a row, height, width,
// dense ...), `dim` being that of the rows; recorded.
Tensor divided_in_blocks(const Tensor& dense, int64_t dim, std::array<int64_t, 2> block);
// The inverse: of blocks (all places, height, width, dense ...), `along` those of each sparse dimension.
Tensor joined_blocks(const Tensor& blocks, IntSpan along, IntSpan sizes);

// The sum of two sparse tensors of one number of sparse dimensions in the form of the first, which is compressed.
Tensor sum_of_compressed(const Tensor& a, const Tensor& b);

}  // namespace tapegrad::sparse
