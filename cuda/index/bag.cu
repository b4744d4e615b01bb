// Sums, means and maxima of bags of rows: a column of a bag per thread, rows in their order. Bad indices are skipped
// and bad offsets clamped, with the fault recorded.
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"
#include "tapegrad/cuda/launch/value_fault.h"

namespace tapegrad::cuda {
namespace {

struct Bags {
  const int64_t *index, *bound;
  int64_t count, rows, bags, width, padding;  // count: indices of all bags
  FaultRecord* fault;
  FaultText op, first_sentence, order_sentence, last_sentence;

  TG_DEVICE int64_t bounded(int64_t at) const { return at < 0 ? 0 : at > count ? count : at; }
  // Calls f(place, row) for the rows of bag b.
  template <class F>
  TG_DEVICE void for_rows(int64_t b, const F& f) const {
    const int64_t first = bound[b], last = bound[b + 1];
    if (b == 0 && first != 0) record_value_fault(fault, first_sentence, static_cast<double>(first));
    if (first > last) record_value_fault(fault, order_sentence, static_cast<double>(first));
    if (b == bags - 1 && last > count) record_value_fault(fault, last_sentence, static_cast<double>(last));
    for (int64_t i = bounded(first); i < bounded(last); ++i) {
      const int64_t row = index[i];
      if (row < 0 || row >= rows)
        record_fault(fault, Fault::Index, op, row, rows);
      else if (row != padding)
        f(i, row);
    }
  }
};
Bags bags_of(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t padding) {
  return {data_of<int64_t>(indices),
          data_of<int64_t>(offsets),
          indices.numel(),
          weight.size(0),
          offsets.numel() - 1,
          weight.size(1),
          padding,
          fault_record(weight.device().index),
          "embedding_bag",
          "embedding_bag: offsets[0] has to be 0",
          "embedding_bag: offsets must not fall",
          "embedding_bag: offsets[-1] can not be greater than input's length"};
}

template <class T>
struct BagSum {
  Bags bags;
  const T *weight, *factors;
  bool mean;
  T* out;
  TG_DEVICE void operator()(int64_t i) const {
    using C = compute_t<T>;
    const int64_t column = i % bags.width;
    C sum = C(0);
    int64_t count = 0;
    bags.for_rows(i / bags.width, [&](int64_t place, int64_t row) {
      const C x = load_value(weight + row * bags.width + column);
      sum += factors != nullptr ? load_value(factors + place) * x : x;
      ++count;
    });
    store_value(out + i, mean && count > 0 ? sum / static_cast<C>(count) : sum);
  }
};

template <class T>
struct BagArgmax {
  Bags bags;
  const T* weight;
  int64_t* out;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t column = i % bags.width;
    int64_t best = -1;
    compute_t<T> most = 0;
    bags.for_rows(i / bags.width, [&](int64_t, int64_t row) {
      const compute_t<T> x = load_value(weight + row * bags.width + column);
      if (best >= 0 && !(x > most)) return;
      best = row;
      most = x;
    });
    out[i] = best;
  }
};

}  // namespace

void embedding_bag_cuda(const Tensor& weight, const Tensor& indices, const Tensor& offsets,
                        const Tensor& per_sample_weights, bool mean, int64_t padding_idx, bool, bool,
                        const Tensor& out) {
  const Work work(out.device(), {&weight, &indices, &offsets, &per_sample_weights, &out});
  dispatch_floating(weight.dtype(), [&]<class T>() {
    for_elements(work, out.numel(),
                 BagSum<T>{bags_of(weight, indices, offsets, padding_idx), data_of<T>(weight),
                           data_of<T>(per_sample_weights), mean, target_of<T>(out)});
  });
}

void embedding_bag_argmax_cuda(const Tensor& weight, const Tensor& indices, const Tensor& offsets, int64_t padding_idx,
                               const Tensor& out) {
  const Work work(out.device(), {&weight, &indices, &offsets, &out});
  dispatch_floating(weight.dtype(), [&]<class T>() {
    for_elements(
        work, out.numel(),
        BagArgmax<T>{bags_of(weight, indices, offsets, padding_idx), data_of<T>(weight), target_of<int64_t>(out)});
  });
}

}  // namespace tapegrad::cuda
