// Reading and writing at listed places of a tensor: what index, index_put, index_select, index_add, embedding and their
// relatives have in common. Some dimensions of a tensor are replaced by a list of places (byte offsets, checked
// beforehand); the dimensions before the list are called outer, those behind it inner. The other side, the rows, is
// dense: [outer..., places, inner...]. Compiled per instruction set. Writes go through the places in order for each
// element of a row, so that with repeated places the last one wins and sums are the same for any number of threads:
// threads divide the outer and inner elements, never the places.
#pragma once

#include <cstring>
#include <memory>

#include "tapegrad/aten/copy/bytes.h"
#include "tapegrad/aten/copy/strided_loop.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/inline_vector.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {

[[noreturn]] TG_COLD inline void throw_bad_index(const char* op, int64_t index, int64_t dim, int64_t size) {
  // PyTorch's class: RuntimeError where an index names elements, IndexError where it names slices.
  const std::string_view name(op);
  if (name.starts_with("gather") || name.starts_with("scatter"))
    TG_THROW(Runtime, "{}: index {} is out of bounds for dimension {} with size {}", op, index, dim, size);
  TG_THROW(Index, "{}: index {} is out of bounds for dimension {} with size {}", op, index, dim, size);
}

// Raises for an index that is not in [low, size). The checking pass is vectorised (it accumulates sign bits); the bad
// index is searched for only when there is one.
template <class I>
void check_indices(const I* p, int64_t n, int64_t low, int64_t size, int64_t dim, const char* op) {
  // From the back, so that the front is in the cache when it is used next.
  parallel_for(0, n, 32768, [&](int64_t back_begin, int64_t back_end) {
    const int64_t begin = n - back_end, end = n - back_begin;
    uint64_t signs = 0;
    const uint64_t from = static_cast<uint64_t>(low), last = static_cast<uint64_t>(size) - 1;
    for (int64_t i = begin; i < end; ++i) {
      const uint64_t v = static_cast<uint64_t>(static_cast<int64_t>(p[i]));
      signs |= (v - from) | (last - v);
    }
    if (TG_LIKELY(signs >> 63 == 0)) return;
    // Differences of numbers beyond 2^62 may wrap around.
    for (int64_t i = begin; i < end; ++i)
      if (p[i] < low || p[i] >= size) throw_bad_index(op, p[i], dim, size);
  });
}

// A list of places: byte offsets that are sums over index tensors, all checked. They are computed on demand, block by
// block, or once into memory from the caching allocator.
class Places {
 public:
  explicit Places(int64_t count) : count_(count) {}

  // Adds index[i] * stride, negative ones counted from the end where `wrap` says so. Raises Index for the first bad
  // one. `index` is dense, of `count()` elements, int64 or int32.
  void add(const Tensor& index, int64_t size, int64_t stride, bool wrap, int64_t dim, const char* op) {
    const int64_t low = wrap ? -size : 0;
    if (index.dtype() == DType::int32)
      check_indices(static_cast<const int32_t*>(index.data_ptr()), count_, low, size, dim, op);
    else
      check_indices(static_cast<const int64_t*>(index.data_ptr()), count_, low, size, dim, op);
    terms_.push_back({index, wrap ? size : 0, stride});
  }

  int64_t count() const { return count_; }
  // Whether writing `out` could change offsets that are still to be computed.
  bool may_change_with(const Tensor& out) const {
    for (const Term& t : terms_)
      if (may_overlap(out, t.index)) return true;
    return false;
  }

  // Places [first, first + n) into `to`.
  void compute_offsets(int64_t* to, int64_t first, int64_t n) const {
    if (terms_.empty()) std::fill_n(to, n, int64_t{0});
    for (size_t k = 0; k < terms_.size(); ++k) {
      if (terms_[k].index.dtype() == DType::int32)
        add_term<int32_t>(to, terms_[k], first, n, k == 0);
      else
        add_term<int64_t>(to, terms_[k], first, n, k == 0);
    }
  }
  // All of them. Not for several threads at once.
  const int64_t* all() const {
    if (!memory_.defined()) {
      memory_ = empty_tensor({count_}, DType::int64);
      int64_t* to = static_cast<int64_t*>(memory_.data_ptr());
      parallel_for(0, count_, 16384,
                   [&](int64_t begin, int64_t end) { compute_offsets(to + begin, begin, end - begin); });
    }
    return static_cast<const int64_t*>(memory_.data_ptr());
  }

 private:
  struct Term {
    Tensor index;
    int64_t wrap;  // what is added to negative ones
    int64_t stride;
  };

  template <class I>
  static void add_term(int64_t* __restrict to, const Term& t, int64_t first, int64_t n, bool begins) {
    const I* p = static_cast<const I*>(t.index.data_ptr()) + first;
    const int64_t wrap = t.wrap, stride = t.stride;
    if (begins)
      for (int64_t i = 0; i < n; ++i) to[i] = (p[i] + (p[i] < 0 ? wrap : 0)) * stride;
    else
      for (int64_t i = 0; i < n; ++i) to[i] += (p[i] + (p[i] < 0 ? wrap : 0)) * stride;
  }

  InlineVector<Term, 2> terms_;
  mutable Tensor memory_;
  int64_t count_;
};

// to[k] = the element at from + offsets[k] * scale. Unrolled by four with scalar loads: the processors' gather
// instructions are slower than that.
template <class T>
inline void gather_run(T* to, const char* from, const int64_t* offsets, int64_t scale, int64_t n) {
  auto at = [=](int64_t k) {
    T v;
    std::memcpy(&v, from + offsets[k] * scale, sizeof v);
    return v;
  };
  int64_t k = 0;
  for (; k + 4 <= n; k += 4) {
    const T a = at(k), b = at(k + 1), c = at(k + 2), d = at(k + 3);
    to[k] = a;
    to[k + 1] = b;
    to[k + 2] = c;
    to[k + 3] = d;
  }
  for (; k < n; ++k) to[k] = at(k);
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
  int64_t outer_offset(int64_t o) const { return outer.offset(o); }
  bool inner_dense() const {
    return inner.numel == 1 || (inner.ndim == 1 && inner.strides[0][0] == static_cast<int64_t>(itemsize));
  }
  // f(offset, stride, n) for the runs that make up inner elements [begin, end).
  template <class F>
  void inner_runs(int64_t begin, int64_t end, F&& f) const {
    const int64_t stride = inner.strides[0][inner.ndim - 1];
    inner.for_runs(begin, end, [&](char* const* p, int64_t n) { f(p[0] - base, stride, n); });
  }
};

// rows[o, k, i] = tensor[o, places[k], i]; `rows` is the memory of `out`, dense.
template <class T>
void read_places(const PlaceLoop& loop, const Places& places, const Tensor& out) {
  const int64_t count = places.count(), inner = loop.inner.numel;
  const int64_t row_bytes = inner * static_cast<int64_t>(sizeof(T));
  const bool dense = loop.inner_dense();
  char* rows = static_cast<char*>(out.data_ptr());
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, inner));
  // Places that are used once are not worth memory.
  const int64_t* all = loop.outer.numel == 1 && !places.may_change_with(out) ? nullptr : places.all();
  parallel_for(0, loop.outer.numel * count, grain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kBlock = 512;
    int64_t block[kBlock];
    int64_t o = begin / count, first = begin % count;
    while (begin < end) {
      const int64_t n = std::min({count - first, end - begin, all ? INT64_MAX : kBlock});
      if (!all) places.compute_offsets(block, first, n);
      const int64_t* at = all ? all + first : block;
      const char* from = loop.base + loop.outer_offset(o);
      char* to = rows + begin * row_bytes;
      if (inner == 1) {
        gather_run(reinterpret_cast<T*>(to), from, at, 1, n);
      } else if (dense) {
        for (int64_t k = 0; k < n; ++k, to += row_bytes) copy_bytes(to, from + at[k], row_bytes);
      } else {
        for (int64_t k = 0; k < n; ++k) {
          T* t = reinterpret_cast<T*>(to + k * row_bytes);
          const char* place = from + at[k];
          loop.inner_runs(0, inner, [&](int64_t offset, int64_t stride, int64_t m) {
            for (int64_t i = 0; i < m; ++i) *t++ = *reinterpret_cast<const T*>(place + offset + i * stride);
          });
        }
      }
      begin += n;
      if ((first += n) < count) continue;
      first = 0;
      ++o;
    }
  });
}

// What a kernel does with elements of the tensor and of the rows, which may be null.
struct PlaceWriter {
  const void* functor;
  // For each k < count the n elements from to + offsets[k] on, with those from rows + k * row_bytes on.
  void (*dense)(const void* functor, char* to, const int64_t* offsets, int64_t count, const char* rows,
                int64_t row_bytes, int64_t n);
  // n elements, `stride` bytes apart.
  void (*strided)(const void* functor, char* to, int64_t stride, const char* row, int64_t n);
};

// For all writer(tensor[o, places[k], i], rows[o, k, i]).
[[gnu::noinline]] inline void write_places(const PlaceLoop& loop, const Places& places, const char* rows,
                                           const PlaceWriter& writer) {
  const int64_t count = places.count(), inner = loop.inner.numel, item = static_cast<int64_t>(loop.itemsize);
  if (count == 0 || inner == 0) return;
  // Inner elements are cut into pieces of at least a cache line if there are too few outer ones for all threads. Sums
  // do not depend on it.
  const int64_t threads = get_num_threads(), per_piece = std::max<int64_t>(64 / item, 16);
  const int64_t wanted =
      threads == 1 ? 1 : (4 * threads + loop.outer.numel - 1) / std::max<int64_t>(loop.outer.numel, 1);
  const int64_t pieces = std::max<int64_t>(1, std::min<int64_t>(inner / per_piece, wanted));
  const int64_t piece = (inner + pieces - 1) / pieces, row_bytes = inner * item;
  const int64_t grain = std::max<int64_t>(1, 16384 / std::max<int64_t>(1, piece * count));
  const int64_t* at = places.all();
  const bool dense = loop.inner_dense();
  parallel_for(0, loop.outer.numel * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t o = unit / pieces, i0 = unit % pieces * piece, i1 = std::min(inner, i0 + piece);
      if (i0 >= i1) continue;
      char* to = loop.base + loop.outer_offset(o);
      const char* row = rows ? rows + o * count * row_bytes + i0 * item : nullptr;
      if (dense) {
        writer.dense(writer.functor, to + i0 * item, at, count, row, row_bytes, i1 - i0);
        continue;
      }
      for (int64_t k = 0; k < count; ++k) {
        const char* r = row ? row + k * row_bytes : nullptr;
        loop.inner_runs(i0, i1, [&](int64_t offset, int64_t stride, int64_t n) {
          writer.strided(writer.functor, to + at[k] + offset, stride, r, n);
          if (r) r += n * item;
        });
      }
    }
  });
}

// f(element, element of rows or null) for all, with elements of T. Where f has `run`, that takes n elements side by
// side.
template <class T, class F>
struct PlaceFunctor {
  TG_INLINE static void run(const F& f, T* to, const T* row, int64_t n) {
    if constexpr (requires { f.run(to, row, n); })
      f.run(to, row, n);
    else
      for (int64_t i = 0; i < n; ++i) f(to[i], row ? row + i : nullptr);
  }
  static void dense(const void* functor, char* to, const int64_t* offsets, int64_t count, const char* rows,
                    int64_t row_bytes, int64_t n) {
    const F f = *static_cast<const F*>(functor);
    const T* row = reinterpret_cast<const T*>(rows);
    if (n == 1 && row_bytes == static_cast<int64_t>(sizeof(T))) {
      for (int64_t k = 0; k < count; ++k) f(*reinterpret_cast<T*>(to + offsets[k]), row ? row + k : nullptr);
      return;
    }
    const int64_t step = row_bytes / static_cast<int64_t>(sizeof(T));
    for (int64_t k = 0; k < count; ++k)
      run(f, reinterpret_cast<T*>(to + offsets[k]), row ? row + k * step : nullptr, n);
  }
  static void strided(const void* functor, char* to, int64_t stride, const char* rows, int64_t n) {
    const F f = *static_cast<const F*>(functor);
    const T* row = reinterpret_cast<const T*>(rows);
    if (stride == static_cast<int64_t>(sizeof(T))) return run(f, reinterpret_cast<T*>(to), row, n);
    for (int64_t i = 0; i < n; ++i) f(*reinterpret_cast<T*>(to + i * stride), row ? row + i : nullptr);
  }
};
template <class T, class F>
void write_places(const PlaceLoop& loop, const Places& places, const Tensor& rows, const F& f) {
  const char* from = rows.defined() ? static_cast<const char*>(rows.data_ptr()) : nullptr;
  write_places(loop, places, from, {&f, &PlaceFunctor<T, F>::dense, &PlaceFunctor<T, F>::strided});
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
  else if constexpr (std::is_integral_v<T>)
    return static_cast<T>(1U * a * b);  // 16-bit ones would be widened to int, which may not wrap around
  else if constexpr (is_complex_type<T>)
    return complex_product(a, b);
  else
    return static_cast<T>(a * b);
}

}  // namespace tapegrad::cpu::TG_ISA
