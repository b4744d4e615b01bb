// Numbers of all kinds, on which a loop or a kernel that is made at run time is compared with the kernels that it
// stands for.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>

namespace tapegrad::record {

// For input k of up to four: edges in all pairs, then some between.
template <class T, class Bits>
void fill_with_edges(char* to, int64_t n, int k, uint64_t shift) {
  using Limits = std::numeric_limits<T>;
  const auto nan = [](Bits payload, Bits sign_and_kind) {
    return std::bit_cast<T>(static_cast<Bits>(std::bit_cast<Bits>(Limits::infinity()) | payload | sign_and_kind));
  };
  constexpr Bits kSign = Bits{1} << (sizeof(T) * 8 - 1), kQuiet = Bits{1} << (Limits::digits - 2);
  const T edges[] = {T(0),
                     T(-0.0),
                     T(1),
                     T(-1),
                     T(0.5),
                     T(-2.5),
                     T(3),
                     T(-3),
                     T(6),
                     T(0.1),
                     T(-0.3),
                     T(1) / 3,
                     Limits::infinity(),
                     -Limits::infinity(),
                     nan(1, kQuiet),
                     nan(2, kQuiet | kSign),
                     nan(3, 0),
                     nan(4, kSign),
                     Limits::denorm_min(),
                     -5 * Limits::denorm_min(),
                     Limits::min(),
                     Limits::max(),
                     -Limits::max(),
                     T(1) + Limits::epsilon()};
  constexpr uint64_t kEdges = std::size(edges);
  uint64_t random = 0x9E3779B97F4A7C15u * static_cast<uint64_t>(k + 1) + shift;
  for (int64_t i = 0; i < n; ++i) {
    const auto u = static_cast<uint64_t>(i) + shift;
    const uint64_t at[] = {u, u / kEdges + shift, u * 7 + u / kEdges, u * 11 + u / 48};
    random = random * 6364136223846793005u + 1442695040888963407u;
    T value = static_cast<T>(static_cast<double>(random >> 11) * 0x1p-53 * 8 - 4);
    if (u < kEdges * kEdges) value = edges[at[k - 1] % kEdges];
    std::memcpy(to + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
  }
}

}  // namespace tapegrad::record
