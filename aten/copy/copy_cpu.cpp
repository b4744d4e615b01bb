// copy_ and fill_: the kernels behind every conversion, clone and in-place write through a view.
#include <cstring>

#include "tapegrad/aten/copy/across.h"
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/copy/run.h"
#include "tapegrad/aten/copy/strided_loop.h"
#include "tapegrad/aten/copy/tile.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/aten/view/geometry.h"
#include "tapegrad/c10/dispatch/work_counters.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

constexpr int64_t kGrainBytes = 128 << 10;  // about 10 us of copying

int64_t grain_of(size_t itemsize) { return kGrainBytes / static_cast<int64_t>(itemsize); }

// The dimension along which the source is dense while the target is not, or -1: then tiles pay.
template <class T>
int dense_source_dim(const StridedLoop<2>& loop) {
  constexpr int64_t kSize = sizeof(T);
  const int last = loop.ndim - 1;
  if (last < 1 || loop.strides[0][last] != kSize || loop.strides[1][last] == kSize || loop.strides[1][last] == 0)
    return -1;
  for (int d = 0; d < last; ++d)
    if (loop.strides[1][d] == kSize && loop.shape[d] >= 4) return d;
  return -1;
}

template <class T>
void copy_transposed(StridedLoop<2> loop, int dense) {
  const int last = loop.ndim - 1;
  const int64_t rows = loop.shape[dense], columns = loop.shape[last];
  const int64_t to_stride = loop.strides[0][dense], from_stride = loop.strides[1][last];
  // The other dimensions, each point of which is a plane; planes are cut into strips of rows.
  StridedLoop<2> outer;
  outer.data[0] = loop.data[0];
  outer.data[1] = loop.data[1];
  for (int d = 0; d < last; ++d) {
    if (d == dense) continue;
    outer.shape[outer.ndim] = loop.shape[d];
    for (int i = 0; i < 2; ++i) outer.strides[i][outer.ndim] = loop.strides[i][d];
    outer.numel *= loop.shape[d];
    ++outer.ndim;
  }
  outer.collapse(false);
  constexpr int64_t kT = kTile<T>;
  const int64_t strips = (rows + kT - 1) / kT;
  const int64_t strip_numel = std::min(rows, kT) * columns;
  const int64_t grain = std::max<int64_t>(1, grain_of(sizeof(T)) / 2 / std::max<int64_t>(strip_numel, 1));
  parallel_for(0, outer.numel * strips, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t plane = begin / strips, first = begin % strips;
      const int64_t stop = std::min(strips, first + end - begin);
      outer.for_runs(plane, plane + 1, [&](char* const* p, int64_t) {
        const int64_t r0 = first * kT, r1 = std::min(rows, stop * kT);
        transpose_plane<T>(p[0] + r0 * to_stride, to_stride, p[1] + r0 * static_cast<int64_t>(sizeof(T)), from_stride,
                           r1 - r0, columns);
      });
      begin += stop - first;
    }
  });
}

// Each element of the source a few times in succession: a run for each of them would be short.
template <class T>
void copy_repeated(StridedLoop<2> loop) {
  constexpr int64_t kSize = sizeof(T);
  const int last = --loop.ndim - 1;
  const int64_t times = loop.shape[loop.ndim], ts = loop.strides[0][last], fs = loop.strides[1][last];
  loop.numel /= times;
  parallel_for(0, loop.numel, grain_of(sizeof(T)) / times, [&](int64_t begin, int64_t end) {
    loop.for_runs(begin, end, [&](char* const* p, int64_t n) {
      if (times == 2 && ts == 2 * kSize && fs == kSize) {
        T* __restrict t = reinterpret_cast<T*>(p[0]);
        const T* f = reinterpret_cast<const T*>(p[1]);
        for (int64_t i = 0; i < n; ++i) t[2 * i] = t[2 * i + 1] = f[i];
        return;
      }
      for (int64_t i = 0; i < n; ++i) {
        const T value = *reinterpret_cast<const T*>(p[1] + i * fs);
        T* t = reinterpret_cast<T*>(p[0] + i * ts);
        for (int64_t k = 0; k < times; ++k) t[k] = value;
      }
    });
  });
}

template <class T>
void copy_same_dtype(const StridedLoop<2>& loop) {
  if (const int d = loop.ndim - 1;
      d > 0 && loop.strides[1][d] == 0 && loop.strides[0][d] == static_cast<int64_t>(sizeof(T)) && loop.shape[d] <= 16)
    return copy_repeated<T>(loop);
  if (int dense = dense_source_dim<T>(loop); dense >= 0) return copy_transposed<T>(loop, dense);
  const int last = loop.ndim - 1;
  const int64_t ts = loop.strides[0][last], fs = loop.strides[1][last];
  parallel_for(0, loop.numel, grain_of(sizeof(T)), [&](int64_t begin, int64_t end) {
    loop.for_runs(begin, end, [&](char* const* p, int64_t n) { copy_run<T>(p[0], ts, p[1], fs, n); });
  });
}

void copy_converting(const StridedLoop<2>& loop, DType to, DType from) {
  const ConvertRow convert = convert_row(to, from);
  const int last = loop.ndim - 1;
  const int64_t to_size = static_cast<int64_t>(element_size(to)), from_size = static_cast<int64_t>(element_size(from));
  const int64_t ts = loop.strides[0][last], fs = loop.strides[1][last];
  parallel_for(
      0, loop.numel, grain_of(static_cast<size_t>(std::max(to_size, from_size))), [&](int64_t begin, int64_t end) {
        // Strided sides go through buffers that stay in the first-level cache.
        constexpr int64_t kChunk = 512;
        alignas(64) char to_buffer[kChunk * 16];
        alignas(64) char from_buffer[kChunk * 16];
        loop.for_runs(begin, end, [&](char* const* p, int64_t n) {
          if (ts == to_size && fs == from_size) return convert(p[0], p[1], n);
          for (int64_t i = 0; i < n; i += kChunk) {
            const int64_t m = std::min(kChunk, n - i);
            char* t = p[0] + i * ts;
            const char* f = p[1] + i * fs;
            if (fs != from_size) {
              dispatch_bytes(static_cast<size_t>(from_size),
                             [&]<class T>() { copy_run<T>(from_buffer, from_size, f, fs, m); });
              f = from_buffer;
            }
            if (ts == to_size) {
              convert(t, f, m);
              continue;
            }
            convert(to_buffer, f, m);
            dispatch_bytes(static_cast<size_t>(to_size), [&]<class T>() { copy_run<T>(t, ts, to_buffer, to_size, m); });
          }
        });
      });
}

StridedLoop<2> loop_of(const Tensor& self, const Tensor& src) {
  StridedLoop<2> loop;
  loop.set_shape(self.sizes());
  loop.set(0, self);
  loop.set(1, src);
  loop.collapse();
  return loop;
}

Tensor dense_copy(const Tensor& src, DType dtype) {
  Tensor copy = empty_tensor({DimVector(src.sizes()), dtype, src.device(), geometry::preserved_strides(src)});
  copy_cpu(copy, src, false);
  return copy;
}

}  // namespace

void copy_cpu(const Tensor& self, const Operand& source, bool non_blocking) {
  if (self.numel() == 0) return;
  const Tensor& src = source.tensor();
  if (TG_UNLIKELY(!src.is_cpu())) return copy_from_other_device(self, src, non_blocking);
  if (may_overlap(self, src) && !same_elements(self, src)) return copy_cpu(self, dense_copy(src, src.dtype()), false);
  StridedLoop<2> loop = loop_of(self, src);
  if (self.dtype() == src.dtype()) {
    if (loop.data[0] == loop.data[1]) return;  // the same elements, else there were a copy
    count_work(Work::Copy);
    return dispatch_bytes(self.itemsize(), [&]<class T>() { copy_same_dtype<T>(loop); });
  }
  // A conversion between layouts is a conversion within the source's layout and a transposition.
  const int last = loop.ndim - 1;
  const int64_t from_size = static_cast<int64_t>(src.itemsize());
  bool transposed = false;
  for (int d = 0; d < last; ++d) transposed |= loop.strides[1][d] == from_size && loop.shape[d] >= 16;
  if (transposed && loop.numel >= 4096 && loop.strides[1][last] != from_size && loop.strides[1][last] != 0)
    return copy_cpu(self, dense_copy(src, self.dtype()), false);
  count_work(Work::Copy);
  copy_converting(loop, self.dtype(), src.dtype());
}

void fill_cpu(const Tensor& self, const Operand& value) {
  if (self.numel() == 0) return;
  const Tensor& v = value.tensor();
  if (TG_UNLIKELY(!v.is_cpu())) return copy_from_other_device(self, v, false);
  alignas(16) char bytes[16];
  convert_row(self.dtype(), v.dtype())(bytes, v.data_ptr(), 1);
  StridedLoop<1> loop;
  loop.set_shape(self.sizes());
  loop.set(0, self);
  loop.collapse();
  const int64_t stride = loop.strides[0][loop.ndim - 1];
  bool zero = true;
  for (size_t i = 0; i < self.itemsize(); ++i) zero &= bytes[i] == 0;
  dispatch_bytes(self.itemsize(), [&]<class T>() {
    T bits;
    std::memcpy(&bits, bytes, sizeof(T));
    parallel_for(0, loop.numel, grain_of(sizeof(T)), [&](int64_t begin, int64_t end) {
      loop.for_runs(begin, end, [&](char* const* p, int64_t n) {
        if (stride == static_cast<int64_t>(sizeof(T))) {
          if (zero) {
            std::memset(p[0], 0, static_cast<size_t>(n) * sizeof(T));
            return;
          }
          T* t = reinterpret_cast<T*>(p[0]);
          for (int64_t i = 0; i < n; ++i) t[i] = bits;
        } else {
          for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T*>(p[0] + i * stride) = bits;
        }
      });
    });
  });
}

}  // namespace tapegrad::cpu::TG_ISA
