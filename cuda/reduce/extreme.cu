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

template <bool kMax, class T>
struct Extreme {
  const T* x;
  T* values;
  int64_t* places;
  int64_t n, inner;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t line) const {
    using C = compute_t<T>;
    const T* first = x + (line / inner * n * inner + line % inner);
    Best<C> best{C{}, -1};
    for (int64_t i = g.lane(); i < n; i += g.lanes()) {
      C v;
      if constexpr (is_half_type<T>)
        v = to_float(first[i * inner]);
      else
        v = first[i * inner];
      best = Better<kMax>()(best, Best<C>{v, i});
    }
    best = g.reduce(best, Better<kMax>());
    if (g.lane() != 0) return;
    places[line] = best.place;
    if (values != nullptr) values[line] = first[best.place * inner];
  }
};

template <bool kMax>
void find(const Tensor& given, const Extent& e, const Tensor& values, const Tensor& places) {
  const Tensor input = clean_flags(given);
  if (e.outer * e.inner == 0) return;
  const Work work(input.device(), {&input, &values, &places});
  dispatch_dtype(input.dtype(), [&]<class T>() {
    if constexpr (!is_complex_type<T>)
      for_lines(work, e.outer * e.inner, e.n, e.inner > 1,
                Extreme<kMax, T>{data_of<T>(input), values.defined() ? target_of<T>(values) : nullptr,
                                 target_of<int64_t>(places), e.n, e.inner});
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
