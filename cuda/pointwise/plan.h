// The host's part of pointwise kernels, compiled once for all functors; rows.h has the kernels.
#pragma once

#include "tapegrad/aten/iterate/pointwise_iterator.h"
#include "tapegrad/cuda/launch/faults.h"
#include "tapegrad/cuda/launch/index.h"
#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda::rows {

inline constexpr int kMaxOperands = 1 + pointwise::kMaxInputs;

// How an operand's elements lie in memory, when the compute type is float: kernels load them as float, and store all
// but Bool.
enum class Stored : uint8_t { Native, Half, BFloat16, Bool };
inline Stored stored_as(DType dtype, DType compute) {
  if (compute != DType::float32) return Stored::Native;
  return dtype == DType::float16    ? Stored::Half
         : dtype == DType::bfloat16 ? Stored::BFloat16
         : dtype == DType::bool_    ? Stored::Bool
                                    : Stored::Native;
}
inline bool storable(DType dtype, DType compute) {
  return dtype == compute || (compute == DType::float32 && is_half(dtype));
}
inline bool loadable(DType dtype, DType compute) {
  return storable(dtype, compute) || (compute == DType::float32 && dtype == DType::bool_);
}
// What changes from element to element of a flat iteration.
enum class Source : uint8_t { Array, Element, Value };  // all, one on the device, one given in `value`

template <int Operands>
struct OperandList {
  char* data[Operands];
  Stored stored[Operands];
  Source source[Operands];
  alignas(16) unsigned char value[Operands][16];
  FaultRecord* fault;
};
struct Flat : OperandList<kMaxOperands> {
  int64_t n;
};
template <int Operands>
struct Strided : OperandList<Operands> {
  Offsets<Operands> offsets;
  uint32_t n;
};

// The number of elements that one thread processes at once: two loads of 16 bytes, or one of 16-bit floats and of
// bytes.
template <class T>
inline constexpr int kPack = sizeof(T) == 1   ? 16
                             : sizeof(T) > 16 ? 1
                                              : 32 / static_cast<int>(sizeof(T));

// The kernels of one functor.
struct Kernels {
  void (*flat)(const void* functor, const Flat& args, const Stream& stream);
  void (*strided)(const void* functor, const Strided<kMaxOperands>& args, const Stream& stream);
};

// `pack`: kPack of the compute type.
TG_API void run_kernels(const pointwise::Iterator& it, const Kernels& kernels, const void* functor, int pack);

}  // namespace tapegrad::cuda::rows
