// Batch and group normalisation with their gradients. A group's or channel's sums are made by one block in double, so
// they have the same bits in every run. Layer norm, instance norm and RMS norm are cases of the group's.
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {
namespace {

// A parameter per channel: of the input's dtype, or float32 beside a 16-bit input; absent: a constant.
template <class T>
struct Parameter {
  using C = compute_t<T>;
  const void* data;
  bool wide;  // elements are C
  TG_DEVICE C at(int64_t c, C absent) const {
    if (data == nullptr) return absent;
    return wide ? static_cast<const C*>(data)[c] : static_cast<C>(load_value(static_cast<const T*>(data) + c));
  }
  TG_DEVICE void put(int64_t c, double value) const {
    if (wide)
      static_cast<C*>(const_cast<void*>(data))[c] = static_cast<C>(value);
    else
      store_value(static_cast<T*>(const_cast<void*>(data)) + c, static_cast<C>(value));
  }
};
template <class T>
Parameter<T> parameter(const Tensor& t) {
  return {t.defined() ? t.data_ptr() : nullptr, t.defined() && t.dtype() == dtype_of_v<compute_t<T>>};
}

struct Pair {
  double a, b;
};
struct AddPairs {
  TG_DEVICE Pair operator()(const Pair& x, const Pair& y) const { return {x.a + y.a, x.b + y.b}; }
};

// ---- groups: rows of `channels` x `spatial` elements, one per (sample, group)

struct GroupLayout {
  int64_t rows, groups, channels, spatial, all_channels;
  TG_HD int64_t length() const { return channels * spatial; }
};
GroupLayout group_layout(const Tensor& input, int64_t samples, int64_t channels, int64_t groups) {
  const int64_t all = samples * channels;
  return {samples * groups, groups, channels / groups, all == 0 ? 0 : input.numel() / all, channels};
}

template <class T>
struct GroupForward {
  using C = compute_t<T>;
  const T* x;
  T* y;
  Parameter<T> weight, bias;
  C* means;
  C* rstds;
  GroupLayout m;
  double eps;
  bool center;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t row) const {
    const int64_t n = m.length(), base = row * n, at = row % m.groups * m.channels;
    double sum = 0;
    C mean = 0;
    if (center) {
      for (int64_t i = g.lane(); i < n; i += g.lanes()) sum += static_cast<double>(load_value(x + base + i));
      mean = static_cast<C>(g.reduce(sum, Sum()) / static_cast<double>(n));
      g.sync();
    }
    double squares = 0;
    for (int64_t i = g.lane(); i < n; i += g.lanes()) {
      const C d = load_value(x + base + i) - mean;
      squares += static_cast<double>(d * d);
    }
    squares = g.reduce(squares, Sum());
    g.sync();
    const C rstd = static_cast<C>(1.0 / math::sqrt(squares / static_cast<double>(n) + eps));
    if (g.lane() == 0) {
      means[row] = mean;
      rstds[row] = rstd;
    }
    for (int64_t i = g.lane(); i < n; i += g.lanes()) {
      const int64_t c = at + i / m.spatial;
      store_value(y + base + i, (load_value(x + base + i) - mean) * rstd * weight.at(c, C(1)) + bias.at(c, C(0)));
    }
  }
};
template <class T>
struct GroupInputGrad {
  using C = compute_t<T>;
  const T *grad, *x;
  T* out;
  const C *means, *rstds;
  Parameter<T> weight;
  GroupLayout m;
  bool center;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t row) const {
    const int64_t n = m.length(), base = row * n, at = row % m.groups * m.channels;
    const C mean = means[row], rstd = rstds[row];
    Pair sums{0, 0};
    for (int64_t i = g.lane(); i < n; i += g.lanes()) {
      const C gw = load_value(grad + base + i) * weight.at(at + i / m.spatial, C(1));
      sums.a += static_cast<double>(gw);
      sums.b += static_cast<double>(gw * (load_value(x + base + i) - mean));
    }
    sums = g.reduce(sums, AddPairs());
    g.sync();
    const double count = static_cast<double>(n), rd = static_cast<double>(rstd);
    const C shift = center ? static_cast<C>(sums.a / count * rd) : C(0);
    const C slope = static_cast<C>(sums.b / count * rd * rd * rd);
    for (int64_t i = g.lane(); i < n; i += g.lanes())
      store_value(out + base + i, load_value(grad + base + i) * weight.at(at + i / m.spatial, C(1)) * rstd - shift -
                                      (load_value(x + base + i) - mean) * slope);
  }
};
// A channel's sums over samples and space.
template <class T>
struct GroupParameterGrad {
  using C = compute_t<T>;
  const T *grad, *x;
  const C *means, *rstds;
  GroupLayout m;
  int64_t samples;
  Parameter<T> weight_grad, bias_grad;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t c) const {
    Pair sums{0, 0};
    for (int64_t i = g.lane(); i < samples * m.spatial; i += g.lanes()) {
      const int64_t sample = i / m.spatial, row = sample * m.groups + c / m.channels;
      const int64_t at = (sample * m.all_channels + c) * m.spatial + i % m.spatial;
      const C v = load_value(grad + at);
      sums.a += static_cast<double>(v * (load_value(x + at) - means[row]) * rstds[row]);
      sums.b += static_cast<double>(v);
    }
    sums = g.reduce(sums, AddPairs());
    g.sync();
    if (g.lane() != 0) return;
    weight_grad.put(c, sums.a);
    bias_grad.put(c, sums.b);
  }
};

// ---- batch norm: channels of `n` samples of `spatial` elements

struct ChannelLayout {
  int64_t n, channels, spatial;
  TG_HD int64_t count() const { return n * spatial; }
  TG_HD int64_t at(int64_t c, int64_t i) const { return (i / spatial * channels + c) * spatial + i % spatial; }
};
ChannelLayout channel_layout(const Tensor& input) {
  ChannelLayout m{input.size(0), input.size(1), 1};
  for (int d = 2; d < input.ndim(); ++d) m.spatial *= input.size(d);
  return m;
}

template <class T>
struct BatchStats {
  using C = compute_t<T>;
  const T* x;
  ChannelLayout m;
  double eps;
  C* mean;
  C* invstd;
  C* var;
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t c) const {
    // Distances from the channel's first element: the squares lose nothing to a large mean.
    const double count = static_cast<double>(m.count());
    const C pivot = m.count() > 0 ? load_value(x + m.at(c, 0)) : C(0);
    Pair sums{0, 0};
    for (int64_t i = g.lane(); i < m.count(); i += g.lanes()) {
      const C d = load_value(x + m.at(c, i)) - pivot;
      sums.a += static_cast<double>(d);
      sums.b += static_cast<double>(d) * static_cast<double>(d);
    }
    sums = g.reduce(sums, AddPairs());
    g.sync();
    if (g.lane() != 0) return;
    const double d = sums.a / count, below = sums.b / count - d * d, v = below < 0 ? 0.0 : below;
    mean[c] = static_cast<C>(static_cast<double>(pivot) + d);
    invstd[c] = static_cast<C>(1.0 / math::sqrt(v + eps));
    var[c] = static_cast<C>(v * count / (count - 1));
  }
};
// y = (x - mean) * weight * invstd + bias; `statistic` is the inverse deviation, or the variance (eval).
template <class T>
struct BatchNormalise {
  using C = compute_t<T>;
  const T* x;
  T* y;
  Parameter<T> weight, bias, mean, statistic;
  bool is_variance;
  double eps;
  ChannelLayout m;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t c = i / m.spatial % m.channels;
    const double s = static_cast<double>(statistic.at(c, C(1)));
    const double is = is_variance ? 1.0 / math::sqrt(s + eps) : s;
    const C scale = static_cast<C>(static_cast<double>(weight.at(c, C(1))) * is);
    store_value(y + i, (load_value(x + i) - mean.at(c, C(0))) * scale + bias.at(c, C(0)));
  }
};
template <class T>
struct BatchSums {
  using C = compute_t<T>;
  const T *grad, *x;
  const C *mean, *invstd;
  ChannelLayout m;
  Parameter<T> weight_grad, bias_grad;
  Pair* sums_out;  // of g and of g (x - mean), per channel
  template <class G>
  TG_DEVICE void operator()(const G& g, int64_t c) const {
    Pair sums{0, 0};
    for (int64_t i = g.lane(); i < m.count(); i += g.lanes()) {
      const int64_t at = m.at(c, i);
      const C v = load_value(grad + at);
      sums.a += static_cast<double>(v);
      sums.b += static_cast<double>(v * (load_value(x + at) - mean[c]));
    }
    sums = g.reduce(sums, AddPairs());
    g.sync();
    if (g.lane() != 0) return;
    sums_out[c] = sums;
    weight_grad.put(c, sums.b * static_cast<double>(invstd[c]));
    bias_grad.put(c, sums.a);
  }
};
template <class T>
struct BatchInputGrad {
  using C = compute_t<T>;
  const T *grad, *x;
  T* out;
  Parameter<T> weight;
  const C *mean, *invstd;
  const Pair* sums;
  ChannelLayout m;
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t c = i / m.spatial % m.channels;
    const double s = static_cast<double>(invstd[c]), w = static_cast<double>(weight.at(c, C(1)));
    const double count = static_cast<double>(m.count());
    const C scale = static_cast<C>(w * s), slope = static_cast<C>(w * s * s * s * sums[c].b / count);
    const C shift = static_cast<C>(w * s * sums[c].a / count);
    store_value(out + i, load_value(grad + i) * scale - (load_value(x + i) - mean[c]) * slope - shift);
  }
};

// One group of threads per channel or row.
template <class Body>
void for_rows(const Work& work, int64_t rows, int64_t length, const Body& body) {
  for_lines(work, rows, length, false, body);
}

}  // namespace

void group_norm_cuda(const Tensor& input, int64_t samples, int64_t channels, int64_t groups, const Tensor& weight,
                     const Tensor& bias, double eps, bool center, const Tensor& output, const Tensor& mean,
                     const Tensor& rstd) {
  const GroupLayout m = group_layout(input, samples, channels, groups);
  const Work work(output.device(), {&input, &weight, &bias, &output, &mean, &rstd});
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    for_rows(work, m.rows, m.length(),
             GroupForward<T>{data_of<T>(input), target_of<T>(output), parameter<T>(weight), parameter<T>(bias),
                             target_of<C>(mean), target_of<C>(rstd), m, eps, center});
  });
}

void group_norm_grad_cuda(const Tensor& output, const Tensor& input, int64_t samples, int64_t channels, int64_t groups,
                          const Tensor& weight, const Tensor& mean, const Tensor& rstd, double, bool center,
                          const Tensor& input_grad, const Tensor& weight_grad, const Tensor& bias_grad) {
  const GroupLayout m = group_layout(input, samples, channels, groups);
  const Work work(input.device(), {&output, &input, &weight, &mean, &rstd, &input_grad, &weight_grad, &bias_grad});
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    for_rows(work, m.rows, m.length(),
             GroupInputGrad<T>{data_of<T>(output), data_of<T>(input), target_of<T>(input_grad), data_of<C>(mean),
                               data_of<C>(rstd), parameter<T>(weight), m, center});
    // Where channels lie side by side, neighbouring threads take neighbouring channels.
    for_lines(work, channels, samples * m.spatial, m.spatial == 1 && channels >= 256,
              GroupParameterGrad<T>{data_of<T>(output), data_of<T>(input), data_of<C>(mean), data_of<C>(rstd), m,
                                    samples, parameter<T>(weight_grad), parameter<T>(bias_grad)});
  });
}

void batch_norm_train_cuda(const Tensor& input, const Tensor& weight, const Tensor& bias, double eps,
                           const Tensor& output, const Tensor& mean, const Tensor& invstd, const Tensor& var) {
  const ChannelLayout m = channel_layout(input);
  const Work work(input.device(), {&input, &weight, &bias, &output, &mean, &invstd, &var});
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    for_lines(work, m.channels, m.count(), m.spatial == 1 && m.channels >= 256,
              BatchStats<T>{data_of<T>(input), m, eps, target_of<C>(mean), target_of<C>(invstd), target_of<C>(var)});
    for_elements(work, input.numel(),
                 BatchNormalise<T>{data_of<T>(input), target_of<T>(output), parameter<T>(weight), parameter<T>(bias),
                                   parameter<T>(mean), parameter<T>(invstd), false, eps, m});
  });
}

void batch_norm_eval_cuda(const Tensor& input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                          const Tensor& var, double eps, const Tensor& out) {
  const ChannelLayout m = channel_layout(input);
  const Work work(input.device(), {&input, &weight, &bias, &mean, &var, &out});
  dispatch_floating(input.dtype(), [&]<class T>() {
    for_elements(work, input.numel(),
                 BatchNormalise<T>{data_of<T>(input), target_of<T>(out), parameter<T>(weight), parameter<T>(bias),
                                   parameter<T>(mean), parameter<T>(var), true, eps, m});
  });
}

void batch_norm_train_grad_cuda(const Tensor& output, const Tensor& input, const Tensor& weight, const Tensor& mean,
                                const Tensor& invstd, double, const Tensor& input_grad, const Tensor& weight_grad,
                                const Tensor& bias_grad) {
  const ChannelLayout m = channel_layout(input);
  const Work work(input.device(), {&output, &input, &weight, &mean, &invstd, &input_grad, &weight_grad, &bias_grad});
  const Workspace sums(static_cast<size_t>(m.channels) * sizeof(Pair), work);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    for_lines(work, m.channels, m.count(), m.spatial == 1 && m.channels >= 256,
              BatchSums<T>{data_of<T>(output), data_of<T>(input), data_of<C>(mean), data_of<C>(invstd), m,
                           parameter<T>(weight_grad), parameter<T>(bias_grad), static_cast<Pair*>(sums.data())});
    for_elements(
        work, input.numel(),
        BatchInputGrad<T>{data_of<T>(output), data_of<T>(input), target_of<T>(input_grad), parameter<T>(weight),
                          data_of<C>(mean), data_of<C>(invstd), static_cast<const Pair*>(sums.data()), m});
  });
}

}  // namespace tapegrad::cuda
