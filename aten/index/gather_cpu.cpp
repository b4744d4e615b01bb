#include <limits>

#include "tapegrad/aten/copy/bytes.h"
#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/index/half_sums.h"
#include "tapegrad/aten/index/places.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

// The tensor that an index points into, along one dimension, walked in the index's shape: [outer, length, inner].
struct Lines {
  StridedLoop<1> outer, inner;
  char* base;
  int64_t length = 1;  // of the index along dim
  int64_t size = 1;    // of the tensor along dim
  int64_t stride = 0;  // of the tensor along dim, in bytes
  Tensor index;        // dense, int64, all in range

  Lines(const Tensor& t, int64_t dim, const Tensor& given, const char* op) : base(static_cast<char*>(t.data_ptr())) {
    const int64_t d = wrap_dim(dim, t.ndim(), op);
    const int64_t item = static_cast<int64_t>(t.itemsize());
    size = t.ndim() ? t.size(d) : 1;
    index = contiguous_apart(given, given.sizes(), DType::int64, t);  // a write could change what was checked
    outer.data[0] = inner.data[0] = base;
    const int64_t n = index.numel();
    if (n == 0) return;
    for (int k = 0; k < t.ndim() && k < index.ndim(); ++k) {
      if (k == d) continue;
      StridedLoop<1>& loop = k < d ? outer : inner;
      loop.shape[loop.ndim] = index.impl()->size(k);
      loop.strides[0][loop.ndim] = t.impl()->stride(k) * item;
      loop.numel *= index.impl()->size(k);
      ++loop.ndim;
    }
    length = index.ndim() ? index.size(d) : 1;
    stride = t.ndim() ? t.stride(d) * item : 0;
    outer.collapse(false);
    inner.collapse(false);
    check_indices(at(), n, 0, size, d, op);
  }
  const int64_t* at() const { return static_cast<const int64_t*>(index.data_ptr()); }
  bool empty() const { return index.numel() == 0; }
  int64_t inner_stride() const { return inner.strides[0][inner.ndim - 1]; }
};

// Calls a functor for `rows` times n elements of the tensor, whose places are listed from position `at` of the index
// on: the i-th of row r is at base + index[at + r * n + i] * stride + i * step + r * row_step.
using Run = void (*)(const void* functor, char* base, const int64_t* index, int64_t stride, int64_t step, int64_t at,
                     int64_t n, int64_t rows, int64_t row_step);
template <class T, class F>
void run_targets(const void* functor, char* base, const int64_t* index, int64_t stride, int64_t step, int64_t at,
                 int64_t n, int64_t rows, int64_t row_step) {
  const F f = *static_cast<const F*>(functor);
  for (int64_t r = 0; r < rows; ++r, base += row_step) {
    const int64_t end = at + n;
    if (step == 0 && stride == static_cast<int64_t>(sizeof(T))) {  // known to the compiler: no multiplication
      T* to = reinterpret_cast<T*>(base);
      for (; at < end; ++at) f(to[index[at]], at);
    } else {
      for (char* from = base; at < end; ++at, from += step) f(*reinterpret_cast<T*>(from + index[at] * stride), at);
    }
  }
}

constexpr int64_t kShort = 32;  // elements of a line: a call for each would take longer than they do

// Lines that are short, and equally far from each other, if no elements are after `dim`.
bool short_lines(const Lines& lines) {
  return lines.inner.numel == 1 && lines.outer.ndim == 1 && lines.length <= kShort;
}

// each_run() of these: many of them by one call.
void each_short_run(const Lines& lines, Run run, const void* functor, const char* start) {
  constexpr int64_t kBlock = 2048;  // elements
  const int64_t length = lines.length, apart = lines.outer.strides[0][0];
  const int64_t block = std::max<int64_t>(1, kBlock / std::max(length, start ? lines.size : 1));
  parallel_for(0, lines.outer.numel, std::max<int64_t>(1, 8192 / length), [&](int64_t begin, int64_t end) {
    WorkCount done;
    for (int64_t o = begin, many; o < end; o += many) {
      many = std::min(block, end - o);
      char* base = lines.base + o * apart;
      if (start) copy_bytes(base, start + (base - lines.base), many * lines.size * lines.stride);
      if (length == 1)
        run(functor, base, lines.at(), lines.stride, apart, o, many, 1, 0);
      else
        run(functor, base, lines.at(), lines.stride, 0, o * length, length, many, apart);
      done(many * length);
    }
  });
}

// Runs in the order of the index for each element of the tensor; work is shared out by outer and inner elements, so
// that no two threads write one element. `start`: what a line is filled with before (see starts_of_lines), or null.
void each_run(const Lines& lines, Run run, const void* functor, const char* start) {
  if (lines.empty()) return;
  if (short_lines(lines) && (!start || lines.size <= (1 << 16))) return each_short_run(lines, run, functor, start);
  const int64_t inner = lines.inner.numel, length = lines.length;
  const int64_t pieces = std::max<int64_t>(1, std::min<int64_t>(inner / 64, 64));
  const int64_t piece = (inner + pieces - 1) / pieces;
  const int64_t grain = std::max<int64_t>(1, 8192 / std::max<int64_t>(1, piece * length));
  const int64_t* index = lines.at();
  parallel_for(0, lines.outer.numel * pieces, grain, [&](int64_t begin, int64_t end) {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t o = unit / pieces, i0 = unit % pieces * piece, i1 = std::min(inner, i0 + piece);
      char* base = lines.base + lines.outer.offset(o);
      if (inner == 1) {
        if (start)
          serial_for(0, lines.size * lines.stride, [&](int64_t from, int64_t to) {
            copy_bytes(base + from, start + (base - lines.base) + from, to - from);
          });
        serial_for(o * length, (o + 1) * length, [&](int64_t from, int64_t to) {
          run(functor, base, index, lines.stride, 0, from, to - from, 1, 0);
        });
        continue;
      }
      const int64_t step = lines.inner_stride();
      WorkCount done;
      if (inner <= kShort && lines.inner.ndim == 1) {
        for (int64_t j = 0, many; j < length; j += many, done(many * inner)) {
          many = std::min<int64_t>(1024, length - j);
          run(functor, base, index, lines.stride, step, (o * length + j) * inner, inner, many, 0);
        }
        continue;
      }
      for (int64_t j = 0; j < length && i0 < i1; ++j, done(i1 - i0)) {
        int64_t at = (o * length + j) * inner + i0;
        lines.inner.for_runs(i0, i1, [&](char* const* p, int64_t n) {
          run(functor, base + (p[0] - lines.base), index, lines.stride, step, at, n, 1, 0);
          at += n;
        });
      }
    }
  });
}
// f(element of the tensor, position in the index) for all.
template <class T, class F>
void for_targets(const Lines& lines, const F& f, const char* start = nullptr) {
  each_run(lines, &run_targets<T, F>, &f, start);
}
// All of them become what `value` gives as a T.
template <class Value>
void fill_targets(const Lines& lines, DType dtype, Value&& value) {
  alignas(16) char bytes[16];
  dispatch_dtype(dtype, [&]<class T>() {
    const T v = value.template operator()<T>();
    std::memcpy(bytes, &v, sizeof v);
  });
  dispatch_bytes(element_size(dtype), [&]<class T>() {
    T bits;
    std::memcpy(&bits, bytes, sizeof(T));
    for_targets<T>(lines, [bits](T& to, int64_t) { to = bits; });
  });
}

void start_from(const Tensor& input, const Tensor& out) {
  if (!out.is_same(input)) copy_cpu(out, input, false);
}

// `out` starts as a copy of `input`: made here, unless each line can start as a copy when its turn comes. Then the
// memory of the input is returned.
const char* starts_of_lines(const Tensor& input, const Tensor& out, const Lines& lines) {
  if (out.is_same(input)) return nullptr;
  const bool by_line = !lines.empty() && lines.inner.numel == 1 &&
                       lines.stride == static_cast<int64_t>(out.itemsize()) &&
                       lines.outer.numel * lines.size == out.numel() && out.is_contiguous() && input.is_contiguous() &&
                       input.dtype() == out.dtype() && !may_overlap(out, input);
  if (by_line) return static_cast<const char*>(input.data_ptr());
  copy_cpu(out, input, false);
  return nullptr;
}

// Src in the shape of the index and the dtype of `out`, apart from its memory.
Tensor source_rows(const Tensor& src, const Lines& lines, const Tensor& out) {
  if (lines.empty()) return {};
  const IntSpan sizes = lines.index.sizes();
  return contiguous_apart(leading_part(src, sizes), sizes, out.dtype(), out);
}

template <class F>
void for_source(const Lines& lines, const Tensor& out, const Tensor& rows, const F& f, const char* start = nullptr) {
  dispatch_dtype(out.dtype(), [&]<class T>() {
    using U = std::conditional_t<F::kWraps, unsigned_t<T>, T>;
    const U* from = data_of<U>(rows);
    if constexpr (F::kWraps || !is_complex_type<T>)
      for_targets<U>(lines, [f, from](U& to, int64_t at) { to = f(seen(to), seen(from[at])); }, start);
  });
}

// kWraps: on integers as on unsigned ones, and on complex numbers, too.
struct Add {
  static constexpr bool kWraps = true;
  template <class T>
  T operator()(T a, T b) const {
    return add_values(a, b);
  }
};
struct Multiply {
  static constexpr bool kWraps = true;
  template <class T>
  T operator()(T a, T b) const {
    return mul_values(a, b);
  }
};
// NaN wins.
template <bool kMax>
struct Extreme {
  static constexpr bool kWraps = false;
  template <class T>
  T operator()(T a, T b) const {
    using C = compute_t<T>;
    const C x = static_cast<C>(a), y = static_cast<C>(b);
    if constexpr (std::is_floating_point_v<C>) {
      if (std::isnan(x)) return a;
      if (std::isnan(y)) return b;
    }
    return (kMax ? y > x : y < x) ? b : a;
  }
};

constexpr int64_t kFloatsOfLine = 4096;    // what of a line fits beside its source into the first-level cache
constexpr int64_t kFloatsOfStrip = 16384;  // and of columns side by side into the second one
constexpr int64_t kWidthOfStrip = 32;      // columns

// Whether the index goes through all lines along `dim` of `out`, 16-bit numbers that lie densely in `input`, too.
bool dense_half_lines(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& out) {
  if (!is_half(out.dtype()) || out.ndim() == 0 || index.numel() == 0) return false;
  if (!out.is_contiguous() || !input.is_contiguous() || input.dtype() != out.dtype()) return false;
  if (input.sizes() != out.sizes() || index.ndim() != out.ndim()) return false;
  const int64_t along = wrap_dim(dim, out.ndim(), "scatter");
  for (int d = 0; d < out.ndim(); ++d)
    if (d != along && index.size(d) != out.size(d)) return false;
  return out.data_ptr() == input.data_ptr() || !may_overlap(out, input);
}

// In order. Places and numbers of four are read before the first of them is written, which might be one of them for all
// that compilers and processors know.
template <class F>
void combine_at(float* sums, const int64_t* index, const float* part, int64_t n, F&& f) {
  int64_t i = 0;
  for (; i + 4 <= n; i += 4) {
    float *p = sums + index[i], *q = sums + index[i + 1], *r = sums + index[i + 2], *s = sums + index[i + 3];
    const float x = part[i], y = part[i + 1], z = part[i + 2], w = part[i + 3];
    *p = f(*p, x);
    *q = f(*q, y);
    *r = f(*r, z);
    *s = f(*s, w);
  }
  for (; i < n; ++i) sums[index[i]] = f(sums[index[i]], part[i]);
}

// Lines of 16-bit numbers: each is combined in a copy in float, which is rounded once.
template <class F>
void combine_half_lines(const Tensor& input, const Lines& lines, const Tensor& rows, const Tensor& out, const F& f) {
  const ConvertRow widen = convert_row(DType::float32, out.dtype()), round = convert_row(out.dtype(), DType::float32);
  const auto* start = static_cast<const BFloat16*>(input.data_ptr());  // either format: 16 bits
  const auto* from = static_cast<const BFloat16*>(rows.data_ptr());
  auto* to = static_cast<BFloat16*>(out.data_ptr());
  const int64_t size = lines.size, length = lines.length, grain = std::max<int64_t>(1, 8192 / (size + length));
  parallel_for(0, lines.outer.numel, grain, [&](int64_t begin, int64_t end) {
    constexpr int64_t kPart = 1024;
    alignas(64) float sums[kFloatsOfLine];
    alignas(64) float part[kPart];
    WorkCount done;
    for (int64_t line = begin; line < end; ++line) {
      widen(sums, start + line * size, size);
      for (int64_t at = line * length, stop = at + length; at < stop; at += kPart) {
        const int64_t n = std::min(kPart, stop - at), *index = lines.at() + at;
        done(n);
        widen(part, from + at, n);
        combine_at(sums, index, part, n, f);
      }
      round(to + line * size, sums, size);
    }
  });
}

// Lines of 16-bit numbers: each is filled as one of 32-bit numbers, because short stores to any place take longer.
void scatter_half_lines(const Tensor& input, const Lines& lines, const Tensor& rows, const Tensor& out) {
  const uint16_t *start = data_of<uint16_t>(input), *from = data_of<uint16_t>(rows);
  auto* to = static_cast<uint16_t*>(out.data_ptr());
  const int64_t size = lines.size, length = lines.length, grain = std::max<int64_t>(1, 8192 / (size + length));
  parallel_for(0, lines.outer.numel, grain, [&](int64_t begin, int64_t end) {
    alignas(64) uint32_t wide[kFloatsOfLine];
    for (int64_t line = begin; line < end; ++line) {
      const int64_t* index = lines.at() + line * length;
      std::copy(start + line * size, start + (line + 1) * size, wide);
      serial_for(0, length, [&](int64_t first, int64_t last) {
        for (int64_t i = first; i < last; ++i) wide[index[i]] = from[line * length + i];
      });
      for (int64_t i = 0; i < size; ++i) to[line * size + i] = static_cast<uint16_t>(wide[i]);
    }
  });
}

// Columns of 16-bit numbers are combined in float, too, strip by strip. A strip of its own lies densely in the cache;
// rows of the tensor can be a power of two apart, and then share few places of it.
template <class F>
void combine_half_columns(const Tensor& input, const Lines& lines, const Tensor& rows, const Tensor& out, const F& f) {
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (is_half_type<T>) {
      const T *start = data_of<T>(input), *from = data_of<T>(rows);
      T* to = static_cast<T*>(out.data_ptr());
      const int64_t size = lines.size, length = lines.length, inner = lines.inner.numel;
      const int64_t strips = (inner + kWidthOfStrip - 1) / kWidthOfStrip;
      const int64_t grain = std::max<int64_t>(1, 8192 / (kWidthOfStrip * (size + length)));
      parallel_for(0, lines.outer.numel * strips, grain, [&](int64_t begin, int64_t end) {
        alignas(64) float sums[kFloatsOfStrip];
        alignas(64) float part[kWidthOfStrip];
        WorkCount done;
        for (int64_t unit = begin; unit < end; ++unit) {
          const int64_t outer = unit / strips, first = unit % strips * kWidthOfStrip;
          const int64_t width = std::min(kWidthOfStrip, inner - first), place = outer * size * inner + first;
          for (int64_t k = 0; k < size; ++k) blocks::copy(width, sums + k * kWidthOfStrip, start + place + k * inner);
          for (int64_t j = 0, at = outer * length * inner + first; j < length; ++j, at += inner, done(width)) {
            const int64_t* index = lines.at() + at;
            blocks::copy(width, part, from + at);
            for (int64_t i = 0; i < width; ++i) {
              float& sum = sums[index[i] * kWidthOfStrip + i];
              sum = f(sum, part[i]);
            }
          }
          for (int64_t k = 0; k < size; ++k) blocks::copy(width, to + place + k * inner, sums + k * kWidthOfStrip);
        }
      });
    }
  });
}

template <class F>
void combine(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src, const Tensor& out,
             const char* op, const F& f) {
  if (dense_half_lines(input, dim, index, out)) {
    const Lines lines(out, dim, index, op);
    const int64_t inner = lines.inner.numel;
    if (inner == 1 && lines.size <= kFloatsOfLine)
      return combine_half_lines(input, lines, source_rows(src, lines, out), out, f);
    if (inner >= kWidthOfStrip / 2 && lines.size * kWidthOfStrip <= kFloatsOfStrip)
      return combine_half_columns(input, lines, source_rows(src, lines, out), out, f);
  }
  const HalfSums target(out, index.numel());
  const Lines lines(target.sums, dim, index, op);
  const Tensor rows = source_rows(src, lines, target.sums);
  for_source(lines, target.sums, rows, f, starts_of_lines(input, target.sums, lines));
  target.finish();
}

// use(what joins two elements)
template <class Use>
void with_combination(std::string_view reduce, Use&& use) {
  if (reduce == "sum" || reduce == "mean")
    use(Add());
  else if (reduce == "prod")
    use(Multiply());
  else if (reduce == "amax")
    use(Extreme<true>());
  else
    use(Extreme<false>());
}

// What a reduction starts from where the tensor's own element does not count.
template <class T>
T identity(std::string_view reduce) {
  using C = compute_t<T>;
  if (reduce == "prod") return convert_value<T>(1);
  if constexpr (!is_complex_type<T>) {
    const bool max = reduce == "amax";
    if (max || reduce == "amin") {
      if constexpr (std::is_floating_point_v<C>)
        return T(max ? -std::numeric_limits<C>::infinity() : std::numeric_limits<C>::infinity());
      else
        return max ? std::numeric_limits<T>::lowest() : std::numeric_limits<T>::max();
    }
  }
  return convert_value<T>(0);
}

// An index that is expanded over all dimensions behind `d` takes whole rows. False if it is not, or rows are not dense.
bool gather_rows(const Tensor& input, int64_t d, const Tensor& index, const Tensor& out) {
  DimVector sizes(index.sizes());
  int64_t row = 1;
  for (int64_t k = index.ndim() - 1; k > d; --k) {
    const int dim = static_cast<int>(k);
    if (index.impl()->stride(dim) != 0 || (index.size(k) != 1 && input.impl()->stride(dim) != row)) return false;
    row *= index.size(k);
    sizes[k] = 1;
  }
  if (row <= 1 || index.numel() == 0) return false;
  const Lines lines(input, d, alias_tensor(index, sizes, index.strides(), index.storage_offset()), "gather");
  const int64_t bytes = row * static_cast<int64_t>(out.itemsize());
  char* to = static_cast<char*>(out.data_ptr());
  parallel_for(0, lines.index.numel(), std::max<int64_t>(1, (128 << 10) / bytes), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const char* base = lines.base + lines.outer.offset(i / lines.length);
      copy_bytes(to + i * bytes, base + lines.at()[i] * lines.stride, bytes);
    }
  });
  return true;
}

}  // namespace

void gather_cpu(const Tensor& input, int64_t dim, const Tensor& index, bool, const Tensor& out) {
  if (gather_rows(input, wrap_dim(dim, input.ndim(), "gather"), index, out)) return;
  const Lines lines(input, dim, index, "gather");
  if (lines.empty()) return;
  const int64_t inner = lines.inner.numel, length = lines.length;
  const int64_t* p = lines.at();
  dispatch_bytes(out.itemsize(), [&]<class T>() {
    T* to = static_cast<T*>(out.data_ptr());
    if (short_lines(lines)) {
      const int64_t apart = lines.outer.strides[0][0];
      return parallel_for(0, lines.outer.numel, 16384 / length, [&](int64_t begin, int64_t end) {
        const char* base = lines.base + begin * apart;
        for (int64_t at = begin * length; at < end * length; base += apart)
          for (const int64_t stop = at + length; at < stop; ++at)
            to[at] = *reinterpret_cast<const T*>(base + p[at] * lines.stride);
      });
    }
    // Lines along dim itself if no elements are after it, else along these elements.
    const int64_t line = inner == 1 ? length : inner, lines_per_outer = inner == 1 ? 1 : length;
    parallel_for(0, out.numel(), 16384, [&](int64_t begin, int64_t end) {
      while (begin < end) {
        const int64_t row = begin / line, first = begin % line, n = std::min(line - first, end - begin);
        const char* base = lines.base + lines.outer.offset(row / lines_per_outer);
        if (inner == 1) {
          if (lines.stride == static_cast<int64_t>(sizeof(T)))
            gather_run(to + begin, base, p + begin, static_cast<int64_t>(sizeof(T)), n);
          else
            gather_run(to + begin, base, p + begin, lines.stride, n);
        } else {
          const int64_t step = lines.inner_stride();
          int64_t at = begin;
          auto take = [&](const char* from, int64_t m) {
            for (int64_t i = 0; i < m; ++i, ++at)
              to[at] = *reinterpret_cast<const T*>(from + p[at] * lines.stride + i * step);
          };
          if (lines.inner.ndim == 1)
            take(base + first * step, n);
          else
            lines.inner.for_runs(first, first + n,
                                 [&](char* const* q, int64_t m) { take(base + (q[0] - lines.base), m); });
        }
        begin += n;
      }
    });
  });
}

void scatter_src_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src, const Tensor& out) {
  const Lines lines(out, dim, index, "scatter");
  const Tensor rows = source_rows(src, lines, out);
  if (dense_half_lines(input, dim, index, out) && lines.inner.numel == 1 && lines.size <= kFloatsOfLine &&
      lines.length >= lines.size / 4)  // else copying the line does not pay
    return scatter_half_lines(input, lines, rows, out);
  const char* start = starts_of_lines(input, out, lines);
  dispatch_bytes(out.itemsize(), [&]<class T>() {
    const T* from = data_of<T>(rows);
    for_targets<T>(lines, [from](T& to, int64_t at) { to = from[at]; }, start);
  });
}

void scatter_value_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Scalar& value, const Tensor& out) {
  const Lines lines(out, dim, index, "scatter");
  start_from(input, out);
  fill_targets(lines, out.dtype(), [&]<class T>() { return value.to<T>(); });
}

void scatter_add_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src, const Tensor& out) {
  combine(input, dim, index, src, out, "scatter_add", Add());
}

void scatter_src_reduce_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src,
                            std::string_view reduce, const Tensor& out) {
  if (reduce == "add")
    combine(input, dim, index, src, out, "scatter_add", Add());
  else
    combine(input, dim, index, src, out, "scatter", Multiply());
}

void scatter_value_reduce_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Scalar& value,
                              std::string_view reduce, const Tensor& out) {
  const Lines lines(out, dim, index, "scatter");
  start_from(input, out);
  const bool add = reduce == "add";
  dispatch_dtype(out.dtype(), [&]<class T>() {
    using U = unsigned_t<T>;
    const U v = static_cast<U>(value.to<T>());
    for_targets<U>(lines, [v, add](U& to, int64_t) { to = add ? add_values(seen(to), v) : mul_values(seen(to), v); });
  });
}

void scatter_reduce_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src,
                        std::string_view reduce, bool include_self, const Tensor& out) {
  if (include_self && reduce != "mean")
    return with_combination(reduce, [&](auto f) { combine(input, dim, index, src, out, "scatter_reduce", f); });
  const HalfSums target(out, index.numel());
  const Tensor& sums = target.sums;
  const Lines lines(sums, dim, index, "scatter_reduce");
  const Tensor rows = source_rows(src, lines, sums);
  start_from(input, sums);
  if (lines.empty()) return target.finish();
  if (!include_self) fill_targets(lines, sums.dtype(), [&]<class T>() { return identity<T>(reduce); });
  with_combination(reduce, [&](auto f) { for_source(lines, sums, rows, f); });
  if (reduce != "mean") return target.finish();
  Tensor count = empty_tensor(out.sizes(), DType::int64);
  fill_cpu(count, Operand(include_self ? 1 : 0));
  for_targets<int64_t>(Lines(count, dim, index, "scatter_reduce"), [](int64_t& n, int64_t) { ++n; });
  const int64_t* n = static_cast<const int64_t*>(count.data_ptr());
  dispatch_dtype(sums.dtype(), [&]<class T>() {
    T* p = static_cast<T*>(sums.data_ptr());
    parallel_for(0, sums.numel(), 16384, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        if (n[i] <= 1) continue;
        if constexpr (std::is_integral_v<T>) {  // towards minus infinity, as floor division
          const int64_t v = static_cast<int64_t>(p[i]);
          p[i] = static_cast<T>(v / n[i] - (v % n[i] < 0));
        } else if constexpr (is_complex_type<T>) {
          p[i] /= static_cast<typename T::value_type>(n[i]);
        } else {
          p[i] = T(static_cast<compute_t<T>>(p[i]) / static_cast<compute_t<T>>(n[i]));
        }
      }
    });
  });
  target.finish();
}

}  // namespace tapegrad::cpu::TG_ISA
