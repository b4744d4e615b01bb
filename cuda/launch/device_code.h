// What kernels use instead of CUDA's own names, so that a .cu file is compiled by nvcc and, with TG_CUDA_SIMULATED, by
// a host compiler. Blocks have one dimension, grids two: x, and y that kernels call the row. Warps have 32 threads.
//
//   TG_KERNEL                       before `void name(...)`: a kernel
//   TG_DEVICE                       before a function that only kernels call
//   TG_SHARED(T, name, n);          `T* name`: n elements shared by a block, not initialised
//   TG_DYNAMIC_SHARED(T, name);     the same of the size given to launch_block
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "tapegrad/c10/macros.h"
#include "tapegrad/c10/tensor/half.h"

#if defined(__CUDACC__)
#define TG_KERNEL __global__
#define TG_DEVICE __device__ __forceinline__
#define TG_SHARED(T, name, n)                                           \
  __shared__ __align__(16) unsigned char name##_bytes[sizeof(T) * (n)]; \
  T* const name = reinterpret_cast<T*>(name##_bytes)
#define TG_DYNAMIC_SHARED(T, name)                                   \
  extern __shared__ __align__(16) unsigned char tg_dynamic_shared[]; \
  T* const name = reinterpret_cast<T*>(tg_dynamic_shared)
#else
#include "tapegrad/cuda/launch/simulate.h"
#define TG_KERNEL
#define TG_DEVICE inline
#define TG_SHARED(T, name, n)                                                  \
  alignas(16) static thread_local unsigned char name##_bytes[sizeof(T) * (n)]; \
  T* const name = reinterpret_cast<T*>(name##_bytes)
#define TG_DYNAMIC_SHARED(T, name) T* const name = reinterpret_cast<T*>(::tapegrad::cuda::simulated::thread().shared)
#endif

// Before a loop: unrolled. The elements of a thread are kept in registers only if every index is a constant, and loads
// of several steps are in flight at once only if nothing decides between them.
#if defined(__CUDACC__)
#define TG_UNROLL _Pragma("unroll")
#define TG_UNROLL_4 _Pragma("unroll 4")
#else
#define TG_UNROLL
#define TG_UNROLL_4
#endif

namespace tapegrad::cuda {

inline constexpr int kWarp = 32;

#if defined(__CUDACC__)

TG_DEVICE uint32_t thread_index() { return threadIdx.x; }
TG_DEVICE uint32_t block_size() { return blockDim.x; }
TG_DEVICE uint32_t block_index() { return blockIdx.x; }
TG_DEVICE uint32_t grid_size() { return gridDim.x; }
TG_DEVICE uint32_t block_row() { return blockIdx.y; }
TG_DEVICE uint32_t grid_rows() { return gridDim.y; }
TG_DEVICE void block_sync() { __syncthreads(); }
TG_DEVICE void warp_sync() { __syncwarp(); }

namespace detail {
TG_DEVICE uint32_t shuffle_word(uint32_t v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
}  // namespace detail
TG_DEVICE uint32_t ballot(bool b) { return __ballot_sync(0xffffffffu, b); }
TG_DEVICE int count_bits(uint32_t b) { return __popc(b); }

TG_DEVICE uint32_t atomic_add(uint32_t* p, uint32_t v) { return atomicAdd(p, v); }
TG_DEVICE int32_t atomic_add(int32_t* p, int32_t v) { return atomicAdd(p, v); }
TG_DEVICE int64_t atomic_add(int64_t* p, int64_t v) {
  return static_cast<int64_t>(atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(v)));
}
TG_DEVICE uint32_t atomic_or(uint32_t* p, uint32_t v) { return atomicOr(p, v); }
TG_DEVICE uint32_t atomic_compare_and_set(uint32_t* p, uint32_t expected, uint32_t v) {
  return atomicCAS(p, expected, v);
}
TG_DEVICE int64_t atomic_max(int64_t* p, int64_t v) {
  return atomicMax(reinterpret_cast<long long*>(p), static_cast<long long>(v));
}
TG_DEVICE void memory_fence_system() { __threadfence_system(); }

#else

inline uint32_t thread_index() { return simulated::thread().index; }
inline uint32_t block_size() { return simulated::thread().block_size; }
inline uint32_t block_index() { return simulated::thread().block; }
inline uint32_t grid_size() { return simulated::thread().grid; }
inline uint32_t block_row() { return simulated::thread().row; }
inline uint32_t grid_rows() { return simulated::thread().rows; }
inline void block_sync() { simulated::wait(simulated::Barrier::Block); }
inline void warp_sync() { simulated::wait(simulated::Barrier::Warp); }

namespace detail {
inline uint32_t shuffle_word(uint32_t v, int lane) { return simulated::exchange(v, lane); }
}  // namespace detail
inline uint32_t ballot(bool b) { return simulated::ballot(b); }
inline int count_bits(uint32_t b) { return __builtin_popcount(b); }

// Blocks run one after the other and threads change only at barriers.
template <class T>
inline T atomic_add(T* p, T v) {
  const T before = *p;
  *p = static_cast<T>(before + v);
  return before;
}
inline uint32_t atomic_or(uint32_t* p, uint32_t v) {
  const uint32_t before = *p;
  *p = before | v;
  return before;
}
inline uint32_t atomic_compare_and_set(uint32_t* p, uint32_t expected, uint32_t v) {
  const uint32_t before = *p;
  if (before == expected) *p = v;
  return before;
}
inline int64_t atomic_max(int64_t* p, int64_t v) {
  const int64_t before = *p;
  if (v > before) *p = v;
  return before;
}
inline void memory_fence_system() {}

#endif

TG_DEVICE int warp_lane() { return static_cast<int>(thread_index() % kWarp); }
TG_DEVICE int warp_index() { return static_cast<int>(thread_index() / kWarp); }
// The first element of a thread and the step of all threads in loops over n elements.
TG_DEVICE int64_t global_index() { return static_cast<int64_t>(block_index()) * block_size() + thread_index(); }
TG_DEVICE int64_t global_step() { return static_cast<int64_t>(grid_size()) * block_size(); }

// The value of another lane of the warp. All 32 lanes take part.
template <class T>
TG_DEVICE T shuffle(const T& value, int lane) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr int kWords = (sizeof(T) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &value, sizeof(T));
  for (int i = 0; i < kWords; ++i) words[i] = detail::shuffle_word(words[i], lane);
  T result = value;
  memcpy(&result, words, sizeof(T));
  return result;
}
template <class T>
TG_DEVICE T shuffle_xor(const T& value, int mask) {
  return shuffle(value, warp_lane() ^ mask);
}
// From the lane `distance` below; lanes without one get their own value.
template <class T>
TG_DEVICE T shuffle_up(const T& value, int distance) {
  const int lane = warp_lane() - distance;
  return shuffle(value, lane < 0 ? warp_lane() : lane);
}

// N elements moved as one.
template <class T, int N>
struct alignas(sizeof(T) * N) Pack {
  T v[N];
};
template <class T, int N>
TG_DEVICE Pack<T, N> load_pack(const void* p) {
  return *static_cast<const Pack<T, N>*>(p);
}
template <class T, int N>
TG_DEVICE void store_pack(void* p, const Pack<T, N>& value) {
  *static_cast<Pack<T, N>*>(p) = value;
}
// N elements in pieces of 16 bytes, to which `p` is aligned where there are that many.
template <class T, int N>
inline constexpr int kPiece = sizeof(T) * N <= 16 ? N
                              : sizeof(T) >= 16   ? 1
                                                  : 16 / static_cast<int>(sizeof(T));
template <class T, int N>
TG_DEVICE void load_pieces(T (&to)[N], const void* p) {
  constexpr int P = kPiece<T, N>;
  TG_UNROLL
  for (int i = 0; i < N; i += P) {
    const Pack<T, P> piece = load_pack<T, P>(static_cast<const T*>(p) + i);
    TG_UNROLL
    for (int j = 0; j < P; ++j) to[i + j] = piece.v[j];
  }
}
template <class T, int N>
TG_DEVICE void store_pieces(void* p, const T (&from)[N]) {
  constexpr int P = kPiece<T, N>;
  TG_UNROLL
  for (int i = 0; i < N; i += P) {
    Pack<T, P> piece;
    TG_UNROLL
    for (int j = 0; j < P; ++j) piece.v[j] = from[i + j];
    store_pack<T, P>(static_cast<T*>(p) + i, piece);
  }
}

// Reduction over the threads of a warp, in the same order in every lane: all get the result.
template <class T, class Merge>
TG_DEVICE T warp_reduce(T value, Merge merge) {
  for (int d = kWarp / 2; d > 0; d /= 2) {
    const T other = shuffle_xor(value, d);
    value = (warp_lane() & d) != 0 ? merge(other, value) : merge(value, other);
  }
  return value;
}

// Over the threads of a block of whole warps; all get the result. `scratch` holds 32 elements and is free again when
// all threads have returned and met at a barrier.
template <class T, class Merge>
TG_DEVICE T block_reduce(T value, Merge merge, T* scratch) {
  value = warp_reduce(value, merge);
  const int warps = static_cast<int>(block_size()) / kWarp;
  if (warps == 1) return value;
  block_sync();
  if (warp_lane() == 0) scratch[warp_index()] = value;
  block_sync();
  value = scratch[0];
  for (int w = 1; w < warps; ++w) value = merge(value, scratch[w]);
  return value;
}

}  // namespace tapegrad::cuda
