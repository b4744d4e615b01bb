// Reading and writing at listed places of a tensor: what index, index_put, index_select, index_add, embedding and
// their relatives have in common. Some dimensions of a tensor are replaced by a list of places (byte offsets,
// checked beforehand); the dimensions before the list are called outer, those behind it inner. The other side, the
// rows, is dense: [outer..., places, inner...]. Compiled per instruction set.
// Writing goes through the places in order for each element of a row, so that with repeated places the last one
// wins and sums are the same for any number of threads: work is shared out by outer and inner elements.
#pragma once

#include <cstring>
#include <memory>

#include "tapegrad/aten/copy/strided_loop.h"
#include "tapegrad/c10/parallel.h"

namespace tapegrad::cpu::TG_ISA {

// Byte offsets of places, in memory from the caching allocator.
class Places {
 public:
  explicit Places(int64_t count) : memory_(empty_tensor({count}, DType::int64)), count_(count) {}
  int64_t* data() const { return static_cast<int64_t*>(memory_.data_ptr()); }
  int64_t count() const { return count_; }
  int64_t operator[](int64_t i) const { return data()[i]; }

 private:
  Tensor memory_;
  int64_t count_;
};

[[noreturn]] TG_COLD inline void throw_bad_index(const char* op, int64_t index, int64_t dim, int64_t size) {
  // PyTorch's class: RuntimeError where an index names elements, IndexError where it names slices.
  const std::string_view name(op);
  if (name.starts_with("gather") || name.starts_with("scatter"))
    TG_THROW(Runtime, "{}: index {} is out of bounds for dimension {} with size {}", op, index, dim, size);
  TG_THROW(Index, "{}: index {} is out of bounds for dimension {} with size {}", op, index, dim, size);
}

// Adds index[i] * stride (first: writes it), negative ones counted from the end where `wrap` says so. Raises Index
// for the first bad one. `index` is dense, of `places.count()` elements, int64 or int32.
inline void add_places(const Places& places, const Tensor& index, int64_t size, int64_t stride, bool first, bool wrap,
                       int64_t dim, const char* op) {
  int64_t* offsets = places.data();
  auto run = [&]<class I>() {
    const I* p = static_cast<const I*>(index.data_ptr());
    parallel_for(0, places.count(), 16384, [&](int64_t begin, int64_t end) {
      // A pass that only looks is vectorised; the bad one is searched for when it is known to be there.
      bool bad = false;
      const I low = static_cast<I>(wrap ? -size : 0);
      for (int64_t i = begin; i < end; ++i) bad |= p[i] < low || static_cast<int64_t>(p[i]) >= size;
      if (TG_UNLIKELY(bad))
        for (int64_t i = begin; i < end; ++i)
          if (p[i] < low || p[i] >= size) throw_bad_index(op, p[i], dim, size);
      for (int64_t i = begin; i < end; ++i) {
        const int64_t at = p[i] + (p[i] < 0 ? size : 0);
        offsets[i] = (first ? 0 : offsets[i]) + at * stride;
      }
    });
  };
  if (index.dtype() == DType::int32)
    run.template operator()<int32_t>();
  else
    run.template operator()<int64_t>();
}

// The geometry of both sides. `indexed`: bit mask of the dimensions that the places replace; of the others, the
// first `outer_dims` stand before the list.
struct PlaceLoop {
  StridedLoop<1> outer;
  StridedLoop<1> inner;
  char* base;
  size_t itemsize;

  PlaceLoop(const Tensor& t, uint64_t indexed, int outer_dims)
      : base(static_cast<char*>(t.data_ptr())), itemsize(t.itemsize()) {
    int seen = 0;
    for (int d = 0; d < t.ndim(); ++d) {
      if (indexed >> d & 1) continue;
      StridedLoop<1>& loop = seen++ < outer_dims ? outer : inner;
      loop.shape[loop.ndim] = t.impl()->size(d);
      loop.strides[0][loop.ndim] = t.impl()->stride(d) * static_cast<int64_t>(itemsize);
      loop.numel *= t.impl()->size(d);
      ++loop.ndim;
    }
    outer.data[0] = inner.data[0] = base;
    outer.collapse(false);
    inner.collapse(false);
  }
  int64_t outer_offset(int64_t o) const { return offset(outer, o); }
  bool inner_dense() const {
    return inner.numel == 1 || (inner.ndim == 1 && inner.strides[0][0] == static_cast<int64_t>(itemsize));
  }
  // f(offset, stride, n) for the runs that make up inner elements [begin, end).
  template <class F>
  void inner_runs(int64_t begin, int64_t end, F&& f) const {
    const int64_t stride = inner.strides[0][inner.ndim - 1];
    inner.for_runs(begin, end, [&](char* const* p, int64_t n) { f(p[0] - base, stride, n); });
  }

 private:
  static int64_t offset(const StridedLoop<1>& loop, int64_t i) {
    int64_t result = 0;
    for (int d = loop.ndim - 1; d >= 0; --d) {
      result += i % loop.shape[d] * loop.strides[0][d];
      i /= loop.shape[d];
    }
    return result;
  }
};

// rows[o, k, i] = tensor[o, places[k], i]
template <class T>
void read_places(const PlaceLoop& loop, const Places& places, char* rows) {
  const int64_t count = places.count(), inner = loop.inner.numel;
  const int64_t row_bytes = inner * static_cast<int64_t>(sizeof(T));
  const bool dense = loop.inner_dense();
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, inner));
  parallel_for(0, loop.outer.numel * count, grain, [&](int64_t begin, int64_t end) {
    while (begin < end) {
      const int64_t o = begin / count, k0 = begin % count;
      const int64_t k1 = std::min(count, k0 + end - begin);
      const char* from = loop.base + loop.outer_offset(o);
      char* to = rows + begin * row_bytes;
      if (inner == 1) {
        T* t = reinterpret_cast<T*>(to);
        for (int64_t k = k0; k < k1; ++k) t[k - k0] = *reinterpret_cast<const T*>(from + places[k]);
      } else if (dense) {
        for (int64_t k = k0; k < k1; ++k, to += row_bytes)
          std::memcpy(to, from + places[k], static_cast<size_t>(row_bytes));
      } else {
        for (int64_t k = k0; k < k1; ++k) {
          T* t = reinterpret_cast<T*>(to + (k - k0) * row_bytes);
          const char* place = from + places[k];
          loop.inner_runs(0, inner, [&](int64_t offset, int64_t stride, int64_t n) {
            for (int64_t i = 0; i < n; ++i) *t++ = *reinterpret_cast<const T*>(place + offset + i * stride);
          });
        }
      }
      begin += k1 - k0;
    }
  });
}

// f(tensor[o, places[k], i], rows[o, k, i]) for all, with rows of T; null rows: f(element, nullptr).
template <class T, class F>
void write_places(const PlaceLoop& loop, const Places& places, const T* rows, F&& f) {
  const int64_t count = places.count(), inner = loop.inner.numel;
  if (count == 0 || inner == 0) return;
  // Pieces of the inner elements of at least a cache line, fixed by sizes alone.
  const int64_t per_piece = std::max<int64_t>(64 / static_cast<int64_t>(sizeof(T)), 16);
  const int64_t pieces = std::max<int64_t>(1, std::min<int64_t>(inner / per_piece, 64));
  const int64_t piece = (inner + pieces - 1) / pieces;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, piece * count));
  parallel_for(0, loop.outer.numel * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t o = unit / pieces, i0 = unit % pieces * piece, i1 = std::min(inner, i0 + piece);
      char* to = loop.base + loop.outer_offset(o);
      const T* row = rows ? rows + o * count * inner : nullptr;
      if (inner == 1) {
        for (int64_t k = 0; k < count; ++k) f(*reinterpret_cast<T*>(to + places[k]), row ? row + k : nullptr);
        continue;
      }
      for (int64_t k = 0; k < count && i0 < i1; ++k) {
        char* place = to + places[k];
        const T* r = row ? row + k * inner + i0 : nullptr;
        loop.inner_runs(i0, i1, [&](int64_t offset, int64_t stride, int64_t n) {
          if (stride == static_cast<int64_t>(sizeof(T))) {
            T* t = reinterpret_cast<T*>(place + offset);
            for (int64_t i = 0; i < n; ++i) f(t[i], r ? r + i : nullptr);
          } else {
            for (int64_t i = 0; i < n; ++i) f(*reinterpret_cast<T*>(place + offset + i * stride), r ? r + i : nullptr);
          }
          if (r) r += n;
        });
      }
    }
  });
}

struct Bits16 {
  uint64_t low, high;
};

// Calls f with an unsigned integer type of the element's size: for moving elements without looking at them.
template <class F>
decltype(auto) with_bits(size_t itemsize, F&& f) {
  switch (itemsize) {
    case 1:
      return f.template operator()<uint8_t>();
    case 2:
      return f.template operator()<uint16_t>();
    case 4:
      return f.template operator()<uint32_t>();
    case 8:
      return f.template operator()<uint64_t>();
    default:
      return f.template operator()<Bits16>();
  }
}

// a + b in the arithmetic of T; bool: or.
template <class T>
inline T add_values(T a, T b) {
  if constexpr (is_half_type<T>)
    return T(static_cast<float>(a) + static_cast<float>(b));
  else if constexpr (std::is_same_v<T, bool>)
    return a || b;
  else
    return static_cast<T>(a + b);
}
template <class T>
inline T mul_values(T a, T b) {
  if constexpr (is_half_type<T>)
    return T(static_cast<float>(a) * static_cast<float>(b));
  else if constexpr (std::is_same_v<T, bool>)
    return a && b;
  else
    return static_cast<T>(a * b);
}

}  // namespace tapegrad::cpu::TG_ISA
