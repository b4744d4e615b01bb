#include <cstring>

#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/join/pieces.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

// Dense tensors side by side: each line of the result is written from its first byte to its last. Not for short pieces,
// which are no work for memcpy.
bool join_lines(TensorSpan tensors, int64_t d, const Tensor& out) {
  constexpr int64_t kShort = 64;  // bytes
  int64_t outer = 1, inner = static_cast<int64_t>(out.itemsize());
  for (int64_t k = 0; k < out.ndim(); ++k) (k < d ? outer : inner) *= k == d ? 1 : out.size(k);
  if (outer == 1 || !out.is_contiguous()) return false;
  for (const Tensor& t : tensors) {
    if (t.numel() == 0) continue;
    if (t.dtype() != out.dtype() || !t.is_contiguous() || t.size(d) * inner < kShort) return false;
    if (may_overlap(out, t)) return false;
  }
  const int64_t line = out.size(d) * inner;
  char* to = static_cast<char*>(out.data_ptr());
  parallel_for(0, outer, std::max<int64_t>(1, (128 << 10) / line), [&](int64_t begin, int64_t end) {
    char* p = to + begin * line;
    for (int64_t o = begin; o < end; ++o)
      for (const Tensor& t : tensors) {
        if (t.numel() == 0) continue;
        const int64_t bytes = t.size(d) * inner;
        std::memcpy(p, static_cast<const char*>(t.data_ptr()) + o * bytes, static_cast<size_t>(bytes));
        p += bytes;
      }
  });
  return true;
}

template <class T>
[[gnu::noinline]] void in_turn(const T* __restrict a, const T* __restrict b, T* __restrict to, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    to[2 * i] = a[i];
    to[2 * i + 1] = b[i];
  }
}

// The elements of two dense tensors in turn, as pairs of coordinates are put together: loads and stores go over
// vectors.
bool stack_pairs(TensorSpan tensors, int64_t dim, const Tensor& out) {
  if (tensors.size() != 2 || wrap_dim(dim, out.ndim(), "stack") != out.ndim() - 1 || !out.is_contiguous()) return false;
  for (const Tensor& t : tensors)
    if (t.dtype() != out.dtype() || !t.is_contiguous() || may_overlap(out, t)) return false;
  dispatch_bytes(out.itemsize(), [&]<class T>() {
    const auto *a = static_cast<const T*>(tensors[0].data_ptr()), *b = static_cast<const T*>(tensors[1].data_ptr());
    T* to = static_cast<T*>(out.data_ptr());
    parallel_for(0, out.numel() / 2, 32768,
                 [&](int64_t begin, int64_t end) { in_turn(a + begin, b + begin, to + 2 * begin, end - begin); });
  });
  return true;
}

// Tensors that are all channels_last as ones whose channels are their last dimension, which makes them dense.
Tensor channels_behind(const Tensor& t) {
  DimVector sizes(t.sizes()), strides(t.strides());
  std::rotate(sizes.begin() + 1, sizes.begin() + 2, sizes.end());
  std::rotate(strides.begin() + 1, strides.begin() + 2, strides.end());
  return alias_tensor(t, sizes, strides, t.storage_offset());
}

bool join_channels_last(TensorSpan tensors, int64_t d, const Tensor& out) {
  if (out.ndim() < 4 || out.is_contiguous() || !out.impl()->is_contiguous(MemoryFormat::ChannelsLast)) return false;
  std::vector<Tensor> turned;
  for (const Tensor& t : tensors) {
    if (t.ndim() != out.ndim()) return false;
    turned.push_back(channels_behind(t));
  }
  return join_lines(turned, d == 0 ? 0 : d == 1 ? out.ndim() - 1 : d - 1, channels_behind(out));
}

void copy_piece(const Tensor& to, const Tensor& from) { copy_cpu(to, from, false); }

}  // namespace

void cat_cpu(TensorSpan tensors, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  const int64_t d = wrap_dim(dim, out.ndim(), "cat");
  if (!join_lines(tensors, d, out) && !join_channels_last(tensors, d, out)) cat_pieces(tensors, d, out, copy_piece);
}
void stack_cpu(TensorSpan tensors, int64_t dim, const Tensor& out) {
  if (!stack_pairs(tensors, dim, out)) stack_pieces(tensors, dim, out, copy_piece);
}

}  // namespace tapegrad::cpu::TG_ISA
