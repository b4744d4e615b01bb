// Kernels as bodies: `for_elements(stream, n, body)` calls body(i) for every i below n; `for_lines(stream, lines,
// length, columns, body)` calls body(group, line), where a group of threads works on a line together: one thread where
// neighbouring lines lie side by side in memory (columns), a warp for short lines, a block for long ones. Bodies are
// plain structs with `TG_DEVICE void operator()(...) const`.
#pragma once

#include <limits>

#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/launch/convert.h"
#include "tapegrad/cuda/launch/launch.h"

namespace tapegrad::cuda {

template <class Body>
TG_KERNEL void elements_kernel(int64_t n, Body body) {
  for (int64_t i = global_index(); i < n; i += global_step()) body(i);
}
template <class Body>
void for_elements(const Stream& stream, int64_t n, const Body& body) {
  if (n > 0) launch(stream, &elements_kernel<Body>, grid_for(n, kBlock, 1 << 22), kBlock, n, body);
}

// Threads that work on one line. `reduce` returns the same result to all of them, in an order that depends on their
// number only; every thread of the group must call it.
struct ThreadGroup {
  TG_DEVICE explicit ThreadGroup(unsigned char*) {}
  TG_DEVICE int64_t first() const { return global_index(); }
  TG_DEVICE int64_t step() const { return global_step(); }
  TG_DEVICE int64_t lane() const { return 0; }
  TG_DEVICE int64_t lanes() const { return 1; }
  template <class T, class Merge>
  TG_DEVICE T reduce(T value, Merge) const {
    return value;
  }
  TG_DEVICE void sync() const {}
};
struct WarpGroup {
  TG_DEVICE explicit WarpGroup(unsigned char*) {}
  TG_DEVICE int64_t first() const { return global_index() / kWarp; }
  TG_DEVICE int64_t step() const { return global_step() / kWarp; }
  TG_DEVICE int64_t lane() const { return warp_lane(); }
  TG_DEVICE int64_t lanes() const { return kWarp; }
  template <class T, class Merge>
  TG_DEVICE T reduce(T value, Merge merge) const {
    return warp_reduce(value, merge);
  }
  TG_DEVICE void sync() const { warp_sync(); }
};
struct BlockGroup {
  unsigned char* scratch;
  TG_DEVICE explicit BlockGroup(unsigned char* p) : scratch(p) {}
  TG_DEVICE int64_t first() const { return block_index(); }
  TG_DEVICE int64_t step() const { return grid_size(); }
  TG_DEVICE int64_t lane() const { return thread_index(); }
  TG_DEVICE int64_t lanes() const { return block_size(); }
  template <class T, class Merge>
  TG_DEVICE T reduce(T value, Merge merge) const {
    static_assert(sizeof(T) <= 32);
    return block_reduce(value, merge, reinterpret_cast<T*>(scratch));
  }
  TG_DEVICE void sync() const { block_sync(); }
};

template <class Group, class Body>
TG_KERNEL void lines_kernel(int64_t lines, Body body) {
  TG_SHARED(unsigned char, scratch, 32 * kWarp);
  const Group group(scratch);
  for (int64_t line = group.first(); line < lines; line += group.step()) body(group, line);
}
template <class Body>
void for_lines(const Stream& stream, int64_t lines, int64_t length, bool columns, const Body& body) {
  if (lines == 0) return;
  if (columns)
    launch(stream, &lines_kernel<ThreadGroup, Body>, grid_for(lines, kBlock, 1 << 22), kBlock, lines, body);
  else if (length > 1024)
    launch_block(stream, &lines_kernel<BlockGroup, Body>, grid_for(lines, 1, 1 << 22), kBlock, 0, lines, body);
  else
    launch_block(stream, &lines_kernel<WarpGroup, Body>, grid_for(lines, kBlock / kWarp, 1 << 22), kBlock, 0, lines,
                 body);
}

// --- packs of 16 bytes

template <class T>
inline constexpr int kRowPack = 16 / static_cast<int>(sizeof(T));

// Whether rows of `length` elements may be read and written in packs in all of these dense tensors.
inline bool in_packs(int64_t length, std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors) {
    const auto bytes = static_cast<int64_t>(element_size(t->dtype()));
    if (length * bytes % 16 != 0 || reinterpret_cast<uintptr_t>(t->data_ptr()) % 16 != 0) return false;
  }
  return true;
}

template <class C, int V>
struct Values {
  C v[V];
};
// V elements of floating storage in the type of computation.
template <int V, class S>
TG_DEVICE auto load_values(const S* p) {
  S raw[V];
  load_pieces<S, V>(raw, p);
  Values<decltype(to_float(raw[0])), V> out;
  TG_UNROLL
  for (int j = 0; j < V; ++j) out.v[j] = to_float(raw[j]);
  return out;
}
template <int V, class S, class C>
TG_DEVICE void store_values(S* p, const Values<C, V>& values) {
  S raw[V];
  TG_UNROLL
  for (int j = 0; j < V; ++j) store_value(raw + j, values.v[j]);
  store_pieces<S, V>(p, raw);
}

// Calls f.template operator()<V>(i) for the elements i to i + V - 1 of a row that a group shares: packs where `packed`,
// then single ones.
template <class T, class G, class F>
TG_DEVICE void for_packs(const G& g, int64_t n, bool packed, const F& f) {
  constexpr int V = kRowPack<T>;
  int64_t i = 0;
  if (packed) {
    for (i = g.lane() * V; i + V <= n; i += g.lanes() * V) f.template operator()<V>(i);
    i = n / V * V;
  }
  for (i += g.lane(); i < n; i += g.lanes()) f.template operator()<1>(i);
}

template <int V, class Body>
struct Packs {
  Body body;
  TG_DEVICE void operator()(int64_t i) const { body.template operator()<V>(i * V); }
};
// Calls body.template operator()<V>(i) for elements i to i + V - 1 of dense tensors of T, that are never of two rows.
template <class T, class Body>
void for_element_packs(const Stream& stream, int64_t n, int64_t row, std::initializer_list<const Tensor*> tensors,
                       const Body& body) {
  constexpr int V = kRowPack<T>;
  if (in_packs(row, tensors))
    for_elements(stream, n / V, Packs<V, Body>{body});
  else
    for_elements(stream, n, Packs<1, Body>{body});
}

struct Sum {
  template <class T>
  TG_DEVICE T operator()(T a, T b) const {
    return a + b;
  }
};
struct Largest {
  template <class T>
  TG_DEVICE T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

}  // namespace tapegrad::cuda
