// The conversions of half_blocks.h, which includes this, for instruction sets without forms of their own.
#pragma once

#include <bit>
#include <cstring>

#include "tapegrad/c10/tensor/half.h"

namespace tapegrad::cpu::TG_ISA::half_blocks {

#if defined(__aarch64__)
using Float16 = __fp16;  // NEON converts it
#else
using Float16 = Half;
#endif

TG_INLINE void load(const Half* from, float* to) {
  Float16 x[kBlock];
  std::memcpy(x, from, sizeof x);
  for (int i = 0; i < kBlock; ++i) to[i] = static_cast<float>(x[i]);
}
TG_INLINE void store(const float* from, Half* to) {
  Float16 x[kBlock];
  for (int i = 0; i < kBlock; ++i) x[i] = static_cast<Float16>(from[i]);
  std::memcpy(to, x, sizeof x);
}
TG_INLINE void load(const BFloat16* from, float* to) {
  for (int i = 0; i < kBlock; ++i) to[i] = static_cast<float>(from[i]);
}
TG_INLINE void store(const float* from, BFloat16* to) {
  for (int i = 0; i < kBlock; ++i) to[i] = BFloat16(from[i]);
}
TG_INLINE void load_deinterleaved(const BFloat16* from, float* to, bool both = true) {
  uint32_t pairs[kBlock] = {};
  std::memcpy(pairs, from, both ? sizeof pairs : sizeof pairs / 2);
  for (int i = 0; i < kBlock; ++i) {
    to[i] = std::bit_cast<float>(pairs[i] << 16);
    to[i + kBlock] = std::bit_cast<float>(pairs[i] & 0xffff0000u);
  }
}
TG_INLINE void store_interleaved(const float* from, BFloat16* to, bool both) {
  uint32_t pairs[kBlock];
  for (int i = 0; i < kBlock; ++i) {
    const BFloat16 even(from[i]), odd(from[i + kBlock]);
    pairs[i] = even.bits | static_cast<uint32_t>(odd.bits) << 16;
  }
  std::memcpy(to, pairs, both ? sizeof pairs : sizeof pairs / 2);
}

}  // namespace tapegrad::cpu::TG_ISA::half_blocks
