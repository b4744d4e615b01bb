// sort, argsort, topk, and single elements of each row by their rank: kthvalue, median, nanmedian; and mode.
#include "tapegrad/aten/index/search.h"
#include "tapegrad/aten/iterate/only_element.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/sort/row_sort.h"

namespace tapegrad::cuda {
namespace {

namespace search = cpu::TG_ISA;

// The `keep` first of each row; `values` or `places` may be absent.
void first_of_rows(const Tensor& input, int64_t dim, bool descending, int64_t keep, const Tensor* values,
                   const Tensor& places) {
  const Rows in(input, dim);
  if (in.rows * keep == 0) return;
  const RowsTarget p(places, dim);
  {
    const Work work(input.device(), {&in.dense, &p.memory});
    sort_rows(work, RowKeys(work, in.dense, descending), in.rows, in.n, keep, p.memory);
    if (values != nullptr) {
      const RowsTarget v(*values, dim);
      work.use(v.memory);
      take_places(work, in.dense, in.n, p.memory, keep, v.memory);
      v.finish();
    }
  }
  p.finish();
}

enum class Wanted : uint8_t { Rank, Median, NanMedian };

// From the sorted rows. NaN have the largest key and stand last.
template <class U>
struct PlaceOfRank {
  const U* sorted;
  const int64_t* order;
  int64_t* places;
  int64_t n, rank;
  U nan;  // the key of NaN; no key where the dtype has none
  bool has_nan;
  Wanted wanted;
  TG_DEVICE void operator()(int64_t row) const {
    int64_t at = rank;
    if (wanted != Wanted::Rank) {
      int64_t numbers = n;
      if (has_nan) {
        const U* keys = sorted + row * n;
        numbers = search::first_not(n, [&](int64_t i) { return keys[i] < nan; });
      }
      at = numbers < n && wanted == Wanted::Median ? numbers : (numbers > 1 ? numbers - 1 : 0) / 2;
    }
    places[row] = order[row * n + at];
  }
};

struct Run {
  int64_t length, first;
};
// The longest run of equal keys, the first of equally long ones: its last place. NaN equals nothing.
struct Longer {
  TG_DEVICE Run operator()(const Run& a, const Run& b) const {
    if (a.length != b.length) return a.length > b.length ? a : b;
    return a.first <= b.first ? a : b;
  }
};
template <class U>
struct PlaceOfMode {
  const U* sorted;
  const int64_t* order;
  int64_t* places;
  int64_t n;
  U nan;
  bool has_nan;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t row) const {
    const U* keys = sorted + row * n;
    Run best{0, n};
    for (int64_t i = g.lane(); i < n; i += g.lanes()) {
      const U key = keys[i];
      const bool alone = has_nan && key == nan;
      if (!alone && i > 0 && keys[i - 1] == key) continue;
      int64_t length = 1;
      if (!alone) length = search::first_not(n - i, [&](int64_t k) { return keys[i + k] == key; });
      best = Longer()(best, Run{length, i});
    }
    best = g.reduce(best, Longer());
    if (g.lane() == 0) places[row] = order[row * n + best.first + best.length - 1];
  }
};

// Sorts all rows, then `find.operator()<U>(work, keys, order, has_nan, nan)` writes a place per row.
template <class F>
void one_of_rows(const Rows& in, const Tensor& values, const Tensor* indices, int64_t keep, F&& find) {
  const Work work(in.dense.device(), {&in.dense, &values});
  if (indices != nullptr) work.use(*indices);
  const RowKeys keys(work, in.dense, false);
  const Device device = in.dense.device();
  const Tensor order = empty_tensor({in.rows, keep}, DType::int64, device);
  const Tensor sorted = empty_tensor({in.rows, keep}, keys.memory.dtype(), device);
  const Tensor places = indices != nullptr ? *indices : empty_tensor({in.rows}, DType::int64, device);
  sort_rows(work, keys, in.rows, in.n, keep, order, sorted);
  const bool has_nan = is_floating_point(in.dense.dtype());
  if (keys.wide())
    find(work, data_of<uint64_t>(sorted), data_of<int64_t>(order), target_of<int64_t>(places), has_nan, ~uint64_t{0});
  else
    find(work, data_of<uint32_t>(sorted), data_of<int64_t>(order), target_of<int64_t>(places), has_nan,
         static_cast<uint32_t>((uint64_t{1} << keys.bits) - 1));
  take_places(work, in.dense, in.n, places, 1, values);
}

void select(const Rows& in, int64_t k, Wanted wanted, const Tensor& values, const Tensor* indices) {
  if (in.rows == 0) return;
  const int64_t keep = wanted == Wanted::Rank ? k : in.n;
  one_of_rows(
      in, values, indices, keep,
      [&]<class U>(const Work& work, const U* sorted, const int64_t* order, int64_t* places, bool has_nan, U nan) {
        for_elements(work, in.rows, PlaceOfRank<U>{sorted, order, places, keep, k - 1, nan, has_nan, wanted});
      });
}

void median_of_all(const Tensor& input, Wanted wanted, const Tensor& out) {
  if (input.numel() == 0) {
    dispatch_dtype(out.dtype(), [&]<class T>() {
      if constexpr (is_floating_type<T>)
        fill_value(out, Scalar(std::numeric_limits<double>::quiet_NaN()));
      else if constexpr (!is_complex_type<T>)
        fill_value(out, Scalar(std::numeric_limits<T>::min()));
    });
    return;
  }
  Rows in(input, 0);
  in.dense = contiguous_or_copy(input);
  in.rows = 1;
  in.n = input.numel();
  select(in, 0, wanted, out, nullptr);
}

}  // namespace

void sort_cuda(const Tensor& input, int64_t dim, bool descending, bool, const Tensor& values, const Tensor& indices) {
  first_of_rows(input, dim, descending, input.ndim() == 0 ? 1 : input.size(dim), &values, indices);
}
void argsort_cuda(const Tensor& input, int64_t dim, bool descending, bool, const Tensor& out) {
  first_of_rows(input, dim, descending, input.ndim() == 0 ? 1 : input.size(dim), nullptr, out);
}
void topk_cuda(const Tensor& input, int64_t k, int64_t dim, bool largest, bool, const Tensor& values,
               const Tensor& indices) {
  if (!wrote_only_element(input, values, indices)) first_of_rows(input, dim, largest, k, &values, indices);
}
void kthvalue_cuda(const Tensor& input, int64_t k, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  if (wrote_only_element(input, values, indices)) return;
  select(Rows(input, dim), k, Wanted::Rank, values, &indices);
}
void median_dim_cuda(const Tensor& input, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  select(Rows(input, dim), 0, Wanted::Median, values, &indices);
}
void nanmedian_dim_cuda(const Tensor& input, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  select(Rows(input, dim), 0, Wanted::NanMedian, values, &indices);
}
void median_cuda(const Tensor& input, const Tensor& out) { median_of_all(input, Wanted::Median, out); }
void nanmedian_cuda(const Tensor& input, const Tensor& out) { median_of_all(input, Wanted::NanMedian, out); }

void mode_cuda(const Tensor& input, int64_t dim, bool, const Tensor& values, const Tensor& indices) {
  if (wrote_only_element(input, values, indices)) return;
  const Rows in(input, dim);
  if (in.rows == 0) return;
  one_of_rows(
      in, values, &indices, in.n,
      [&]<class U>(const Work& work, const U* sorted, const int64_t* order, int64_t* places, bool has_nan, U nan) {
        for_lines(work, in.rows, in.n, false, PlaceOfMode<U>{sorted, order, places, in.n, nan, has_nan});
      });
}

}  // namespace tapegrad::cuda
