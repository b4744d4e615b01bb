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
  auto colon = text.find(':');
  std::string_view name = text.substr(0, colon);
  int index = -1;
  bool valid = true;
  if (colon != std::string_view::npos) {
    auto digits = text.substr(colon + 1);
    auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
    valid = error == std::errc() && end == digits.data() + digits.size() && index >= 0 && index < 128;
  }
  if (valid && name == "cpu") return Device(DeviceType::CPU);
  if (valid && name == "meta") return Device(DeviceType::Meta);
  if (valid && name == "cuda") return Device(DeviceType::CUDA, static_cast<int8_t>(index));
  TG_THROW(Runtime, "device: Expected one of cpu, cuda, cuda:N, meta device type at start of device string: {}", text);
}

}  // namespace tapegrad
