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
  if (n > kLong || n < 8)
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
