// The loops of reduce_bytes(), compiled once per instruction set. Rows are combined from the first to the last, element
// by element, so results depend on the order of the rows only.
// NaN wins in minima and maxima, whichever row it is in, as in tapegrad's own minimum(); with gloo's `a < b ? a : b`
// the result depended on which rank had it.
#include <algorithm>
#include <cstring>

#include "tapegrad/aten/iterate/blocks/half_blocks.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/typed.h"
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

// out[i] = F of a[i] and b[i], for n elements of T; `out` may be `a`.
using Combine = void (*)(void* out, const void* a, const void* b, int64_t n);
template <class F, class T>
void combine(void* out, const void* a, const void* b, int64_t n) {
  auto* to = static_cast<T*>(out);
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = F::of(x[i], y[i]);
}

const char* row(std::span<const void* const> in, size_t r) { return static_cast<const char*>(in[r]); }

void reduce_elements(void* result, std::span<const void* const> in, int64_t numel, int64_t item, Combine f) {
  if (in.size() == 2) return f(result, in[0], in[1], numel);
  // `out` may be a later row: sums grow in a block of their own.
  alignas(64) char block[kBlock * sizeof(complex128_t)];
  for (int64_t first = 0; first < numel; first += kBlock) {
    const int64_t n = std::min(kBlock, numel - first), at = first * item;
    f(block, row(in, 0) + at, row(in, 1) + at, n);
    for (size_t r = 2; r < in.size(); ++r) f(block, block, row(in, r) + at, n);
    std::memcpy(static_cast<char*>(result) + at, block, static_cast<size_t>(n * item));
  }
}

// 16-bit numbers: in float from the first row to the last, then rounded once.
template <class S>
void reduce_sixteen(S* out, std::span<const void* const> in, int64_t numel, Combine f) {
  alignas(64) float block[kBlock], next[kBlock];
  alignas(64) S end[half_blocks::kBlock] = {};
  for (int64_t first = 0; first < numel; first += kBlock) {
    const int64_t n = std::min(kBlock, numel - first);
    for (size_t r = 0; r < in.size(); ++r) {
      const S* from = static_cast<const S*>(in[r]) + first;
      float* to = r == 0 ? block : next;
      int64_t i = 0;
      for (; i + half_blocks::kBlock <= n; i += half_blocks::kBlock) half_blocks::load(from + i, to + i);
      if (i < n) {
        std::memcpy(end, from + i, static_cast<size_t>(n - i) * sizeof(S));
        half_blocks::load(end, to + i);
      }
      if (r > 0) f(block, block, next, n);
    }
    int64_t i = 0;
    for (; i + half_blocks::kBlock <= n; i += half_blocks::kBlock) half_blocks::store(block + i, out + first + i);
    if (i < n) {
      half_blocks::store(block + i, end);
      std::memcpy(out + first + i, end, static_cast<size_t>(n - i) * sizeof(S));
    }
  }
}

Combine combine_truths(Reduce op) {
  switch (op) {
    case Reduce::Sum:
    case Reduce::Max:
    case Reduce::BitOr:
      return &combine<OfTruths<Or>, uint8_t>;
    case Reduce::Product:
    case Reduce::Min:
    case Reduce::BitAnd:
      return &combine<OfTruths<And>, uint8_t>;
    case Reduce::BitXor:
      return &combine<OfTruths<Xor>, uint8_t>;
  }
  return nullptr;
}

// What makes no sense was refused before.
template <class T>
Combine combine_of(Reduce op) {
  switch (op) {
    case Reduce::Sum:
      return &combine<Sum, unsigned_t<T>>;
    case Reduce::Product:
      return &combine<Product, unsigned_t<T>>;
    case Reduce::Min:
      if constexpr (!is_complex_type<T>) return &combine<Min, T>;
      break;
    case Reduce::Max:
      if constexpr (!is_complex_type<T>) return &combine<Max, T>;
      break;
    case Reduce::BitAnd:
      if constexpr (std::is_integral_v<T>) return &combine<And, unsigned_t<T>>;
      break;
    case Reduce::BitOr:
      if constexpr (std::is_integral_v<T>) return &combine<Or, unsigned_t<T>>;
      break;
    case Reduce::BitXor:
      if constexpr (std::is_integral_v<T>) return &combine<Xor, unsigned_t<T>>;
      break;
  }
  return nullptr;
}

}  // namespace

void reduce_rows(void* out, std::span<const void* const> in, int64_t numel, DType dtype, Reduce op) {
  const auto item = static_cast<int64_t>(element_size(dtype));
  if (in.size() == 1) {
    if (out != in[0]) std::memmove(out, in[0], static_cast<size_t>(numel * item));
    return;
  }
  dispatch_stored(dtype, [&]<class T>() {
    if constexpr (is_half_type<T>)
      reduce_sixteen<T>(static_cast<T*>(out), in, numel, combine_of<float>(op));
    else if constexpr (std::is_same_v<T, bool>)
      reduce_elements(out, in, numel, item, combine_truths(op));
    else if constexpr (!is_narrow_type<T>)
      reduce_elements(out, in, numel, item, combine_of<T>(op));
  });
}

}  // namespace tapegrad::distributed::TG_ISA
