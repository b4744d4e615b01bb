#include <bit>

#include "tapegrad/aten/copy/bytes.h"
#include "tapegrad/aten/copy/strided_loop.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

namespace {
template <class T>
void copy_elements(char* to, int64_t ts, const char* from, int64_t fs, int64_t n) {
  constexpr int64_t kSize = sizeof(T);
  typedef T Loose __attribute__((aligned(1)));  // a row that moves as one element is aligned as its elements are
  if (ts == kSize && fs == -kSize) {            // a reversed row: the compiler reverses vectors
    auto* t = reinterpret_cast<Loose*>(to);
    const auto* f = reinterpret_cast<const Loose*>(from) - (n - 1);
    for (int64_t i = 0; i < n; ++i) t[i] = f[n - 1 - i];
  } else if (ts == kSize && fs == kSize) {
    copy_bytes(to, from, n * kSize);
  } else {
    for (int64_t i = 0; i < n; ++i)
      *reinterpret_cast<Loose*>(to + i * ts) = *reinterpret_cast<const Loose*>(from + i * fs);
  }
}

template <class T>
void flip_loop(const StridedLoop<2>& loop) {
  const int last = loop.ndim - 1;
  const int64_t ts = loop.strides[0][last], fs = loop.strides[1][last];
  parallel_for(0, loop.numel, (128 << 10) / static_cast<int64_t>(sizeof(T)), [&](int64_t begin, int64_t end) {
    loop.for_runs(begin, end, [&](char* const* p, int64_t n) { copy_elements<T>(p[0], ts, p[1], fs, n); });
  });
}
}  // namespace

void flip_cpu(const Tensor& input, IntSpan dims, const Tensor& out) {
  if (out.numel() == 0) return;
  const uint64_t mask = dims.empty() ? 0 : dim_mask(dims, input.ndim(), "flip");
  StridedLoop<2> loop;
  loop.set_shape(out.sizes());
  loop.set(0, out);
  loop.set(1, input);
  for (int d = 0; d < loop.ndim; ++d) {
    if ((mask >> d & 1) == 0) continue;
    loop.data[1] += (loop.shape[d] - 1) * loop.strides[1][d];
    loop.strides[1][d] = -loop.strides[1][d];
  }
  loop.collapse();
  // Rows of few elements that stay as they are move as one element each.
  auto size = static_cast<int64_t>(out.itemsize());
  const int last = loop.ndim - 1;
  const int64_t row = loop.shape[last] * size;
  if (last > 0 && loop.strides[0][last] == size && loop.strides[1][last] == size && row <= 16 &&
      std::has_single_bit(static_cast<uint64_t>(row))) {
    loop.numel /= loop.shape[last];
    loop.ndim = last;
    size = row;
  }
  dispatch_bytes(static_cast<size_t>(size), [&]<class T>() { flip_loop<T>(loop); });
}

}  // namespace tapegrad::cpu::TG_ISA
