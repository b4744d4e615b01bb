#include "tapegrad/c10/tensor/scalar.h"

#include <fmt/format.h>

namespace tapegrad {

std::string to_string(const Scalar& s) {
  switch (s.kind()) {
    case Scalar::Kind::Bool:
      return s.to<bool>() ? "True" : "False";
    case Scalar::Kind::Int:
      return fmt::format("{}", s.to<int64_t>());
    case Scalar::Kind::UInt:
      return fmt::format("{}", s.to<uint64_t>());
    case Scalar::Kind::Float:
      return fmt::format("{}", s.to<double>());
    default: {
      auto z = s.to<complex128_t>();
      return fmt::format("({}{:+}j)", z.real(), z.imag());
    }
  }
}

void Scalar::throw_too_large(int64_t bits) {
  TG_THROW(Runtime, "the number {} does not fit into int64", static_cast<uint64_t>(bits));
}

}  // namespace tapegrad
