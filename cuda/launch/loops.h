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
