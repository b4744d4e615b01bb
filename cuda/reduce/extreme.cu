// argmax, argmin, and max and min along a dimension with their places: the first of equal ones, NaN before all others.
#include "tapegrad/aten/copy/flags.h"
#include "tapegrad/aten/iterate/along_dim.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

template <class C>
struct Best {
  C value;
  int64_t place;  // -1: none yet
};
template <bool kMax>
struct Better {
  template <class C>
  TG_DEVICE Best<C> operator()(const Best<C>& a, const Best<C>& b) const {
    if (a.place < 0) return b;
    if (b.place < 0) return a;
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan != b_nan) return a_nan ? a : b;
    if (!a_nan && (kMax ? a.value > b.value : a.value < b.value)) return a;
    if (!a_nan && (kMax ? b.value > a.value : b.value < a.value)) return b;
    return a.place < b.place ? a : b;
  }
};

// A line may be cut into parts, whose results are merged by a second kernel.
template <bool kMax, class T>
struct Extreme {
  using C = compute_t<T>;
  const T* x;
  T* values;
  int64_t* places;
  int64_t n, inner, parts, part;  // part: elements of each
  Best<C>* partial;               // [lines, parts] where there are several

  TG_DEVICE const T* line_at(int64_t line) const { return x + (line / inner * n * inner + line % inner); }
  TG_DEVICE static C load(const T* p) {
    if constexpr (is_half_type<T>)
      return to_float(*p);
    else
      return *p;
  }
  TG_DEVICE void give(int64_t line, const Best<C>& best) const {
    places[line] = best.place;
    if (values != nullptr) values[line] = line_at(line)[best.place * inner];
  }
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t number) const {
    constexpr int kEach = 4;  // elements of a thread that are loaded at once
    const int64_t line = parts == 1 ? number : number / parts, begin = (parts == 1 ? 0 : number % parts) * part;
    const int64_t end = begin + part < n ? begin + part : n, step = g.lanes();
    const T* first = line_at(line);
    Best<C> best{C{}, -1};
    const auto look = [&](C v, int64_t i) {  // places rise, so that an equal one stays behind
      if (best.place < 0 || (kMax ? v > best.value : v < best.value) || (v != v && best.value == best.value))
        best = {v, i};
    };
    int64_t i = begin + g.lane();
    for (; i + (kEach - 1) * step < end; i += kEach * step) {
      C v[kEach];
      TG_UNROLL
      for (int j = 0; j < kEach; ++j) v[j] = load(first + (i + j * step) * inner);
      TG_UNROLL
      for (int j = 0; j < kEach; ++j) look(v[j], i + j * step);
    }
    for (; i < end; i += step) look(load(first + i * inner), i);
    best = g.reduce(best, Better<kMax>());
    if (g.lane() != 0) return;
    if (parts == 1)
      give(line, best);
    else
      partial[number] = best;
  }
};
template <bool kMax, class T>
struct MergeExtremes {
  Extreme<kMax, T> all;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    Best<compute_t<T>> best{{}, -1};
    for (int64_t p = g.lane(); p < all.parts; p += g.lanes())
      best = Better<kMax>()(best, all.partial[line * all.parts + p]);
    best = g.reduce(best, Better<kMax>());
    if (g.lane() == 0) all.give(line, best);
  }
};

template <bool kMax>
void find(const Tensor& given, const Extent& e, const Tensor& values, const Tensor& places) {
  const Tensor input = clean_flags(given);
  const int64_t lines = e.outer * e.inner;
  if (lines == 0) return;
  constexpr int64_t kPart = 16384, kFewLines = 256;
  const int64_t parts = lines < kFewLines && e.n >= 2 * kPart ? std::min<int64_t>((e.n + kPart - 1) / kPart, 1024) : 1;
  const Work work(input.device(), {&input, &values, &places});
  dispatch_dtype(input.dtype(), [&]<class T>() {
    if constexpr (!is_complex_type<T>) {
      using B = Best<compute_t<T>>;
      const Workspace partial(parts == 1 ? 0 : static_cast<size_t>(lines * parts) * sizeof(B), work);
      const Extreme<kMax, T> body{data_of<T>(input),
                                  values.defined() ? target_of<T>(values) : nullptr,
                                  target_of<int64_t>(places),
                                  e.n,
                                  e.inner,
                                  parts,
                                  (e.n + parts - 1) / parts,
                                  static_cast<B*>(partial.data())};
      for_lines(work, lines * parts, body.part, parts == 1 && e.inner > 1, body);
      if (parts > 1) for_lines(work, lines, parts, false, MergeExtremes<kMax, T>{body});
    }
  });
}

}  // namespace

void argmax_cuda(const Tensor& input, std::optional<int64_t> dim, bool, const Tensor& out) {
  find<true>(input, extent_of(input, dim), {}, out);
}
void argmin_cuda(const Tensor& input, std::optional<int64_t> dim, bool, const Tensor& out) {
  find<false>(input, extent_of(input, dim), {}, out);
}
void max_dim_cuda(const Tensor& input, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  find<true>(input, Extent(input, dim), values, indices);
}
void min_dim_cuda(const Tensor& input, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  find<false>(input, Extent(input, dim), values, indices);
}

}  // namespace tapegrad::cuda
