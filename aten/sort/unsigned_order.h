// Maps uint16, uint32 and uint64 to signed integers of the same order by flipping the highest bit, so that the kernels
// of the signed dtypes can sort these storage-only dtypes. Any thread.
#pragma once

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/tensor.h"

namespace tapegrad::unsigned_order {

inline Scalar highest_bit(const Tensor& t) {
  return Scalar(std::numeric_limits<int64_t>::min() >> (64 - 8 * static_cast<int>(t.itemsize())));
}
inline Tensor bits_of(const Tensor& t) { return raw::_view_dtype(t, bits_dtype(t.dtype())); }

inline Tensor as_signed(const Tensor& t) { return raw::bitwise_xor(bits_of(t), highest_bit(t)); }
// In place: of a tensor of an unsigned dtype that holds the bits of such signed numbers.
inline void turn_back(const Tensor& t) { raw::bitwise_xor_(bits_of(t), highest_bit(t)); }

}  // namespace tapegrad::unsigned_order
