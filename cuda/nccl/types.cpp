#include "tapegrad/cuda/nccl/types.h"

#include "tapegrad/c10/error.h"

namespace tapegrad::cuda::nccl_api {

using distributed::Reduce;

Numbers numbers_of(const char* op, DType dtype, Reduce reduce) {
  Numbers n;
  switch (reduce) {
    case Reduce::Sum:
      break;
    case Reduce::Product:
      n.op = kProd;
      break;
    case Reduce::Min:
      n.op = kMin;
      break;
    case Reduce::Max:
      n.op = kMax;
      break;
    default:
      TG_THROW(Value, "{}: Cannot use ReduceOp.{} with NCCL", op,
               reduce == Reduce::BitAnd  ? "BAND"
               : reduce == Reduce::BitOr ? "BOR"
                                         : "BXOR");
  }
  switch (dtype) {
    case DType::bool_:  // a byte of 0 or 1: sums would go beyond
      n.op = n.op == kSum ? kMax : n.op == kProd ? kMin : n.op;
      break;
    case DType::uint8:
      break;
    case DType::int8:
      n.type = kInt8;
      break;
    case DType::int32:
      n.type = kInt32;
      break;
    case DType::uint32:
      n.type = kUint32;
      break;
    case DType::int64:
      n.type = kInt64;
      break;
    case DType::uint64:
      n.type = kUint64;
      break;
    case DType::float16:
      n.type = kFloat16;
      break;
    case DType::bfloat16:
      n.type = kBfloat16;
      break;
    case DType::float32:
      n.type = kFloat32;
      break;
    case DType::float64:
      n.type = kFloat64;
      break;
    case DType::complex64:
    case DType::complex128:
      TG_CHECK(n.op == kSum, Value, "{}: NCCL can only add complex numbers: got {}", op, dtype);
      n.type = dtype == DType::complex64 ? kFloat32 : kFloat64;
      n.parts = 2;
      break;
    default:
      TG_THROW(Type, "{}: Input tensor data type is not supported for NCCL process group: {}", op, dtype);
  }
  return n;
}

}  // namespace tapegrad::cuda::nccl_api
