// StridedLoop: several operands of one shape walked together, any strides. Dimensions of size 1 are dropped, the others
// are sorted so that the last one is the fastest of operand 0, and neighbours that lie in memory as one for every
// operand are merged. A plain value on the stack; it borrows the operands' memory. Its functions are always inlined or
// compiled per instruction set, as it is used by kernels.
#pragma once

#include <cstdlib>

#include "tapegrad/aten/tensor.h"

namespace tapegrad {
inline namespace TG_ISA {

template <int N>
struct StridedLoop {
  int ndim = 0;
  int64_t numel = 1;
  char* data[N];
  int64_t shape[kMaxDims];
  int64_t strides[N][kMaxDims];  // in bytes

  // Operand i of the loop: strides in elements, of the sizes given first.
  void set(int i, const void* address, IntSpan element_strides, size_t itemsize) {
    data[i] = static_cast<char*>(const_cast<void*>(address));
    for (size_t d = 0; d < element_strides.size(); ++d)
      strides[i][d] = element_strides[d] * static_cast<int64_t>(itemsize);
  }
  // As set, for a tensor whose sizes broadcast to the loop's.
  void set(int i, const Tensor& t) {
    data[i] = static_cast<char*>(t.data_ptr());
    int lead = ndim - t.ndim();
    for (int d = 0; d < ndim; ++d) {
      int from = d - lead;
      bool stretched = from < 0 || (t.impl()->size(from) == 1 && shape[d] != 1);
      strides[i][d] = stretched ? 0 : t.impl()->stride(from) * static_cast<int64_t>(t.itemsize());
    }
  }
  void set_shape(IntSpan sizes) {
    ndim = static_cast<int>(sizes.size());
    numel = 1;
    for (int d = 0; d < ndim; ++d) {
      shape[d] = sizes[d];
      numel *= sizes[d];
    }
  }

  // Drops, sorts (unless the order of dimensions matters) and merges. Afterwards ndim >= 1.
  void collapse(bool sort = true) {
    int n = 0;
    for (int d = 0; d < ndim; ++d)
      if (shape[d] != 1) move_dim(n++, d);
    ndim = n;
    if (sort)
      for (int i = 1; i < ndim; ++i)
        for (int j = i; j > 0 && before(j, j - 1); --j) swap_dims(j, j - 1);
    n = 0;
    for (int d = 1; d < ndim; ++d) {
      bool merges = true;
      for (int i = 0; i < N; ++i) merges &= strides[i][n] == strides[i][d] * shape[d];
      if (merges) {
        shape[n] *= shape[d];
        for (int i = 0; i < N; ++i) strides[i][n] = strides[i][d];
      } else {
        move_dim(++n, d);
      }
    }
    if (ndim == 0) {
      shape[0] = 1;
      for (int i = 0; i < N; ++i) strides[i][0] = 0;
    }
    ndim = n + 1;
  }

  // Where element i of the first operand lies, in bytes from its address.
  int64_t offset(int64_t i) const {
    if (ndim == 1) return i * strides[0][0];
    int64_t result = 0;
    for (int d = ndim - 1; d >= 0; --d) {
      result += i % shape[d] * strides[0][d];
      i /= shape[d];
    }
    return result;
  }

  // Calls f(addresses, n) for the runs along the last dimension that make up elements [begin, end).
  template <class F>
  void for_runs(int64_t begin, int64_t end, F&& f) const {
    if (begin >= end) return;
    const int last = ndim - 1;
    const int64_t inner = shape[last];
    int64_t at[kMaxDims];
    char* p[N];
    for (int i = 0; i < N; ++i) p[i] = data[i];
    int64_t rest = begin;
    for (int d = last; d >= 0; --d) {
      at[d] = rest % shape[d];
      rest /= shape[d];
      for (int i = 0; i < N; ++i) p[i] += at[d] * strides[i][d];
    }
    while (true) {
      int64_t n = std::min(inner - at[last], end - begin);
      f(p, n);
      begin += n;
      if (begin >= end) return;
      // Advances to the start of the next run.
      for (int i = 0; i < N; ++i) p[i] -= at[last] * strides[i][last];
      at[last] = 0;
      for (int d = last - 1; d >= 0; --d) {
        for (int i = 0; i < N; ++i) p[i] += strides[i][d];
        if (++at[d] < shape[d]) break;
        for (int i = 0; i < N; ++i) p[i] -= shape[d] * strides[i][d];
        at[d] = 0;
      }
    }
  }

 private:
  void move_dim(int to, int from) {
    if (to == from) return;
    shape[to] = shape[from];
    for (int i = 0; i < N; ++i) strides[i][to] = strides[i][from];
  }
  void swap_dims(int a, int b) {
    std::swap(shape[a], shape[b]);
    for (int i = 0; i < N; ++i) std::swap(strides[i][a], strides[i][b]);
  }
  // Whether dimension a is an outer one relative to b: it has the larger stride in the first operand whose strides
  // differ.
  bool before(int a, int b) const {
    for (int i = 0; i < N; ++i) {
      int64_t sa = std::abs(strides[i][a]), sb = std::abs(strides[i][b]);
      if (sa == 0 || sb == 0) continue;
      if (sa != sb) return sa > sb;
    }
    return false;
  }
};

}  // namespace TG_ISA
}  // namespace tapegrad
