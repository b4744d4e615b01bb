// Where a tensor lives: `cpu`, `cuda:N` or `meta` (shapes without data). A plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tapegrad/c10/error.h"

namespace tapegrad {

enum class DeviceType : uint8_t { CPU, CUDA, Meta };
inline constexpr int kNumDeviceTypes = 3;

struct Device {
  DeviceType type = DeviceType::CPU;
  int8_t index = 0;  // -1 in a request means "the current one"

  constexpr Device() = default;
  constexpr Device(DeviceType t, int8_t i = 0) : type(t), index(i) {}
  constexpr bool is_cpu() const { return type == DeviceType::CPU; }
  constexpr bool is_cuda() const { return type == DeviceType::CUDA; }
  constexpr bool is_meta() const { return type == DeviceType::Meta; }
  constexpr bool operator==(const Device&) const = default;
};

TG_API std::string to_string(Device d);             // "cpu", "cuda:0", "meta"
TG_API Device parse_device(std::string_view text);  // raises Runtime on anything else

}  // namespace tapegrad

template <>
struct fmt::formatter<tapegrad::Device> {
  constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
  template <class Context>
  auto format(tapegrad::Device d, Context& context) const {
    return fmt::format_to(context.out(), "{}", tapegrad::to_string(d));
  }
};
