#include "tapegrad/c10/device/device.h"

#include <array>
#include <charconv>
#include <optional>

#include "tapegrad/c10/device/device_names.h"

namespace tapegrad {
namespace {

constexpr std::array<std::string_view, 17> kForeign = {"ipu",    "xpu", "mkldnn", "opengl", "opencl",       "ideep",
                                                       "hip",    "ve",  "fpga",   "maia",   "xla",          "lazy",
                                                       "vulkan", "mps", "hpu",    "mtia",   "privateuseone"};

// Nothing where no device has the name.
std::optional<DeviceType> type_named(std::string_view name) {
  if (name == "cpu") return DeviceType::CPU;
  if (name == "meta") return DeviceType::Meta;
  if (name == "cuda") return DeviceType::CUDA;
  for (size_t i = 0; i < kForeign.size(); ++i)
    if (name == kForeign[i]) return static_cast<DeviceType>(kNumDeviceTypes + i);
  return std::nullopt;
}

}  // namespace

std::string_view device_type_name(DeviceType type) {
  if (is_foreign(type)) return kForeign[static_cast<size_t>(type) - kNumDeviceTypes];
  return type == DeviceType::CPU ? "cpu" : type == DeviceType::CUDA ? "cuda" : "meta";
}

std::string to_string(Device d) {
  switch (d.type) {
    case DeviceType::CPU:
      return "cpu";
    case DeviceType::Meta:
      return "meta";
    case DeviceType::Sparse:
      return (d.index == 0 ? "cpu" : "cuda:" + std::to_string(d.index - 1)) + " (sparse)";
    case DeviceType::Batched:
      return "a level of vmap";
    default:
      return std::string(device_type_name(d.type)) + (d.index < 0 ? "" : ":" + std::to_string(d.index));
  }
}

Device parse_device(std::string_view text) {
  TG_CHECK(!text.empty(), Runtime, "device: Device string must not be empty");
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  const auto type = type_named(name);
  TG_CHECK(
      type, Runtime,
      "device: Expected one of cpu, cuda, ipu, xpu, mkldnn, opengl, opencl, ideep, hip, ve, fpga, maia, xla, lazy, "
      "vulkan, mps, meta, hpu, mtia, privateuseone device type at start of device string: {}",
      name);
  int index = -1;
  if (colon != std::string_view::npos) {
    const auto digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    const bool valid = error == std::errc() && end == digits.data() + digits.size() && index >= 0 && index < 128 &&
                       (digits.size() == 1 || digits.front() != '0');
    TG_CHECK(valid, Runtime, "device: Invalid device string: '{}'", text);
  }
  if (*type == DeviceType::CPU || *type == DeviceType::Meta) return Device(*type);
  return Device(*type, static_cast<int8_t>(index));
}

}  // namespace tapegrad
