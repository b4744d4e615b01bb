// Copies of rows that are a few vectors long, where a call of memcpy takes longer than the copy.
#pragma once

#include <cstdint>
#include <cstring>

#include "tapegrad/c10/macros.h"

namespace tapegrad::cpu::TG_ISA {

namespace detail {

// n bytes in blocks, the last one of which may begin inside the one before it.
template <int64_t kBlock>
TG_INLINE void copy_blocks(char* to, const char* from, int64_t n) {
  typedef char Block __attribute__((vector_size(kBlock), aligned(1), may_alias));
  auto copy = [&](int64_t i) { *reinterpret_cast<Block*>(to + i) = *reinterpret_cast<const Block*>(from + i); };
  for (int64_t i = 0; i + kBlock < n; i += kBlock) copy(i);
  copy(n - kBlock);
}

}  // namespace detail

// Whether memcpy of many bytes takes long. It is `rep movsb` in glibc, which on Zen 3 and 4 is slow where the target is
// 1 to 15 bytes further in its page than the source: 400 KB take 116 us in place of 9 (Zen 4, glibc 2.36), as where a
// row moves on by an element.
TG_INLINE bool moves_slowly(const void* to, const void* from) {
  return (reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from) - 1) % 4096 < 15;
}

// n bytes to memory that does not overlap theirs, or is the same.
TG_INLINE void copy_bytes(void* to, const void* from, int64_t n) {
#if defined(__AVX512F__)
  constexpr int64_t kWidest = 64;
#else
  constexpr int64_t kWidest = 32;
#endif
  constexpr int64_t kLong = 1024;
  char* t = static_cast<char*>(to);
  const char* f = static_cast<const char*>(from);
  if (n < 8 || (n > kLong && !moves_slowly(to, from)))
    std::memcpy(to, from, static_cast<size_t>(n));
  else if (n >= kWidest)
    detail::copy_blocks<kWidest>(t, f, n);
  else if (n >= 32)
    detail::copy_blocks<32>(t, f, n);
  else if (n >= 16)
    detail::copy_blocks<16>(t, f, n);
  else
    detail::copy_blocks<8>(t, f, n);
}

}  // namespace tapegrad::cpu::TG_ISA
