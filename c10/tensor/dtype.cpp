#include "tapegrad/c10/tensor/dtype.h"

#include <fmt/format.h>

namespace tapegrad {

std::string_view dtype_name(DType t) {
  static constexpr std::string_view names[] = {
#define TG_NAME(name, type) #name,
      TG_FORALL_STORED_DTYPES(TG_NAME)
#undef TG_NAME
  };
  return t == DType::bool_ ? "bool" : names[static_cast<int>(t)];
}

NoKernelFor::NoKernelFor(DType t)
    : Error(ErrorKind::NotImplemented, fmt::format("not implemented for dtype {}", dtype_name(t))) {}

void throw_no_kernel_for(DType t) { throw NoKernelFor(t); }

void name_operator(const NoKernelFor& error, const char* op) {
  throw Error(error.kind(), fmt::format("{}: {}", op, error.message()));
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  if (a > b) std::swap(a, b);
  TG_CHECK(!is_float8(a) && !is_float8(b), Runtime,
           "promote_types: float8 dtypes promote with themselves only: got {} and {}\nconvert one with to()", a, b);
  if (b == DType::complex32 && !is_wide_unsigned(a)) {
    if (is_complex(a) || a == DType::float64) return to_complex(a);
    return a == DType::float32 || a == DType::bfloat16 ? DType::complex64 : b;
  }
  // As PyTorch: these have no wider dtype to go to but the floating ones.
  TG_CHECK(!is_wide_unsigned(a) && (!is_wide_unsigned(b) || is_floating_point(a)), Runtime,
           "promote_types: uint16, uint32 and uint64 promote with floating dtypes only: got {} and {}", a, b);
  if (is_wide_unsigned(b)) return a;
  // From here a is the lower in the list: bool < uint8 < int8 < ... < complex128.
  if (is_complex(b)) return a == DType::float64 ? DType::complex128 : b;
  if (a == DType::float16 && b == DType::bfloat16) return DType::float32;
  if (a == DType::uint8 && b == DType::int8) return DType::int16;
  return b;
}

bool can_cast(DType from, DType to) {
  if (is_complex(from) && !is_complex(to)) return false;
  if ((is_floating_point(from) || is_float8(from)) && !is_differentiable(to)) return false;
  if (from != DType::bool_ && to == DType::bool_) return false;
  return true;
}

}  // namespace tapegrad
