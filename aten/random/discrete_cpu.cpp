// Integers, coin tosses, permutations and dropout.
#include <algorithm>
#include <bit>
#include <memory>

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/random/fill.h"
#include "tapegrad/aten/random/ranges.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {

using OptDType = std::optional<DType>;
using OptDevice = std::optional<Device>;
using OptFormat = std::optional<MemoryFormat>;
using Gen = const GeneratorPtr&;
using random::exact_range;
using random::Integers;
using random::integers_from;
using random::integers_in;

namespace {

void fill_integers(const Tensor& t, Integers drawn, PhiloxState state) {
  Tensor out = t;
  const bool direct = t.is_contiguous() && !is_half(t.dtype()) && !t.is_complex();
  if (!direct) out = empty_tensor(t.sizes(), t.is_complex() || is_half(t.dtype()) ? DType::float32 : t.dtype());
  const uint64_t base = static_cast<uint64_t>(drawn.low), range = drawn.range;
  dispatch_dtype(bits_dtype(out.dtype()), [&]<class T>() {
    if constexpr (!is_half_type<T> && !is_complex_type<T>) {
      T* p = static_cast<T*>(out.data_ptr());
      const bool narrow = range != 0 && range <= UINT32_MAX;
      for_words<2>(out.numel(), state, [&](int64_t first, int64_t many, const uint32_t* words) {
        T* __restrict to = p + first;
        if (narrow) {
          const uint32_t r = static_cast<uint32_t>(range);
          for (int64_t i = 0; i < many; ++i)
            to[i] = convert_value<T>(static_cast<int64_t>(base + philox_bounded32(word64(words, i), r)));
        } else {
          for (int64_t i = 0; i < many; ++i)
            to[i] = convert_value<T>(static_cast<int64_t>(base + philox_bounded(word64(words, i), range)));
        }
      });
    }
  });
  if (!direct) copy_cpu(t, out, false);
}

// One byte per element: 1 with probability p.
void toss(bool* to, int64_t n, double p, PhiloxState state) {
  const float limit = static_cast<float>(p);
  uint8_t* bytes = reinterpret_cast<uint8_t*>(to);
  for_words<1>(n, state, [&](int64_t first, int64_t many, const uint32_t* words) {
    uint8_t* __restrict b = bytes + first;
    for (int64_t i = 0; i < many; ++i) b[i] = philox_uniform(words[i]) < limit;
  });
}

void toss_into(const Tensor& self, double p, PhiloxState state) {
  Tensor tosses = self;
  const bool direct = self.dtype() == DType::bool_ && self.is_contiguous();
  if (!direct) tosses = empty_tensor(self.sizes(), DType::bool_);
  toss(static_cast<bool*>(tosses.data_ptr()), tosses.numel(), p, state);
  if (!direct) copy_cpu(self, tosses, false);
}

// Probabilities per element: checked, then compared with 64-bit draws.
void toss_each(const Tensor& probabilities, const Tensor& out, PhiloxState state) {
  const Tensor p = contiguous_as(probabilities, out.sizes(), probabilities.dtype(), out.device());
  Tensor tosses = empty_tensor(out.sizes(), DType::bool_);
  bool* to = static_cast<bool*>(tosses.data_ptr());
  dispatch_dtype(p.dtype(), [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      const T* limit = static_cast<const T*>(p.data_ptr());
      auto value = [=](int64_t i) { return static_cast<double>(static_cast<compute_t<T>>(limit[i])); };
      int32_t fine = 1;
      for (int64_t i = 0; i < p.numel(); ++i) fine &= value(i) >= 0 && value(i) <= 1;
      for (int64_t i = 0; !fine && i < p.numel(); ++i)
        TG_CHECK(value(i) >= 0 && value(i) <= 1, Runtime,
                 "bernoulli: probabilities lie in [0, 1]: got {} at element {}", value(i), i);
      for_words<2>(out.numel(), state, [&](int64_t first, int64_t many, const uint32_t* words) {
        alignas(64) double bound[kWordBuffer / 2];
        for (int64_t i = 0; i < many; ++i) bound[i] = value(first + i);
        for (int64_t i = 0; i < many; ++i) to[first + i] = philox_uniform(word64(words, i)) < bound[i];
      });
    }
  });
  copy_cpu(out, tosses, false);
}

}  // namespace

void randint_cpu(int64_t low, int64_t high, IntSpan, Gen, OptDType, OptDevice, const PhiloxState& state,
                 const Tensor& out) {
  fill_integers(out, integers_in(low, high, out.dtype()), state);
}
void randint_high_cpu(int64_t high, IntSpan, Gen, OptDType, OptDevice, const PhiloxState& state, const Tensor& out) {
  fill_integers(out, integers_in(0, high, out.dtype()), state);
}
void randint_like_cpu(const Tensor&, int64_t low, int64_t high, Gen, OptDType, OptDevice, OptFormat,
                      const PhiloxState& state, const Tensor& out) {
  fill_integers(out, integers_in(low, high, out.dtype()), state);
}
void randint_like_high_cpu(const Tensor&, int64_t high, Gen, OptDType, OptDevice, OptFormat, const PhiloxState& state,
                           const Tensor& out) {
  fill_integers(out, integers_in(0, high, out.dtype()), state);
}
void random_all_cpu(const Tensor& self, Gen, const PhiloxState& state) {
  fill_integers(self, {0, exact_range(self.dtype())}, state);
}
void random_to_cpu(const Tensor& self, int64_t to, Gen, const PhiloxState& state) {
  fill_integers(self, integers_in(0, to, self.dtype()), state);
}
void random_from_cpu(const Tensor& self, int64_t from, std::optional<int64_t> to, Gen, const PhiloxState& state) {
  fill_integers(self, to ? integers_in(from, *to, self.dtype()) : integers_from(from, self.dtype()), state);
}

void bernoulli_cpu(const Tensor& input, Gen, const PhiloxState& state, const Tensor& out) {
  toss_each(input, out, state);
}
void bernoulli_p_cpu(const Tensor&, double p, Gen, const PhiloxState& state, const Tensor& out) {
  toss_into(out, p, state);
}
void bernoulli_float_fill_cpu(const Tensor& self, double p, Gen, const PhiloxState& state) {
  toss_into(self, p, state);
}
void bernoulli_tensor_fill_cpu(const Tensor& self, const Tensor& p, Gen, const PhiloxState& state) {
  toss_each(p, self, state);
}

namespace {

// Moves a[i] before larger preceding elements; returns whether there were any.
TG_INLINE bool insert(uint64_t* a, int64_t i) {
  const uint64_t v = a[i];
  if (TG_LIKELY(a[i - 1] <= v)) return false;
  for (; i > 0 && a[i - 1] > v; --i) a[i] = a[i - 1];
  a[i] = v;
  return true;
}

// Each number goes where its digit counts up to. The places of four are read before the first of them is counted up,
// which might be one of them for all that processors know.
template <class Count, class Digit>
TG_INLINE void deal_out(const uint64_t* from, int64_t n, uint64_t* to, Count* at, Digit&& digit) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    const uint64_t x = from[i], y = from[i + 1], z = from[i + 2], w = from[i + 3];
    Count *p = at + digit(x), *q = at + digit(y), *r = at + digit(z), *s = at + digit(w);
    to[(*p)++] = x;
    to[(*q)++] = y;
    to[(*r)++] = z;
    to[(*s)++] = w;
  }
  for (; i < n; ++i) to[at[digit(from[i])]++] = from[i];
}

// Both sort n numbers of which the `bits` lowest stand in order already. Least significant digit first, and of the bits
// above only as many as leave few numbers undecided: about one in 2^7 then has to move past an equal one before it.
constexpr int kBitsBeyond = 6;
constexpr int64_t kFewDraws = 1 << 15;  // two digits are enough for these

void sort_few_draws(uint64_t* a, uint64_t* b, int64_t n, int bits, int random_bits) {
  constexpr int kMostDigits = 1 << (std::bit_width(static_cast<uint64_t>(kFewDraws - 1)) + kBitsBeyond + 1) / 2;
  const int digit = (std::min(random_bits, bits + kBitsBeyond) + 1) / 2, shift = bits + random_bits - 2 * digit;
  const int64_t digits = int64_t{1} << digit;
  auto low = [=, mask = static_cast<uint64_t>(digits - 1)](uint64_t v) { return v >> shift & mask; };
  auto high = [=](uint64_t v) { return v >> shift >> digit; };
  uint32_t lows[kMostDigits], highs[kMostDigits];
  std::fill_n(lows, digits, 0U);
  std::fill_n(highs, digits, 0U);
  for (int64_t i = 0; i < n; ++i) {
    ++lows[low(a[i])];
    ++highs[high(a[i])];
  }
  uint32_t at_low = 0, at_high = 0;
  for (int64_t d = 0; d < digits; ++d) {
    at_low += std::exchange(lows[d], at_low);
    at_high += std::exchange(highs[d], at_high);
  }
  deal_out(a, n, b, lows, low);
  deal_out(b, n, a, highs, high);
  for (int64_t i = 1; i < n; ++i) insert(a, i);
}

// In parts of them side by side.
void sort_draws(uint64_t*& a, uint64_t*& b, int64_t n, int bits, int random_bits, int64_t parts) {
  const int looked_at = std::min(random_bits, bits + kBitsBeyond), passes = (looked_at + 11) / 12;
  const int digit = (looked_at + passes - 1) / passes;
  const int64_t digits = int64_t{1} << digit;
  const uint64_t mask = static_cast<uint64_t>(digits - 1);
  const std::unique_ptr<int64_t[]> counts(new int64_t[static_cast<size_t>(digits * parts)]);
  for (int shift = bits + random_bits - looked_at, p = 0; p < passes; ++p, shift += digit) {
    for_parts(parts, n, [&](int64_t part, int64_t begin, int64_t end) {
      int64_t* count = counts.get() + part * digits;
      std::fill_n(count, digits, 0);
      serial_for(begin, end, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) ++count[a[i] >> shift & mask];
      });
    });
    int64_t at = 0;
    for (int64_t d = 0; d < digits; ++d)
      for (int64_t part = 0; part < parts; ++part) at += std::exchange(counts[part * digits + d], at);
    for_parts(parts, n, [&](int64_t part, int64_t begin, int64_t end) {
      serial_for(begin, end, [&](int64_t first, int64_t last) {
        deal_out(a + first, last - first, b, counts.get() + part * digits,
                 [=](uint64_t v) { return v >> shift & mask; });
      });
    });
    std::swap(a, b);
  }
  for_parts(parts, n, [&](int64_t, int64_t begin, int64_t end) {
    serial_for(begin + 1, end, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) insert(a + begin, i - begin);
    });
  });
  for (int64_t part = 1; part < parts; ++part)  // and what belongs to the end of the part before
    for (int64_t i = n * part / parts; i < n && insert(a, i);) ++i;
}

// Each number gets random bits in front and all are sorted: the order that the bits give, which a device can find,
// too.
void permute(uint64_t*& a, uint64_t*& b, int64_t n, int index_bits, int64_t parts, PhiloxState state) {
  const int random_bits = std::min(64 - index_bits, 40);
  for_words<2>(n, state, [&](int64_t start, int64_t many, const uint32_t* words) {
    for (int64_t i = 0; i < many; ++i) {
      const uint64_t draw = word64(words, i) >> (64 - random_bits);
      a[start + i] = draw << index_bits | static_cast<uint64_t>(start + i);
    }
  });
  if (n <= 64)
    std::sort(a, a + n);
  else if (n < kFewDraws)
    sort_few_draws(a, b, n, index_bits, random_bits);
  else
    sort_draws(a, b, n, index_bits, random_bits, parts);
}

}  // namespace

void randperm_cpu(int64_t n, Gen, OptDType, OptDevice, const PhiloxState& state, const Tensor& out) {
  if (n == 0) return;
  const int index_bits = std::bit_width(static_cast<uint64_t>(n - 1));
  const uint64_t mask = index_bits == 0 ? 0 : ~uint64_t{0} >> (64 - index_bits);
  const int64_t parts = std::clamp<int64_t>(n / (kFewDraws / 2), 1, get_num_threads());
  Tensor first = empty_tensor({n}, DType::int64), second = empty_tensor({n}, DType::int64);
  uint64_t* a = static_cast<uint64_t*>(first.data_ptr());
  uint64_t* b = static_cast<uint64_t*>(second.data_ptr());
  permute(a, b, n, index_bits, parts, state);
  dispatch_dtype(out.dtype(), [&]<class T>() {
    T* to = static_cast<T*>(out.data_ptr());
    for_parts(parts, n, [&](int64_t, int64_t begin, int64_t end) {
      serial_for(begin, end, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) to[i] = convert_value<T>(static_cast<int64_t>(a[i] & mask));
      });
    });
  });
}

void dropout_cpu(const Tensor& input, double p, Gen, const PhiloxState& state, const Tensor& out, const Tensor& mask) {
  if (out.numel() == 0) return;
  const float keep = static_cast<float>(1 - p);
  uint8_t* kept = static_cast<uint8_t*>(mask.data_ptr());
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      using C = compute_t<T>;
      const T* from = static_cast<const T*>(input.data_ptr());
      T* to = static_cast<T*>(out.data_ptr());
      double scale_value = 1 / (1 - p);
      for_words<1>(out.numel(), state, [&](int64_t first, int64_t many, const uint32_t* words) {
        const T* __restrict f = from + first;
        T* __restrict t = to + first;
        uint8_t* __restrict k = kept + first;
        for (int64_t i = 0; i < many; ++i) k[i] = philox_uniform(words[i]) < keep;
        if constexpr (is_complex_type<T>) {
          const typename T::value_type scale = static_cast<typename T::value_type>(scale_value);
          for (int64_t i = 0; i < many; ++i) t[i] = philox_uniform(words[i]) < keep ? f[i] * scale : T(0);
        } else {
          const C scale = static_cast<C>(scale_value);
          auto scaled = [=](C x, uint32_t word) { return philox_uniform(word) < keep ? x * scale : C(0); };
          blocks::map(many, t, scaled, f, words);
        }
      });
    }
  });
}

void masked_scale_cpu(const Tensor& input, const Tensor& mask, double scale, const Tensor& out) {
  const uint8_t* kept = static_cast<const uint8_t*>(mask.data_ptr());
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (!std::is_integral_v<T>) {
      const T* from = static_cast<const T*>(input.data_ptr());
      T* to = static_cast<T*>(out.data_ptr());
      parallel_for(0, out.numel(), 16384, [&](int64_t begin, int64_t end) {
        if constexpr (is_complex_type<T>) {
          const typename T::value_type s = static_cast<typename T::value_type>(scale);
          for (int64_t i = begin; i < end; ++i) to[i] = kept[i] ? from[i] * s : T(0);
        } else {
          using C = compute_t<T>;
          auto scaled = [s = static_cast<C>(scale)](C x, int32_t keep) { return keep ? x * s : C(0); };
          // The mask as wide as floats: beside bytes g++ takes half vectors, which the conversion to 16 bits then
          // reads as whole ones, and waits for both to be in memory.
          constexpr int64_t kPart = 1024;
          int32_t wide[kPart];
          for (int64_t i = begin; i < end; i += kPart) {
            const int64_t n = std::min(kPart, end - i);
            for (int64_t j = 0; j < n; ++j) wide[j] = kept[i + j];
            blocks::map(n, to + i, scaled, from + i, wide);
          }
        }
      });
    }
  });
}

}  // namespace tapegrad::cpu::TG_ISA
