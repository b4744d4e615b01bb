// Where a tensor lives: `cpu`, `cuda:N` or `meta` (shapes without data). A plain value. Sparse tensors have a device
// type of their own: their elements do not lie at one address, so no kernel may take them, and the kernel table has
// none for this type. The index tells where their parts are (aten/sparse/sparse_tensor.h). The same holds for batched
// tensors of vmap, whose index is the level of the vmap (aten/batch/batched_tensor.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "tapegrad/c10/error.h"

namespace tapegrad {

enum class DeviceType : uint8_t { CPU, CUDA, Meta, Sparse, Batched };
inline constexpr int kNumDeviceTypes = 5;

// Aligned to its size, without which clang reads and writes an atomic one through libatomic.
struct alignas(2) Device {
  DeviceType type = DeviceType::CPU;
  int8_t index = 0;  // -1 in a request means "the current one"

  constexpr Device() = default;
  constexpr Device(DeviceType t, int8_t i = 0) : type(t), index(i) {}
  constexpr bool is_cpu() const { return type == DeviceType::CPU; }
  constexpr bool is_cuda() const { return type == DeviceType::CUDA; }
  constexpr bool is_meta() const { return type == DeviceType::Meta; }
  constexpr bool is_sparse() const { return type == DeviceType::Sparse; }
  constexpr bool is_batched() const { return type == DeviceType::Batched; }
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
    return tapegrad::append_text(context.out(), tapegrad::to_string(d));
  }
};
