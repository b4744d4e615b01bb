// Reductions of bytes from several ranks: what may be combined, and the choice of the instruction set.
#include "tapegrad/c10/dispatch/each_isa.h"
#include "tapegrad/distributed/backend.h"

namespace tapegrad::distributed {

#define TG_DECLARE(isa, level)                                                                         \
  namespace isa {                                                                                      \
  void reduce_rows(void* out, std::span<const void* const> in, int64_t numel, DType dtype, Reduce op); \
  }
TG_EACH_ISA(TG_DECLARE)
#undef TG_DECLARE

namespace {

using Rows = void (*)(void*, std::span<const void* const>, int64_t, DType, Reduce);

Rows choose() {
  Rows rows = nullptr;
#define TG_CHOOSE(isa, level) \
  if (cpu_isa() >= level) rows = &isa::reduce_rows;
  TG_EACH_ISA(TG_CHOOSE)
#undef TG_CHOOSE
  TG_CHECK(rows != nullptr, Runtime, "reduce: this processor lacks AVX2, and no kernels for older ones were built");
  return rows;
}

const char* name_of(Reduce op) {
  constexpr const char* names[] = {"sum", "product", "min", "max", "bitwise and", "bitwise or", "bitwise xor"};
  return static_cast<size_t>(op) < std::size(names) ? names[static_cast<size_t>(op)] : "unknown";
}

}  // namespace

void check_reduce(const char* op_name, DType dtype, Reduce op) {
  const bool bits = op == Reduce::BitAnd || op == Reduce::BitOr || op == Reduce::BitXor;
  const bool order = op == Reduce::Min || op == Reduce::Max;
  TG_CHECK(op <= Reduce::BitXor, Value, "{}: no such reduction: {}", op_name, static_cast<int>(op));
  TG_CHECK(!is_float8(dtype) && dtype != DType::complex32, NotImplemented, "{}: not there for {}\nconvert it first",
           op_name, dtype);
  TG_CHECK(!bits || !is_differentiable(dtype), Value, "{}: {} is for integers and bool: got {}", op_name, name_of(op),
           dtype);
  TG_CHECK(!order || !is_complex(dtype), Value, "{}: complex numbers have no order, so no {}: got {}", op_name,
           name_of(op), dtype);
}

void reduce_bytes(void* out, std::span<const void* const> in, int64_t numel, DType dtype, Reduce op) {
  check_reduce("reduce", dtype, op);
  if (numel <= 0 || in.empty()) return;
  static const Rows rows = choose();
  rows(out, in, numel, dtype, op);
}

}  // namespace tapegrad::distributed
