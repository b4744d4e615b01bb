// Negative log likelihood and cross entropy of labels, with their gradients. Cross entropy does not store the softmax:
// the gradient recomputes it from the saved normaliser.
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/loss/label.h"

namespace tapegrad::cuda {
namespace {

int64_t inner_size(IntSpan sizes) {
  int64_t n = 1;
  for (size_t d = 2; d < sizes.size(); ++d) n *= sizes[d];
  return n;
}

template <class T>
struct Nll {
  using C = compute_t<T>;
  const T* x;
  const T* weight;
  label::Labels labels;
  int64_t inner;
  C* losses;
  C* weights;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t t = labels.at(i);
    C w = 0, loss = 0;
    if (t >= 0) {
      w = weight != nullptr ? load_value(weight + t) : C(1);
      loss = -w * load_value(x + (i / inner * labels.classes + t) * inner + i % inner);
    }
    losses[i] = loss;
    weights[i] = w;
  }
};
template <class T>
struct NllBackward {
  using C = compute_t<T>;
  label::GradientScale<T> scale;
  const T* weight;
  label::Labels labels;
  int64_t inner;
  T* out;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t t = labels.at(i);
    if (t < 0) return;
    const C w = weight != nullptr ? load_value(weight + t) : C(1);
    store_value(out + (i / inner * labels.classes + t) * inner + i % inner, -w * scale(i));
  }
};

// Of some classes: the largest number, and the sum of the exponentials of the distances from it, of all and of all but
// the label. Nothing is taken off where the largest is not finite.
template <class C>
struct TopSums {
  C top, sum, others;
  TG_DEVICE static C base(C top) { return math::isfinite(top) ? top : C(0); }
  TG_DEVICE void move_to(C higher) {
    const C shrink = math::exp(base(top) - base(higher));
    if (sum != C(0)) sum *= shrink, others *= shrink;
    top = higher;
  }
};
template <class C>
struct MergeTops {
  TG_DEVICE TopSums<C> operator()(TopSums<C> a, TopSums<C> b) const {
    const C top = Largest()(a.top, b.top);
    a.move_to(top);
    b.move_to(top);
    return {top, a.sum + b.sum, a.others + b.others};
  }
};

template <class T>
struct CrossEntropy {
  using C = compute_t<T>;
  const T* x;
  const T* weight;
  label::Labels labels;
  double* normaliser;
  C* losses;
  C* weights;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t row) const {
    constexpr int kEach = 4;  // elements of a thread that are loaded at once
    const T* line = x + row * labels.classes;
    const int64_t t = labels.data[row], step = g.lanes();
    TopSums<C> s{-std::numeric_limits<C>::infinity(), 0, 0};
    for (int64_t i = g.lane(); i < labels.classes; i += kEach * step) {
      C v[kEach];
      C top = s.top;
      TG_UNROLL
      for (int j = 0; j < kEach; ++j)
        v[j] = i + j * step < labels.classes ? load_value(line + i + j * step) : -std::numeric_limits<C>::infinity();
      TG_UNROLL
      for (int j = 0; j < kEach; ++j) top = Largest()(v[j], top);
      if (top > s.top) s.move_to(top);
      const C base = TopSums<C>::base(s.top);
      TG_UNROLL
      for (int j = 0; j < kEach; ++j) {
        const C e = math::exp(v[j] - base);
        s.sum += e;
        if (i + j * step != t) s.others += e;
      }
    }
    s = g.reduce(s, MergeTops<C>());
    g.sync();
    if (g.lane() != 0) return;
    const C base = TopSums<C>::base(s.top);
    normaliser[row] = static_cast<double>(base) + static_cast<double>(math::log(s.sum));
    C w = 0, loss = 0;
    if (labels.at(row) >= 0) {
      const C own = load_value(line + t);
      w = weight != nullptr ? load_value(weight + t) : C(1);
      // Where the label is the largest, the loss is the logarithm of one and little more.
      loss = w * (own == base ? math::log1p(s.others) : math::log(s.sum) + (base - own));
    }
    losses[row] = loss;
    weights[row] = w;
  }
};
template <class T>
struct CrossEntropyBackward {
  using C = compute_t<T>;
  const T* x;
  const T* weight;
  label::Labels labels;
  const double* normaliser;
  label::GradientScale<T> scale;
  T* out;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t row) const {
    constexpr int kEach = 4;  // elements of a thread that are loaded at once
    const T* from = x + row * labels.classes;
    T* to = out + row * labels.classes;
    const int64_t t = labels.at(row), step = g.lanes();
    const C factor = t < 0 ? C(0) : scale(row) * (weight != nullptr ? load_value(weight + t) : C(1));
    const double normal = normaliser[row];
    for (int64_t i = g.lane(); i < labels.classes; i += kEach * step) {
      C v[kEach];
      TG_UNROLL
      for (int j = 0; j < kEach; ++j) v[j] = i + j * step < labels.classes ? load_value(from + i + j * step) : C(0);
      TG_UNROLL
      for (int j = 0; j < kEach; ++j) {
        const int64_t column = i + j * step;
        if (column >= labels.classes) break;
        const C distance = static_cast<C>(static_cast<double>(v[j]) - normal);
        const C value = t < 0 ? C(0) : (column == t ? math::expm1(distance) : math::exp(distance)) * factor;
        store_value(to + column, value);
      }
    }
  }
};

}  // namespace

void nll_loss_cuda(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t reduction,
                   int64_t ignore_index, const Tensor& out, const Tensor& out_total) {
  const Tensor ids = contiguous_as(target, DType::int64);
  const Work work(out.device(), {&input, &ids, &weight, &out, &out_total});
  const int64_t n = ids.numel();
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Workspace parts(static_cast<size_t>(2 * n) * sizeof(C), work);
    C* losses = static_cast<C*>(parts.data());
    for_elements(
        work, n,
        Nll<T>{data_of<T>(input), data_of<T>(weight), label::labels_of(ids, input.size(1), ignore_index, "nll_loss"),
               inner_size(input.sizes()), losses, losses + n});
    label::write_reduced<T>(work, losses, losses + n, n, reduction, out, out_total);
  });
}

void nll_loss_backward_cuda(const Tensor& grad_output, const Tensor& target, const Tensor& weight,
                            const Tensor& total_weight, IntSpan sizes, int64_t reduction, int64_t ignore_index,
                            const Tensor& out) {
  const Tensor ids = contiguous_as(target, DType::int64);
  zero_dense(out);
  const Work work(out.device(), {&grad_output, &ids, &weight, &total_weight, &out});
  dispatch_floating(grad_output.dtype(), [&]<class T>() {
    for_elements(work, ids.numel(),
                 NllBackward<T>{{data_of<T>(grad_output), data_of<T>(total_weight), reduction},
                                data_of<T>(weight),
                                label::labels_of(ids, sizes[1], ignore_index, "nll_loss"),
                                inner_size(sizes),
                                target_of<T>(out)});
  });
}

void cross_entropy_cuda(const Tensor& input, const Tensor& target, const Tensor& weight, int64_t reduction,
                        int64_t ignore_index, const Tensor& out, const Tensor& out_log, const Tensor& out_total) {
  const Tensor ids = contiguous_as(target, DType::int64);
  const Work work(out.device(), {&input, &ids, &weight, &out, &out_log, &out_total});
  const int64_t rows = input.size(0), classes = input.size(1);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const Workspace parts(static_cast<size_t>(2 * rows) * sizeof(C), work);
    C* losses = static_cast<C*>(parts.data());
    for_lines(work, rows, classes, false,
              CrossEntropy<T>{data_of<T>(input), data_of<T>(weight),
                              label::labels_of(ids, classes, ignore_index, "cross_entropy"), target_of<double>(out_log),
                              losses, losses + rows});
    label::write_reduced<T>(work, losses, losses + rows, rows, reduction, out, out_total);
  });
}

void cross_entropy_backward_cuda(const Tensor& grad_output, const Tensor& input, const Tensor& target,
                                 const Tensor& weight, const Tensor& log_normaliser, const Tensor& total_weight,
                                 int64_t reduction, int64_t ignore_index, const Tensor& out) {
  const Tensor ids = contiguous_as(target, DType::int64);
  const Work work(out.device(), {&grad_output, &input, &ids, &weight, &log_normaliser, &total_weight, &out});
  dispatch_floating(input.dtype(), [&]<class T>() {
    for_lines(work, input.size(0), input.size(1), false,
              CrossEntropyBackward<T>{data_of<T>(input),
                                      data_of<T>(weight),
                                      label::labels_of(ids, input.size(1), ignore_index, "cross_entropy"),
                                      data_of<double>(log_normaliser),
                                      {data_of<T>(grad_output), data_of<T>(total_weight), reduction},
                                      target_of<T>(out)});
  });
}

}  // namespace tapegrad::cuda
