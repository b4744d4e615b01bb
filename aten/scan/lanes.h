// How a scan along one dimension reads and writes a contiguous tensor, seen as [outer, n, inner]. A line is one run of
// n elements along the dimension; lines are independent of each other, so many of them are scanned at once, one per
// lane. Work goes in tiles of [steps][lanes] in the compute type: columns (inner > 1) are copied into one, whole rows
// (inner = 1) are transposed. Compiled per instruction set.
#pragma once

#include <algorithm>

#include "tapegrad/aten/copy/tile.h"
#include "tapegrad/aten/iterate/along_dim.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/iterate/blocks/float_vector.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {

inline constexpr int64_t kLanes = half_blocks::kBlock;  // what the loops over lanes work on at a time
inline constexpr int64_t kMaxLanes = 64;                // of a tile
inline constexpr int64_t kSteps = 64;                   // of a tile

// Lines that are scanned together.
struct LaneGroup {
  int64_t start[kMaxLanes];  // of each line, in elements
  int64_t width = 0;         // how many lines
  int64_t lane_stride = 0;   // between lines; 0: they lie anyhow
  int64_t step = 0;          // between elements of a line

  int64_t lanes() const { return width == 1 ? 1 : (width + kLanes - 1) / kLanes * kLanes; }
};

template <class T>
using TileBits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;

// Whole rows go through the transposition of 4 and 8 byte tiles, those that are converted or do not fill a group by
// way of a buffer of rows in the compute type.
template <class B, class T>
inline bool transposes(const LaneGroup& g) {
  constexpr bool kFits = sizeof(B) == 4 || sizeof(B) == 8;
  return kFits && g.step == 1 && g.lane_stride > 1 && g.width <= kLanes;
}
template <class B, class T>
inline bool direct_rows(const LaneGroup& g, int64_t steps) {
  return std::is_same_v<T, B> && g.width == kLanes && steps % kLanes == 0;
}
template <class B>
inline void turn_tile(B* to, int64_t to_stride, const B* from, int64_t from_stride, int64_t rows, int64_t columns) {
  constexpr int64_t kSize = sizeof(B);
  if constexpr (kSize == 4 || kSize == 8)
    transpose_plane<TileBits<B>>(reinterpret_cast<char*>(to), to_stride * kSize, reinterpret_cast<const char*>(from),
                                 from_stride * kSize, rows, columns);
}

// Whole short rows, which lie side by side: they are converted together.
inline bool whole_rows(const LaneGroup& g, int64_t steps) { return g.lane_stride == steps; }

// The same of few columns.
inline bool whole_columns(const LaneGroup& g) { return g.lane_stride == 1 && g.step == g.width && g.width < kLanes; }

// Lines of 16-bit numbers are transposed as 32-bit ones, in pairs of neighbours; a row of pairs is two rows of a tile.
template <class T>
inline constexpr bool kInPairs = half_blocks::is_deinterleaved<T>;
inline void split_pairs(const BFloat16* pairs, float* rows) { half_blocks::load_deinterleaved(pairs, rows); }
inline void join_pairs(const float* rows, BFloat16* pairs) { half_blocks::store_interleaved(rows, pairs, true); }
#if defined(__AVX512F__)
template <>
inline constexpr bool kInPairs<Half> = true;
inline void split_pairs(const Half* pairs, float* rows) {
  const __m512i both = _mm512_loadu_si512(pairs);
  for (unsigned i = 0; i < 2; ++i) {
    const __m256i bits =
        _mm512_maskz_cvtepi32_epi16(half_blocks::kAll, _mm512_maskz_srli_epi32(half_blocks::kAll, both, 16 * i));
    _mm512_storeu_ps(rows + i * kLanes, _mm512_maskz_cvtph_ps(half_blocks::kAll, bits));
  }
}
inline void join_pairs(const float* rows, Half* pairs) {
  auto words = [](const float* row) {
    const __m256i bits = _mm512_maskz_cvtps_ph(half_blocks::kAll, _mm512_loadu_ps(row), _MM_FROUND_TO_NEAREST_INT);
    return _mm512_maskz_cvtepu16_epi32(half_blocks::kAll, bits);
  };
  const __m512i high = _mm512_maskz_slli_epi32(half_blocks::kAll, words(rows + kLanes), 16);
  _mm512_storeu_si512(pairs, _mm512_or_si512(words(rows), high));
}
#endif
template <class B, class T>
inline bool pairs_fit(const LaneGroup& g, int64_t steps) {
  return std::is_same_v<B, float> && kInPairs<T> && g.width == kLanes && steps % (2 * kLanes) == 0;
}

// tile[i][j] = element `first + i` of line j. Not inlined: most of the code of a scan, and a call per tile costs
// nothing.
template <class B, class T>
[[gnu::noinline, gnu::noclone]] void read_tile(B* tile, const T* x, const LaneGroup& g, int64_t first, int64_t steps) {
  const int64_t lanes = g.lanes();
  if (g.step == 1 && g.width == 1) {
    blocks::copy(steps, tile, x + g.start[0] + first);
  } else if (whole_columns(g)) {
    alignas(64) B rows[kLanes * kSteps];
    blocks::copy(g.width * steps, static_cast<B*>(rows), x + g.start[0] + first * g.step);
    for (int64_t i = 0; i < steps; ++i) std::copy_n(rows + i * g.width, g.width, tile + i * lanes);
  } else if (g.lane_stride == 1) {
    for (int64_t i = 0; i < steps; ++i) blocks::copy(g.width, tile + i * lanes, x + g.start[0] + (first + i) * g.step);
  } else if (transposes<B, T>(g)) {
    if constexpr (std::is_same_v<T, B>)
      if (direct_rows<B, T>(g, steps))
        return turn_tile(tile, lanes, x + g.start[0] + first, g.lane_stride, steps, kLanes);
    if constexpr (kInPairs<T>)
      if (pairs_fit<B, T>(g, steps)) {
        alignas(64) T pairs[kLanes * kSteps];
        transpose_plane<uint32_t>(reinterpret_cast<char*>(pairs), kLanes * 4,
                                  reinterpret_cast<const char*>(x + g.start[0] + first), g.lane_stride * 2, steps / 2,
                                  kLanes);
        for (int64_t i = 0; i < steps; i += 2) split_pairs(pairs + i * kLanes, tile + i * kLanes);
        return;
      }
    alignas(64) B rows[kLanes * kSteps];
    if (whole_rows(g, steps)) {
      blocks::copy(g.width * steps, static_cast<B*>(rows), x + g.start[0]);
      std::fill(rows + g.width * steps, rows + kLanes * steps, B(0));
      return turn_tile(tile, lanes, static_cast<const B*>(rows), steps, steps, kLanes);
    }
    const int64_t whole = (steps + kLanes - 1) / kLanes * kLanes;
    for (int64_t j = 0; j < kLanes; ++j) {
      const int64_t n = j < g.width ? steps : 0;
      if (n > 0) blocks::copy(n, rows + j * kSteps, x + g.start[j] + first);
      for (int64_t i = n; i < whole; ++i) rows[j * kSteps + i] = B(0);
    }
    turn_tile(tile, lanes, static_cast<const B*>(rows), kSteps, whole, kLanes);
  } else {
    for (int64_t j = 0; j < g.width; ++j)
      for (int64_t i = 0; i < steps; ++i) tile[i * lanes + j] = static_cast<B>(x[g.start[j] + (first + i) * g.step]);
  }
}

template <class B, class T>
[[gnu::noinline, gnu::noclone]] void write_tile(const B* tile, T* x, const LaneGroup& g, int64_t first, int64_t steps) {
  const int64_t lanes = g.lanes();
  if (g.step == 1 && g.width == 1) {
    blocks::copy(steps, x + g.start[0] + first, tile);
  } else if (whole_columns(g)) {
    alignas(64) B rows[kLanes * kSteps];
    for (int64_t i = 0; i < steps; ++i) std::copy_n(tile + i * lanes, g.width, rows + i * g.width);
    blocks::copy(g.width * steps, x + g.start[0] + first * g.step, static_cast<const B*>(rows));
  } else if (g.lane_stride == 1) {
    for (int64_t i = 0; i < steps; ++i) blocks::copy(g.width, x + g.start[0] + (first + i) * g.step, tile + i * lanes);
  } else if (transposes<B, T>(g)) {
    if constexpr (std::is_same_v<T, B>)
      if (direct_rows<B, T>(g, steps))
        return turn_tile(x + g.start[0] + first, g.lane_stride, tile, lanes, kLanes, steps);
    if constexpr (kInPairs<T>)
      if (pairs_fit<B, T>(g, steps)) {
        alignas(64) T pairs[kLanes * kSteps];
        for (int64_t i = 0; i < steps; i += 2) join_pairs(tile + i * kLanes, pairs + i * kLanes);
        return transpose_plane<uint32_t>(reinterpret_cast<char*>(x + g.start[0] + first), g.lane_stride * 2,
                                         reinterpret_cast<const char*>(pairs), kLanes * 4, kLanes, steps / 2);
      }
    alignas(64) B rows[kLanes * kSteps];
    if (whole_rows(g, steps)) {
      turn_tile(static_cast<B*>(rows), steps, tile, lanes, kLanes, steps);
      return blocks::copy(g.width * steps, x + g.start[0], static_cast<const B*>(rows));
    }
    const int64_t whole = (steps + kLanes - 1) / kLanes * kLanes;
    turn_tile(static_cast<B*>(rows), kSteps, tile, lanes, kLanes, whole);
    for (int64_t j = 0; j < g.width; ++j) blocks::copy(steps, x + g.start[j] + first, rows + j * kSteps);
  } else {
    for (int64_t j = 0; j < g.width; ++j)
      for (int64_t i = 0; i < steps; ++i) x[g.start[j] + (first + i) * g.step] = T(tile[i * lanes + j]);
  }
}

// A tile that is not converted is moved as bits: types of one size share the code.
template <class B, class T, class F>
inline void as_moved(F&& f) {
  if constexpr (!std::is_same_v<B, T> || sizeof(T) > 8)
    f.template operator()<B, T>();
  else if constexpr (sizeof(T) >= 4)
    f.template operator()<TileBits<T>, TileBits<T>>();
  else if constexpr (sizeof(T) == 2)
    f.template operator()<uint16_t, uint16_t>();
  else
    f.template operator()<uint8_t, uint8_t>();
}
template <class B, class T>
inline void load_tile(B* tile, const T* x, const LaneGroup& g, int64_t first, int64_t steps) {
  as_moved<B, T>([&]<class To, class From>() {
    read_tile(reinterpret_cast<To*>(tile), reinterpret_cast<const From*>(x), g, first, steps);
  });
}
template <class B, class T>
inline void store_tile(const B* tile, T* x, const LaneGroup& g, int64_t first, int64_t steps) {
  as_moved<B, T>([&]<class From, class To>() {
    write_tile(reinterpret_cast<const From*>(tile), reinterpret_cast<To*>(x), g, first, steps);
  });
}

// Lines of at least this length, where there are few of them, can be cut into lanes by operators that allow it.
inline constexpr int64_t kChunk = kLanes * kSteps;
inline bool few_and_long(const Extent& e) { return e.inner == 1 && e.outer < kLanes && e.n >= kChunk; }

// Calls f(context, group) for groups that make up all lines; `one_by_one`: of a single line each.
[[gnu::noinline]] inline void each_group(const Extent& e, bool one_by_one, void (*f)(const void*, const LaneGroup&),
                                         const void* context) {
  constexpr int64_t kGrain = 16384;  // elements
  if (e.outer == 0 || e.n == 0 || e.inner == 0) return;
  const bool columns = e.inner >= kLanes || (e.inner > 1 && e.outer == 1);
  const int64_t lines = e.outer * e.inner;
  const int64_t most = one_by_one ? 1 : columns ? std::min(kMaxLanes, e.inner) : std::min(kLanes, lines);
  const int64_t strips = columns ? (e.inner + most - 1) / most : (lines + most - 1) / most;
  const int64_t groups = columns ? e.outer * strips : strips;
  parallel_for(0, groups, std::max<int64_t>(1, kGrain / (e.n * most)), [&](int64_t begin, int64_t end) {
    LaneGroup g;
    g.step = e.inner;
    g.lane_stride = columns ? 1 : e.inner == 1 ? e.n : 0;
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = columns ? k % strips * most : k * most;
      g.width = std::min(most, (columns ? e.inner : lines) - first);
      for (int64_t j = 0; j < g.width; ++j)
        g.start[j] = columns ? k / strips * e.n * e.inner + first + j
                             : (first + j) / e.inner * e.n * e.inner + (first + j) % e.inner;
      f(context, g);
    }
  });
}
template <class F>
void each_group(const Extent& e, bool one_by_one, const F& f) {
  each_group(e, one_by_one, [](const void* c, const LaneGroup& g) { (*static_cast<const F*>(c))(g); }, &f);
}

// The lines that one chunk of a long line is cut into.
inline LaneGroup chunk_group(int64_t start) {
  LaneGroup g;
  g.width = kLanes;
  g.lane_stride = kSteps;
  g.step = 1;
  for (int64_t j = 0; j < kLanes; ++j) g.start[j] = start + j * kSteps;
  return g;
}

// kLanes values of C in registers, as parts of a vector at most: of wider ones g++ 12 compares one number at a time.
template <class C>
struct Pack {
  static constexpr int kPerPart = static_cast<int>(std::min<size_t>(sizeof(Vector) / sizeof(C), kLanes));
  static constexpr int kParts = static_cast<int>(kLanes) / kPerPart;
  typedef C Part __attribute__((vector_size(kPerPart * sizeof(C))));
  Part part[kParts];
};

}  // namespace tapegrad::cpu::TG_ISA
