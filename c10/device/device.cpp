#include "tapegrad/c10/device/device.h"

#include <charconv>

namespace tapegrad {

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
      return d.index < 0 ? "cuda" : "cuda:" + std::to_string(d.index);
  }
}

Device parse_device(std::string_view text) {
  TG_CHECK(!text.empty(), Runtime, "device: Device string must not be empty");
  const auto colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  TG_CHECK(name == "cpu" || name == "meta" || name == "cuda", Runtime,
           "device: Expected one of cpu, cuda, cuda:N, meta device type at start of device string: {}", name);
  int index = -1;
  if (colon != std::string_view::npos) {
    const auto digits = text.substr(colon + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    const bool valid = error == std::errc() && end == digits.data() + digits.size() && index >= 0 && index < 128 &&
                       (digits.size() == 1 || digits.front() != '0');
    TG_CHECK(valid, Runtime, "device: Invalid device string: '{}'", text);
  }
  if (name == "cpu") return Device(DeviceType::CPU);
  if (name == "meta") return Device(DeviceType::Meta);
  return Device(DeviceType::CUDA, static_cast<int8_t>(index));
}

}  // namespace tapegrad
