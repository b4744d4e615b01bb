// Shared code of the kernels over class labels: labels as int64 with their check, the factor of a sample's gradient,
// and sums of losses.
#pragma once

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/cuda/launch/faults.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda::label {

// A label that is neither a class nor ignore_index is recorded as a fault and then ignored.
struct Labels {
  const int64_t* data;
  int64_t classes, ignore;
  FaultText op;
  FaultRecord* fault;
  // The class of sample i, or -1.
  TG_DEVICE int64_t at(int64_t i) const {
    return data[i] == ignore ? -1 : checked_index(fault, Fault::Label, op, data[i], classes);
  }
};
inline Labels labels_of(const Tensor& int64s, int64_t classes, int64_t ignore, const char* op) {
  return {data_of<int64_t>(int64s), classes, ignore, op, fault_record(int64s.device().index)};
}

template <class T>
struct GradientScale {
  using C = compute_t<T>;
  const T* grad;
  const T* total;
  int64_t reduction;
  TG_DEVICE C operator()(int64_t sample) const {
    const C g = load_value(grad + (reduction == 0 ? sample : 0));
    return reduction == 1 ? g / load_value(total) : g;
  }
};

// Sums of losses and weights (in C), reduced as requested, by one block: lanes of 256, merged in order.
template <class T>
struct WriteReduced {
  using C = compute_t<T>;
  const C* losses;
  const C* weights;
  int64_t n, reduction;
  T* out;
  T* out_total;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t) const {
    double sum = 0, total = 0;
    for (int64_t i = g.lane(); i < n; i += g.lanes()) {
      sum += static_cast<double>(losses[i]);
      total += static_cast<double>(weights[i]);
      if (reduction == 0) store_value(out + i, losses[i]);
    }
    total = g.reduce(total, Sum());
    g.sync();
    sum = g.reduce(sum, Sum());
    if (g.lane() != 0) return;
    store_value(out_total, static_cast<C>(total));
    if (reduction != 0) store_value(out, static_cast<C>(reduction == 1 ? sum / total : sum));
  }
};
template <class T>
void write_reduced(const Work& work, const compute_t<T>* losses, const compute_t<T>* weights, int64_t n,
                   int64_t reduction, const Tensor& out, const Tensor& out_total) {
  launch_block(work, &lines_kernel<BlockGroup, WriteReduced<T>>, Grid(1), kBlock, 0, int64_t{1},
               WriteReduced<T>{losses, weights, n, reduction, target_of<T>(out), target_of<T>(out_total)});
}

}  // namespace tapegrad::cuda::label
