// argmax, argmin, and max and min along a dimension with their places. The input is contiguous, seen as [outer, n,
// inner]. A row (inner = 1) is searched block by block for its extreme, in vectors, and only the block that holds
// it is searched for the place. Columns are compared side by side.
#include <algorithm>
#include <bit>
#include <limits>
#include <type_traits>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/copy/flags.h"
#include "tapegrad/aten/copy/tile.h"
#include "tapegrad/aten/functors/reduce.h"
#include "tapegrad/aten/iterate/along_dim.h"
#include "tapegrad/aten/iterate/reduce_rows.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

inline constexpr int64_t kBlock = 512;
using reduce_rows::kLanes;
inline constexpr int64_t kGrain = 32768;

template <class T>
bool is_nan(T x) {
  return x != x;
}

template <class T, bool kMax>
bool beats(T x, T best) {
  if constexpr (std::is_floating_point_v<T>)
    return (kMax ? x > best : x < best) | ((x != x) & (best == best));
  else
    return kMax ? x > best : x < best;
}

// The extreme of n elements, which lie in memory as S; NaN wins.
template <class T, bool kMax, class S>
[[gnu::flatten]] T extreme_of(const S* x, int64_t n) {
  using F = std::conditional_t<kMax, fn::amax<T>, fn::amin<T>>;
  using Loop = reduce_rows::OnePass<T, F, S>;
  T lanes[kLanes];
  std::fill_n(lanes, kLanes, F{}.identity());
  Loop::accumulate_row(F{}, lanes, x, n);
  return Loop::template folded<kLanes>(F{}, lanes);
}

// The first of n elements, one of which fits, for which `same` holds: kLanes at a time, in vectors.
template <class S, class F>
int64_t first_place(const S* x, int64_t n, F same) {
  using Found = std::conditional_t<sizeof(S) == 2, uint16_t, int>;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    Found found = 0;
    for (int l = 0; l < kLanes; ++l) found |= static_cast<Found>(same(x[i + l]));
    if (found != 0) break;
  }
  while (!same(x[i])) ++i;
  return i;
}

// The first position of a known extreme. Elements of 16-bit formats are compared by their bits.
template <class T, class S>
int64_t place_of(T best, const S* x, int64_t n) {
  if constexpr (is_half_type<S>) {
    const auto* bits = reinterpret_cast<const uint16_t*>(x);
    constexpr uint16_t kMagnitude = 0x7fff;
    if (is_nan(best)) {
      const auto infinity = std::bit_cast<uint16_t>(S(std::numeric_limits<T>::infinity()));
      return first_place(bits, n, [=](uint16_t b) { return (b & kMagnitude) > infinity; });
    }
    const uint16_t mask = best == T(0) ? kMagnitude : 0xffff;  // both zeros are the same
    const auto target = static_cast<uint16_t>(std::bit_cast<uint16_t>(S(best)) & mask);
    return first_place(bits, n, [=](uint16_t b) { return (b & mask) == target; });
  } else {
    if (is_nan(best)) return first_place(x, n, [](S v) { return is_nan(v); });
    return first_place(x, n, [=](S v) { return v == best; });
  }
}

template <class S, bool kMax>
int64_t place_in_row(const S* x, int64_t n) {
  using T = compute_t<S>;
  int64_t best_block = 0;
  T best{};
  for (int64_t b = 0; b < n; b += kBlock) {
    const int64_t m = std::min(kBlock, n - b);
    const T value = extreme_of<T, kMax>(x + b, m);
    if (b == 0 || beats<T, kMax>(value, best)) {
      best = value;
      best_block = b;
    }
  }
  const int64_t m = std::min(kBlock, n - best_block);
  return best_block + place_of(best, x + best_block, m);
}

// One long row: chunks by size, the first of equal ones wins.
template <class S, bool kMax>
int64_t place_in_long_row(const S* x, int64_t n) {
  using T = compute_t<S>;
  constexpr int64_t kMaxChunks = 64;
  const int64_t per_chunk = std::max<int64_t>((n + kMaxChunks - 1) / kMaxChunks, 2 * kGrain);
  const int64_t chunks = (n + per_chunk - 1) / per_chunk;
  int64_t place[kMaxChunks] = {};
  parallel_for(0, chunks, 1, [&](int64_t begin, int64_t end) {
    for (int64_t c = begin; c < end; ++c) {
      const int64_t first = c * per_chunk;
      place[c] = first + place_in_row<S, kMax>(x + first, std::min(per_chunk, n - first));
    }
  });
  int64_t best = place[0];
  for (int64_t c = 1; c < chunks; ++c)
    if (beats<T, kMax>(static_cast<T>(x[place[c]]), static_cast<T>(x[best]))) best = place[c];
  return best;
}

// As what the elements of a column are read: loops over structures are not vectorised.
template <class S>
using Read = std::conditional_t<is_half_type<S>, int16_t, S>;

// What columns are compared by: for 16-bit formats integers in the order of the numbers, in which both zeros are alike
// and NaN lies beyond infinity.
template <class S, bool kMax>
Read<S> key_of(Read<S> x) {
  if constexpr (is_half_type<S>) {
    const auto infinity = std::bit_cast<int16_t>(S(std::numeric_limits<float>::infinity()));
    const auto magnitude = static_cast<int16_t>(x & 0x7fff), sign = static_cast<int16_t>(x >> 15);
    const auto signed_magnitude = static_cast<int16_t>((magnitude ^ sign) - sign);
    return magnitude > infinity ? static_cast<int16_t>(kMax ? 0x7fff : -0x7fff) : signed_magnitude;
  } else {
    return x;
  }
}

// Columns [0, m) of n rows that are `stride` elements apart. Index: where n allows, as wide as a key.
template <class S, bool kMax, class Index>
[[gnu::flatten]] void places_in_columns(const S* elements, int64_t n, int64_t stride, int64_t m, int64_t* places) {
  using Key = Read<S>;
  const auto* x = reinterpret_cast<const Key*>(elements);
  Key best[kBlock];
  Index place[kBlock];
  for (int64_t j = 0; j < m; ++j) best[j] = key_of<S, kMax>(x[j]);
  std::fill_n(place, m, Index(0));
  for (int64_t k = 1; k < n; ++k) {
    const Key* row = x + k * stride;
    const Index here = static_cast<Index>(k);
#pragma GCC ivdep
    for (int64_t j = 0; j < m; ++j) {
      const Key key = key_of<S, kMax>(row[j]);
      const bool better = beats<Key, kMax>(key, best[j]);
      best[j] = better ? key : best[j];
      place[j] = better ? here : place[j];
    }
  }
  std::copy_n(place, m, places);
}
template <class S, bool kMax>
void places_in_strip(const S* x, int64_t n, int64_t stride, int64_t m, int64_t* places) {
  if constexpr (sizeof(S) == 2)
    if (n <= std::numeric_limits<int16_t>::max()) return places_in_columns<S, kMax, int16_t>(x, n, stride, m, places);
  constexpr int64_t kRows = int64_t{1} << 30;  // more of them than an index can tell apart go in chunks
  places_in_columns<S, kMax, int32_t>(x, std::min(n, kRows), stride, m, places);
  for (int64_t first = kRows; first < n; first += kRows) {
    int64_t more[kBlock];
    places_in_columns<S, kMax, int32_t>(x + first * stride, std::min(n - first, kRows), stride, m, more);
    for (int64_t j = 0; j < m; ++j) {
      using T = compute_t<S>;
      const int64_t place = first + more[j];
      if (beats<T, kMax>(static_cast<T>(x[place * stride + j]), static_cast<T>(x[places[j] * stride + j])))
        places[j] = place;
    }
  }
}

// Many short rows: kRows of them at a time are turned into columns.
inline constexpr int64_t kShort = 64;

template <class S, bool kMax>
void places_in_short_rows(const S* x, int64_t rows, int64_t n, int64_t* places) {
  constexpr int64_t kRows = 64, kSize = sizeof(S);
  using Bits = BitsOf<sizeof(S)>;
  parallel_for(0, (rows + kRows - 1) / kRows, std::max<int64_t>(1, kGrain / (kRows * n)),
               [&](int64_t begin, int64_t end) {
                 alignas(64) S tile[kShort * kRows];
                 for (int64_t u = begin; u < end; ++u) {
                   const int64_t first = u * kRows, m = std::min(kRows, rows - first);
                   transpose_plane<Bits>(reinterpret_cast<char*>(tile), m * kSize,
                                         reinterpret_cast<const char*>(x + first * n), n * kSize, n, m);
                   places_in_strip<S, kMax>(tile, n, m, m, places + first);
                 }
               });
}

template <class S, bool kMax>
void places_along(const Extent& e, const S* x, S* values, int64_t* places) {
  if (e.outer * e.inner == 0) return;
  if (e.inner == 1) {
    if (e.outer == 1) {
      places[0] = place_in_long_row<S, kMax>(x, e.n);
    } else if (e.n <= kShort) {
      places_in_short_rows<S, kMax>(x, e.outer, e.n, places);
    } else {
      parallel_for(0, e.outer, std::max<int64_t>(1, kGrain / e.n), [&](int64_t begin, int64_t end) {
        for (int64_t o = begin; o < end; ++o) places[o] = place_in_row<S, kMax>(x + o * e.n, e.n);
      });
    }
  } else {
    const int64_t strips = (e.inner + kBlock - 1) / kBlock;
    const int64_t grain = std::max<int64_t>(1, kGrain / (e.n * std::min(e.inner, kBlock)));
    parallel_for(0, e.outer * strips, grain, [&](int64_t begin, int64_t end) {
      for (int64_t u = begin; u < end; ++u) {
        const int64_t o = u / strips, first = u % strips * kBlock;
        const int64_t m = std::min(kBlock, e.inner - first);
        places_in_strip<S, kMax>(x + o * e.n * e.inner + first, e.n, e.inner, m, places + o * e.inner + first);
      }
    });
  }
  if (values == nullptr) return;
  parallel_for(0, e.outer * e.inner, kGrain, [&](int64_t begin, int64_t end) {
    if (e.inner == 1) {
      for (int64_t i = begin; i < end; ++i) values[i] = x[i * e.n + places[i]];
      return;
    }
    for (int64_t i = begin; i < end;) {
      const S* p = x + i / e.inner * e.n * e.inner;
      for (int64_t j = i % e.inner; j < e.inner && i < end; ++j, ++i) values[i] = p[places[i] * e.inner + j];
    }
  });
}

template <bool kMax>
void find(const Tensor& given, const Extent& e, void* values, int64_t* places) {
  const Tensor input = clean_flags(given);
  dispatch_dtype(input.dtype(), [&]<class T>() {
    using S = stored_t<T>;  // bytes are compared in vectors, bool is not
    if constexpr (!is_complex_type<S>)
      places_along<S, kMax>(e, static_cast<const S*>(input.data_ptr()), static_cast<S*>(values), places);
  });
}

}  // namespace

void argmax_cpu(const Tensor& input, std::optional<int64_t> dim, bool, const Tensor& out) {
  find<true>(input, extent_of(input, dim), nullptr, static_cast<int64_t*>(out.data_ptr()));
}
void argmin_cpu(const Tensor& input, std::optional<int64_t> dim, bool, const Tensor& out) {
  find<false>(input, extent_of(input, dim), nullptr, static_cast<int64_t*>(out.data_ptr()));
}
void max_dim_cpu(const Tensor& input, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  find<true>(input, Extent(input, dim), values.data_ptr(), static_cast<int64_t*>(indices.data_ptr()));
}
void min_dim_cpu(const Tensor& input, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  find<false>(input, Extent(input, dim), values.data_ptr(), static_cast<int64_t*>(indices.data_ptr()));
}

}  // namespace tapegrad::cpu::TG_ISA
