// Table<T>: a std::vector whose memory comes from the CPU allocator. For tables in kernels whose length is a size
// chosen by the caller: a table that does not fit into memory is refused with the numbers, like a tensor of that size,
// whereas a plain vector would be given memory that is overcommitted. `resize` leaves new elements uninitialised, so
// that several threads can write them.
#pragma once

#include <cstddef>
#include <limits>
#include <new>
#include <type_traits>
#include <utility>
#include <vector>

#include "tapegrad/c10/memory/allocator.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad {

template <class T>
struct TableAllocator {
  using value_type = T;
  TableAllocator() = default;
  template <class U>
  TableAllocator(const TableAllocator<U>&) {}

  T* allocate(size_t n) {
    if (n > std::numeric_limits<size_t>::max() / 2 / sizeof(T)) throw std::bad_alloc();
    return static_cast<T*>(cpu_allocator().allocate(n * sizeof(T)));
  }
  void deallocate(T* p, size_t n) noexcept { cpu_allocator().deallocate(p, n * sizeof(T)); }
  template <class U>
  void construct(U* p) noexcept(std::is_nothrow_default_constructible_v<U>) {
    ::new (static_cast<void*>(p)) U;
  }
  template <class U, class... Args>
  void construct(U* p, Args&&... args) {
    ::new (static_cast<void*>(p)) U(std::forward<Args>(args)...);
  }
  template <class U>
  bool operator==(const TableAllocator<U>&) const {
    return true;
  }
};

template <class T>
using Table = std::vector<T, TableAllocator<T>>;

// Calls one(i) for i in [0, n), in parallel: the entries of a table are cheap.
template <class F>
void for_entries(int64_t n, F&& one) {
  parallel_for(0, n, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) one(i);
  });
}

// The table of entry(0) to entry(n - 1).
template <class F>
auto make_table(int64_t n, F&& entry) {
  Table<decltype(entry(n))> table(static_cast<size_t>(n));
  for_entries(n, [&](int64_t i) { table[static_cast<size_t>(i)] = entry(i); });
  return table;
}

}  // namespace tapegrad
