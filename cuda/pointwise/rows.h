// The typed side of pointwise kernels, included by the generated *.cu files; see plan.h for the host's part.
#pragma once

#include <bit>
#include <type_traits>

#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/iterate/dispatch.h"
#include "tapegrad/cuda/launch/convert.h"
#include "tapegrad/cuda/pointwise/complex.h"
#include "tapegrad/cuda/pointwise/plan.h"

namespace tapegrad::cuda::rows {

template <class T>
TG_DEVICE T load_one(const char* p, Stored stored) {
  if constexpr (std::is_same_v<T, float>) {
    if (stored == Stored::Half) return to_float(*reinterpret_cast<const Half*>(p));
    if (stored == Stored::BFloat16) return to_float(*reinterpret_cast<const BFloat16*>(p));
    if (stored == Stored::Bool) return *reinterpret_cast<const uint8_t*>(p) != 0 ? 1.0F : 0.0F;
  }
  if constexpr (std::is_same_v<T, bool>)
    return *reinterpret_cast<const uint8_t*>(p) != 0;  // a byte of uninitialised memory may be neither 0 nor 1
  else
    return *reinterpret_cast<const T*>(p);
}
template <class R>
TG_DEVICE void store_one(char* p, Stored stored, R value) {
  if constexpr (std::is_same_v<R, float>) {
    if (stored == Stored::Half) {
      *reinterpret_cast<Half*>(p) = to_half(value);
      return;
    }
    if (stored == Stored::BFloat16) {
      *reinterpret_cast<BFloat16*>(p) = to_bfloat16(value);
      return;
    }
  }
  *reinterpret_cast<R*>(p) = value;
}
template <class T>
TG_DEVICE int64_t stored_size(Stored stored) {
  return stored == Stored::Native ? static_cast<int64_t>(sizeof(T)) : stored == Stored::Bool ? 1 : 2;
}

// V elements as they lie in memory: loaded for all operands before any is converted, so that the loads are in flight at
// once.
template <class T, int V>
struct Raw {
  using S = std::conditional_t<std::is_same_v<T, bool>, uint8_t, T>;
  S x[V];
  TG_DEVICE void load(const char* base, Stored, int64_t i) { load_pieces<S, V>(x, base + i * sizeof(S)); }
  TG_DEVICE void convert(T (&to)[V], Stored) const {
    TG_UNROLL
    for (int j = 0; j < V; ++j) {
      if constexpr (std::is_same_v<T, bool>)
        to[j] = x[j] != 0;
      else
        to[j] = x[j];
    }
  }
};
template <int V>
struct Raw<float, V> {
  uint32_t words[V];
  TG_DEVICE void load(const char* base, Stored stored, int64_t i) {
    static_assert(V % 4 == 0);
    if (stored == Stored::Native)
      load_pieces<uint32_t, V>(words, base + i * 4);
    else if (stored == Stored::Bool)
      load_pieces<uint32_t, V / 4>(reinterpret_cast<uint32_t (&)[V / 4]>(words), base + i);
    else
      load_pieces<uint32_t, V / 2>(reinterpret_cast<uint32_t (&)[V / 2]>(words), base + i * 2);
  }
  // The dtype is decided once for all elements: deciding it for each costs more than the conversion.
  TG_DEVICE void convert(float (&to)[V], Stored stored) const {
    if (stored == Stored::Native)
      each(to, [&](int j) { return std::bit_cast<float>(words[j]); });
    else if (stored == Stored::Half)
      each(to, [&](int j) { return to_float(Half::from_bits(half(j))); });
    else if (stored == Stored::BFloat16)
      each(to, [&](int j) { return to_float(BFloat16::from_bits(half(j))); });
    else
      each(to, [&](int j) { return (words[j / 4] >> (j % 4 * 8) & 0xff) != 0 ? 1.0F : 0.0F; });
  }

 private:
  TG_DEVICE uint16_t half(int j) const { return static_cast<uint16_t>(words[j / 2] >> (j % 2 * 16)); }
  template <class F>
  TG_DEVICE static void each(float (&to)[V], const F& f) {
    TG_UNROLL
    for (int j = 0; j < V; ++j) to[j] = f(j);
  }
};
template <class T, int V>
TG_DEVICE void load_array(T (&x)[V], const char* base, Stored stored, int64_t i) {
  Raw<T, V> raw;
  raw.load(base, stored, i);
  raw.convert(x, stored);
}
// Elements at the addresses that place(j) gives.
template <class T, int V, class Place>
TG_DEVICE void load_each(T (&x)[V], Stored stored, const Place& place) {
  if constexpr (std::is_same_v<T, float>) {
    if (stored == Stored::Half || stored == Stored::BFloat16) {
      uint16_t raw[V];
      TG_UNROLL
      for (int j = 0; j < V; ++j) raw[j] = *reinterpret_cast<const uint16_t*>(place(j));
      TG_UNROLL
      for (int j = 0; j < V; ++j)
        x[j] = stored == Stored::Half ? to_float(Half::from_bits(raw[j])) : to_float(BFloat16::from_bits(raw[j]));
      return;
    }
    if (stored == Stored::Native) {
      TG_UNROLL
      for (int j = 0; j < V; ++j) x[j] = *reinterpret_cast<const float*>(place(j));
      return;
    }
  }
  TG_UNROLL
  for (int j = 0; j < V; ++j) x[j] = load_one<T>(place(j), stored);
}
template <class R, int V>
TG_DEVICE void store_array(const R (&y)[V], char* base, Stored stored, int64_t i) {
  if constexpr (std::is_same_v<R, float>) {
    if (stored == Stored::Half) {
      Half x[V];
      TG_UNROLL
      for (int j = 0; j < V; ++j) x[j] = to_half(y[j]);
      return store_pieces<Half, V>(base + i * 2, x);
    }
    if (stored == Stored::BFloat16) {
      BFloat16 x[V];
      TG_UNROLL
      for (int j = 0; j < V; ++j) x[j] = to_bfloat16(y[j]);
      return store_pieces<BFloat16, V>(base + i * 2, x);
    }
  }
  store_pieces<R, V>(base + i * sizeof(R), y);
}

template <int N, class F, class T>
TG_DEVICE auto apply(const F& f, const T (&x)[N], FaultRecord* fault) {
  if constexpr (requires { requires F::kDividesIntegers; })
    if (x[1] == T(0)) record_fault(fault, Fault::DivisionByZero, {});
  if constexpr (N == 1)
    return f(x[0]);
  else if constexpr (N == 2)
    return f(x[0], x[1]);
  else if constexpr (N == 3)
    return f(x[0], x[1], x[2]);
  else
    return f(x[0], x[1], x[2], x[3]);
}

// The value of operand k where it is one for all elements.
template <class T, class Args>
TG_DEVICE T fixed_value(const Args& args, int k) {
  if (args.source[k] == Source::Element) return load_one<T>(args.data[k], args.stored[k]);
  return *reinterpret_cast<const T*>(args.value[k]);
}

template <int N, class T, class F>
TG_KERNEL void flat_kernel(F f, Flat args) {
  constexpr int V = kPack<T>;
  using R = decltype(apply(f, std::declval<const T(&)[N]>(), nullptr));
  T x[N][V];
  for (int k = 0; k < N; ++k) {
    if (args.source[k + 1] == Source::Array) continue;
    const T value = fixed_value<T>(args, k + 1);
    for (int j = 0; j < V; ++j) x[k][j] = value;
  }
  for (int64_t i = global_index() * V; i < args.n; i += global_step() * V) {
    if (i + V <= args.n) {
      Raw<T, V> raw[N];
      TG_UNROLL
      for (int k = 0; k < N; ++k)
        if (args.source[k + 1] == Source::Array) raw[k].load(args.data[k + 1], args.stored[k + 1], i);
      TG_UNROLL
      for (int k = 0; k < N; ++k)
        if (args.source[k + 1] == Source::Array) raw[k].convert(x[k], args.stored[k + 1]);
      R y[V];
      TG_UNROLL
      for (int j = 0; j < V; ++j) {
        T one[N];
        for (int k = 0; k < N; ++k) one[k] = x[k][j];
        y[j] = apply(f, one, args.fault);
      }
      store_array<R, V>(y, args.data[0], args.stored[0], i);
      continue;
    }
    for (int64_t at = i; at < args.n; ++at) {  // the last elements
      T one[N];
      for (int k = 0; k < N; ++k) {
        const int64_t size = stored_size<T>(args.stored[k + 1]);
        one[k] = args.source[k + 1] == Source::Array ? load_one<T>(args.data[k + 1] + at * size, args.stored[k + 1])
                                                     : x[k][0];
      }
      const int64_t size = stored_size<R>(args.stored[0]);
      store_one<R>(args.data[0] + at * size, args.stored[0], apply(f, one, args.fault));
    }
  }
}

template <int N, class T, class F>
TG_KERNEL void strided_kernel(F f, Strided<N + 1> args) {
  T fixed[N];
  for (int k = 0; k < N; ++k)
    if (args.source[k + 1] != Source::Array) fixed[k] = fixed_value<T>(args, k + 1);
  const int64_t step = global_step();
  for (int64_t i = global_index(); i < args.n; i += step) {
    int32_t at[N + 1];
    args.offsets.at(static_cast<uint32_t>(i), at);
    T one[N];
    for (int k = 0; k < N; ++k)
      one[k] = args.source[k + 1] == Source::Array ? load_one<T>(args.data[k + 1] + at[k + 1], args.stored[k + 1])
                                                   : fixed[k];
    store_one(args.data[0] + at[0], args.stored[0], apply(f, one, args.fault));
  }
}

template <int N, class T, class F>
void launch_flat(const void* functor, const Flat& args, const Stream& stream) {
  // Where there are many, a thread takes several packs: blocks that end at once cost more than they move.
  const int64_t each = args.n >= (int64_t{1} << 23) ? 4 : 1;
  launch(stream, &flat_kernel<N, T, F>, grid_for(args.n, kBlock * kPack<T> * each, INT32_MAX), kBlock,
         *static_cast<const F*>(functor), args);
}
template <int N, class T, class F>
void launch_strided(const void* functor, const Strided<kMaxOperands>& all, const Stream& stream) {
  Strided<N + 1> args;
  args.offsets.ndim = all.offsets.ndim;
  for (int d = 0; d < all.offsets.ndim; ++d) args.offsets.shape[d] = all.offsets.shape[d];
  args.n = all.n;
  args.fault = all.fault;
  for (int k = 0; k <= N; ++k) {
    for (int d = 0; d < all.offsets.ndim; ++d) args.offsets.strides[k][d] = all.offsets.strides[k][d];
    args.data[k] = all.data[k];
    args.stored[k] = all.stored[k];
    args.source[k] = all.source[k];
    std::copy_n(all.value[k], 16, args.value[k]);
  }
  launch(stream, &strided_kernel<N, T, F>, grid_for(args.n, kBlock, INT32_MAX), kBlock, *static_cast<const F*>(functor),
         args);
}

template <int N, class T, class F>
void run(const pointwise::Iterator& it, const F& functor) {
  static constexpr Kernels kernels{&launch_flat<N, T, F>, &launch_strided<N, T, F>};
  run_kernels(it, kernels, &functor, kPack<T>);
}

}  // namespace tapegrad::cuda::rows
