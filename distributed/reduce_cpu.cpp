// The loops of reduce_bytes(), compiled once per instruction set. Rows are combined from the first to the last, element
// by element, so results depend on the order of the rows only.
// NaN wins in minima and maxima, whichever row it is in, as in tapegrad's own minimum(); with gloo's `a < b ? a : b`
// the result depended on which rank had it.
#include <algorithm>
#include <cstring>

#include "tapegrad/aten/iterate/half_blocks.h"
#include "tapegrad/aten/iterate/stored.h"
#include "tapegrad/distributed/backend.h"

namespace tapegrad::distributed::TG_ISA {

void reduce_rows(void* out, std::span<const void* const> in, int64_t numel, DType dtype, Reduce op);

namespace {

namespace half_blocks = cpu::TG_ISA::half_blocks;

constexpr int64_t kBlock = 512;  // elements that are combined in the first-level cache
static_assert(kBlock % half_blocks::kBlock == 0);

// Integers wrap: the arithmetic is that of unsigned numbers, which are never narrower than int.
template <class T>
using wrapping_t = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

struct Sum {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<wrapping_t<T>>(a) + static_cast<wrapping_t<T>>(b));
    else
      return a + b;
  }
};
struct Product {
  template <class T>
  static T of(T a, T b) {
    if constexpr (std::is_integral_v<T>)
      return static_cast<T>(static_cast<wrapping_t<T>>(a) * static_cast<wrapping_t<T>>(b));
    else if constexpr (is_complex_type<T>)  // the plain formula, as everywhere in tapegrad: no branch for infinities
      return {a.real() * b.real() - a.imag() * b.imag(), a.real() * b.imag() + a.imag() * b.real()};
    else
      return a * b;
  }
};
struct Min {
  template <class T>
  static T of(T a, T b) {
    return (a < b) | (a != a) ? a : b;
  }
};
struct Max {
  template <class T>
  static T of(T a, T b) {
    return (a > b) | (a != a) ? a : b;
  }
};
struct And {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct Or {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct Xor {
  template <class T>
  static T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};

// Any byte but 0 is true.
template <class F>
struct OfTruths {
  static uint8_t of(uint8_t a, uint8_t b) { return F::of(static_cast<uint8_t>(a != 0), static_cast<uint8_t>(b != 0)); }
};

template <class F, class T>
void combine(T* out, const T* a, const T* b, int64_t n) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) out[i] = F::of(a[i], b[i]);
}

template <class T>
const T* row(std::span<const void* const> in, size_t r) {
  return static_cast<const T*>(in[r]);
}

template <class F, class T>
void reduce_as(T* out, std::span<const void* const> in, int64_t numel) {
  if (in.size() == 2) return combine<F, T>(out, row<T>(in, 0), row<T>(in, 1), numel);
  // `out` may be a later row: sums grow in a block of their own.
  alignas(64) T block[kBlock];
  for (int64_t first = 0; first < numel; first += kBlock) {
    const int64_t n = std::min(kBlock, numel - first);
    combine<F, T>(block, row<T>(in, 0) + first, row<T>(in, 1) + first, n);
    for (size_t r = 2; r < in.size(); ++r) combine<F, T>(block, block, row<T>(in, r) + first, n);
    std::memcpy(out + first, block, static_cast<size_t>(n) * sizeof(T));
  }
}

// 16-bit numbers: in float from the first row to the last, then rounded once.
template <class F, class S>
void reduce_sixteen(S* out, std::span<const void* const> in, int64_t numel) {
  alignas(64) float block[kBlock], next[half_blocks::kBlock];
  alignas(64) S end[half_blocks::kBlock] = {};
  auto load = [&](size_t r, int64_t at, float* to) {
    const S* from = row<S>(in, r) + at;
    if (at + half_blocks::kBlock > numel) {
      std::memcpy(end, from, static_cast<size_t>(numel - at) * sizeof(S));
      from = end;
    }
    half_blocks::load(from, to);
  };
  for (int64_t first = 0; first < numel; first += kBlock) {
    const int64_t n = std::min(kBlock, numel - first);
    for (int64_t i = 0; i < n; i += half_blocks::kBlock) load(0, first + i, block + i);
    for (size_t r = 1; r < in.size(); ++r) {
      for (int64_t i = 0; i < n; i += half_blocks::kBlock) {
        load(r, first + i, next);
        for (int j = 0; j < half_blocks::kBlock; ++j) block[i + j] = F::of(block[i + j], next[j]);
      }
    }
    for (int64_t i = 0; i < n; i += half_blocks::kBlock) {
      if (n - i >= half_blocks::kBlock) {
        half_blocks::store(block + i, out + first + i);
      } else {
        half_blocks::store(block + i, end);
        std::memcpy(out + first + i, end, static_cast<size_t>(n - i) * sizeof(S));
      }
    }
  }
}

template <class F, class T>
void reduce_one(void* out, std::span<const void* const> in, int64_t numel) {
  if (in.size() == 1) {
    if (out != in[0]) std::memmove(out, in[0], static_cast<size_t>(numel) * sizeof(T));
  } else if constexpr (is_half_type<T>) {
    reduce_sixteen<F, T>(static_cast<T*>(out), in, numel);
  } else {
    reduce_as<F, T>(static_cast<T*>(out), in, numel);
  }
}

void reduce_bool(void* out, std::span<const void* const> in, int64_t numel, Reduce op) {
  switch (op) {
    case Reduce::Sum:
    case Reduce::Max:
    case Reduce::BitOr:
      return reduce_one<OfTruths<Or>, uint8_t>(out, in, numel);
    case Reduce::Product:
    case Reduce::Min:
    case Reduce::BitAnd:
      return reduce_one<OfTruths<And>, uint8_t>(out, in, numel);
    case Reduce::BitXor:
      return reduce_one<OfTruths<Xor>, uint8_t>(out, in, numel);
  }
}

}  // namespace

void reduce_rows(void* out, std::span<const void* const> in, int64_t numel, DType dtype, Reduce op) {
  dispatch_stored(dtype, [&]<class T>() {
    if constexpr (std::is_same_v<T, bool>) return reduce_bool(out, in, numel, op);
    if constexpr (!is_narrow_type<T>) {
      switch (op) {  // what makes no sense was refused before
        case Reduce::Sum:
          return reduce_one<Sum, T>(out, in, numel);
        case Reduce::Product:
          return reduce_one<Product, T>(out, in, numel);
        case Reduce::Min:
          if constexpr (!is_complex_type<T>) return reduce_one<Min, T>(out, in, numel);
          return;
        case Reduce::Max:
          if constexpr (!is_complex_type<T>) return reduce_one<Max, T>(out, in, numel);
          return;
        case Reduce::BitAnd:
          if constexpr (std::is_integral_v<T>) return reduce_one<And, T>(out, in, numel);
          return;
        case Reduce::BitOr:
          if constexpr (std::is_integral_v<T>) return reduce_one<Or, T>(out, in, numel);
          return;
        case Reduce::BitXor:
          if constexpr (std::is_integral_v<T>) return reduce_one<Xor, T>(out, in, numel);
          return;
      }
    }
  });
}

}  // namespace tapegrad::distributed::TG_ISA
