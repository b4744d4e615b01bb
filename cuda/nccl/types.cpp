#include "tapegrad/cuda/nccl/types.h"

#include <algorithm>
#include <utility>

#include "tapegrad/c10/error.h"

namespace tapegrad::cuda::nccl_api {

using distributed::Reduce;

Numbers numbers_of(const char* op, DType dtype, Reduce reduce) {
  static constexpr std::pair<Reduce, Operator> operators[] = {
      {Reduce::Sum, kSum}, {Reduce::Product, kProd}, {Reduce::Min, kMin}, {Reduce::Max, kMax}};
  static constexpr std::pair<DType, DataType> types[] = {
      {DType::bool_, kUint8},       {DType::uint8, kUint8},     {DType::int8, kInt8},
      {DType::int32, kInt32},       {DType::uint32, kUint32},   {DType::int64, kInt64},
      {DType::uint64, kUint64},     {DType::float16, kFloat16}, {DType::bfloat16, kBfloat16},
      {DType::float32, kFloat32},   {DType::float64, kFloat64}, {DType::complex64, kFloat32},
      {DType::complex128, kFloat64}};
  const auto* by = std::ranges::find(operators, reduce, &std::pair<Reduce, Operator>::first);
  if (by == std::end(operators))
    TG_THROW(Value, "{}: Cannot use ReduceOp.{} with NCCL", op,
             reduce == Reduce::BitAnd  ? "BAND"
             : reduce == Reduce::BitOr ? "BOR"
                                       : "BXOR");
  const auto* as = std::ranges::find(types, dtype, &std::pair<DType, DataType>::first);
  if (as == std::end(types))
    TG_THROW(Type, "{}: Input tensor data type is not supported for NCCL process group: {}", op, dtype);
  TG_CHECK(!is_complex(dtype) || by->second == kSum, Value, "{}: NCCL can only add complex numbers: got {}", op, dtype);
  Numbers n;
  n.op = by->second;
  n.type = as->second;
  n.parts = is_complex(dtype) ? 2 : 1;
  if (dtype == DType::bool_)  // a byte of 0 or 1: sums would go beyond
    n.op = n.op == kSum ? kMax : n.op == kProd ? kMin : n.op;
  return n;
}

}  // namespace tapegrad::cuda::nccl_api
