#include "tapegrad/aten/record/value.h"

#include <bit>
#include <cstring>

namespace tapegrad::record {

bool same_number(const Scalar& a, const Scalar& b) {
  auto bits = [](const Scalar& s) {
    const auto z = s.to<complex128_t>();
    return std::pair(std::bit_cast<uint64_t>(z.real()), std::bit_cast<uint64_t>(z.imag()));
  };
  return a.kind() == b.kind() && (a.is_integral() ? a == b : bits(a) == bits(b));
}

Tensor copy_of(const Tensor& t) {
  const ModeGuard plain(kModeNoGrad, kModeTrace | kModeRecord);
  Tensor copy(make_intrusive<TensorImpl>(allocate_storage(t.impl()->storage()->nbytes(), Device()), t.dtype(),
                                         t.sizes(), t.strides(), t.storage_offset()));
  std::memcpy(copy.impl()->storage()->data(), t.impl()->storage()->data(), t.impl()->storage()->nbytes());
  return copy;
}

dispatch::Argument refer_to(Value& value, dispatch::ArgumentType type) {
  using dispatch::Argument;
  static constexpr OptionalInts kNoInts;
  static constexpr std::optional<std::string_view> kNoText;
  return with_argument_type(type, [&]<class T>(std::type_identity<T>) {
    if constexpr (std::is_same_v<T, TensorSpan>) {
      auto& v = std::get<ListValue>(value);
      v.span = v.tensors;
      return Argument(v.span);
    } else if constexpr (std::is_same_v<T, IntSpan>) {
      auto& v = std::get<IntsValue>(value);
      v.span = v.values;
      return Argument(v.span);
    } else if constexpr (std::is_same_v<T, OptionalInts>) {
      auto* v = std::get_if<IntsValue>(&value);
      if (v == nullptr) return Argument(kNoInts);
      v->optional = IntSpan(v->values);
      return Argument(v->optional);
    } else if constexpr (std::is_same_v<T, std::span<const double>>) {
      auto& v = std::get<FloatsValue>(value);
      v.span = v.values;
      return Argument(v.span);
    } else if constexpr (std::is_same_v<T, std::string_view>) {
      auto& v = std::get<TextValue>(value);
      v.span = v.values;
      return Argument(v.span);
    } else if constexpr (std::is_same_v<T, std::optional<std::string_view>>) {
      auto* v = std::get_if<TextValue>(&value);
      if (v == nullptr) return Argument(kNoText);
      v->optional = v->values;
      return Argument(v->optional);
    } else {
      return Argument(std::get<T>(value));
    }
  });
}

}  // namespace tapegrad::record
