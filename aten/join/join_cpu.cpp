#include "tapegrad/aten/copy/bytes.h"
#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/join/pieces.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/inline_vector.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

// Dense tensors side by side: each of the `outer` lines of the result is written from its first byte to its last. Not
// for many short pieces, which are no work for memcpy, nor for few large ones, which threads share better one by one.
bool join_lines(TensorSpan tensors, int64_t outer, const Tensor& out) {
  constexpr int64_t kShort = 64, kFew = 32, kOneThread = 128 << 10;  // bytes, pieces, bytes
  const auto total = static_cast<int64_t>(out.numel() * static_cast<int64_t>(out.itemsize()));
  if (outer == 0 || (outer == 1 && total > kOneThread) || !out.is_contiguous()) return false;
  const bool few = outer * static_cast<int64_t>(tensors.size()) <= kFew;
  char* to = static_cast<char*>(out.data_ptr());
  auto lies_apart = [&](const Tensor& t, int64_t bytes) {
    const char* from = static_cast<const char*>(t.data_ptr());
    return t.dtype() == out.dtype() && t.is_contiguous() && (from >= to + total || to >= from + bytes);
  };
  if (outer == 1) {
    for (const Tensor& t : tensors)
      if (const int64_t bytes = t.nbytes(); bytes > 0 && !lies_apart(t, bytes)) return false;
    for (const Tensor& t : tensors) {
      if (t.numel() == 0) continue;
      copy_bytes(to, t.data_ptr(), t.nbytes());
      to += t.nbytes();
    }
    return true;
  }
  struct Piece {
    const char* from;
    int64_t bytes;  // of a line
  };
  InlineVector<Piece, 8> pieces;
  for (const Tensor& t : tensors) {
    const int64_t bytes = t.nbytes();
    if (bytes == 0) continue;
    if (!lies_apart(t, bytes) || (!few && bytes / outer < kShort)) return false;
    pieces.push_back({static_cast<const char*>(t.data_ptr()), bytes / outer});
  }
  const int64_t line = total / outer;
  parallel_for(0, outer, std::max<int64_t>(1, kOneThread / std::max<int64_t>(1, line)),
               [&](int64_t begin, int64_t end) {
                 char* p = to + begin * line;
                 for (int64_t o = begin; o < end; ++o)
                   for (const Piece& piece : pieces) {
                     copy_bytes(p, piece.from + o * piece.bytes, piece.bytes);
                     p += piece.bytes;
                   }
               });
  return true;
}

// The number of lines that tensors joined in dimension d have: the elements of the dimensions before it.
int64_t lines_before(const Tensor& out, int64_t d) {
  int64_t lines = 1;
  for (int64_t k = 0; k < d; ++k) lines *= out.size(k);
  return lines;
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
bool stack_pairs(TensorSpan tensors, int64_t d, const Tensor& out) {
  if (tensors.size() != 2 || d != out.ndim() - 1 || !out.is_contiguous()) return false;
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

// Tensors that are all channels_last are dense with their channels behind.
bool join_channels_last(TensorSpan tensors, int64_t d, const Tensor& out) {
  if (out.ndim() < 4 || out.is_contiguous() || !out.impl()->is_contiguous(MemoryFormat::ChannelsLast)) return false;
  std::vector<Tensor> turned;
  for (const Tensor& t : tensors) {
    if (t.ndim() != out.ndim()) return false;
    turned.push_back(channels_behind(t));
  }
  const Tensor to = channels_behind(out);
  return join_lines(turned, lines_before(to, d == 0 ? 0 : d == 1 ? out.ndim() - 1 : d - 1), to);
}

void copy_piece(const Tensor& to, const Tensor& from) { copy_cpu(to, from, false); }

}  // namespace

void cat_cpu(TensorSpan tensors, int64_t dim, const Tensor& out) {
  if (out.numel() == 0) return;
  const int64_t d = wrap_dim(dim, out.ndim(), "cat");
  if (!join_lines(tensors, lines_before(out, d), out) && !join_channels_last(tensors, d, out))
    cat_pieces(tensors, d, out, copy_piece);
}
void stack_cpu(TensorSpan tensors, int64_t dim, const Tensor& out) {
  const int64_t d = wrap_dim(dim, out.ndim(), "stack");
  if (!stack_pairs(tensors, d, out) && !join_lines(tensors, lines_before(out, d), out))
    stack_pieces(tensors, d, out, copy_piece);
}

}  // namespace tapegrad::cpu::TG_ISA
