// Random fills: every element is a function of its number and of the call's state, so pieces can be made in any
// order by any thread. A fill works on chunks that begin at a multiple of four elements; a full buffer of words is
// transformed at once by a plain loop. Compiled per instruction set.
#pragma once

#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/random/open_uniform.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/random/philox_fill.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

inline constexpr int64_t kWordBuffer = 1024;
inline constexpr int64_t kRandomGrain = 8192;

// f(first element, how many, words): `words` holds kPerElement words for each of the elements, `many` is at most
// kWordBuffer / kPerElement and even but at the end of the tensor. Behind the last element there are the words up to
// the end of its block.
template <int kPerElement, class F>
void for_words(int64_t numel, PhiloxState state, F&& f) {
  constexpr int64_t kStep = kWordBuffer / kPerElement;
  parallel_for(0, (numel + kStep - 1) / kStep, std::max<int64_t>(1, kRandomGrain / kStep),
               [&](int64_t begin, int64_t end) {
                 alignas(64) uint32_t words[kWordBuffer];
                 for (int64_t c = begin; c < end; ++c) {
                   const int64_t first = c * kStep, many = std::min(kStep, numel - first);
                   for (int64_t w = 0; w < many * kPerElement; w += detail::kPhiloxTile)
                     detail::philox_tile(words + w, static_cast<uint64_t>((first * kPerElement + w) / 4), state);
                   f(first, many, static_cast<const uint32_t*>(words));
                 }
               });
}

// The 64-bit draw of element i of the buffer.
inline uint64_t word64(const uint32_t* words, int64_t i) {
  return words[2 * i] | static_cast<uint64_t>(words[2 * i + 1]) << 32;
}

// Where the numbers of a fill go: memory of type T, or of a 16-bit format to which they are converted a chunk at a
// time. One loop serves all formats, so that each of them adds a conversion to the library and not all distributions.
template <class T>
class Sink {
 public:
  template <class Out>
  explicit Sink(Out* out) : memory_(out) {
    if constexpr (!std::is_same_v<T, Out>)
      store_ = [](void* to, int64_t first, int64_t many, const T* values) {
        blocks::copy(many, static_cast<Out*>(to) + first, values);
      };
  }

  // make(to) writes `many` numbers.
  template <class F>
  TG_INLINE void chunk(int64_t first, int64_t many, F&& make) const {
    alignas(64) T values[kWordBuffer];
    make(store_ == nullptr ? static_cast<T*>(memory_) + first : values);
    if (store_ != nullptr) store_(memory_, first, many, values);
  }

 private:
  void* memory_;
  void (*store_)(void* to, int64_t first, int64_t many, const T* values) = nullptr;
};

// out[i] = f(of_draw(draw i)): draws of 32 bits for float, of 64 for double.
template <class T, class D, class F>
TG_INLINE void fill_draws(const Sink<T>& out, int64_t numel, PhiloxState state, D of_draw, F f) {
  constexpr int kPer = std::is_same_v<T, float> ? 1 : 2;
  for_words<kPer>(numel, state, [&](int64_t first, int64_t many, const uint32_t* words) {
    out.chunk(first, many, [&](T* __restrict to) {
      for (int64_t i = 0; i < many; ++i) {
        if constexpr (kPer == 1)
          to[i] = f(of_draw(words[i]));
        else
          to[i] = f(of_draw(word64(words, i)));
      }
    });
  });
}

// out[i] = f(uniform in [0, 1)).
template <class T, class F>
void fill_uniform(const Sink<T>& out, int64_t numel, PhiloxState state, F f) {
  fill_draws(out, numel, state, [](auto word) { return philox_uniform(word); }, f);
}

// out[i] = f(uniform in (0, 1)).
template <class T, class F>
void fill_open_uniform(const Sink<T>& out, int64_t numel, PhiloxState state, F f) {
  fill_draws(out, numel, state, [](auto word) { return open_uniform(word); }, f);
}

// out[i] = f(standard normal).
template <class T, class F>
void fill_normal(const Sink<T>& out, int64_t numel, PhiloxState state, F&& f) {
  constexpr int kPer = std::is_same_v<T, float> ? 1 : 2;
  for_words<kPer>(numel, state, [&](int64_t first, int64_t many, const uint32_t* words) {
    auto pair = [&](int64_t k) {
      if constexpr (kPer == 1)
        return philox_normal_pair(words[2 * k], words[2 * k + 1]);
      else
        return philox_normal_pair(word64(words, 2 * k), word64(words, 2 * k + 1));
    };
    out.chunk(first, many, [&](T* __restrict to) {
      for (int64_t k = 0; k < many / 2; ++k) {
        const auto p = pair(k);
        to[2 * k] = f(p.first);
        to[2 * k + 1] = f(p.second);
      }
      if (many % 2) to[many - 1] = f(pair(many / 2).first);
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
