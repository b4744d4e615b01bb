// Batch and group normalisation with their gradients. A group's sums are made by one warp or block, a channel's by
// parts of fixed sizes (launch/channels.h), so they have the same bits in every run. Layer norm, instance norm and RMS
// norm are cases of the group's.
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/launch/channels.h"
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

// ---- groups: rows of `channels` x `spatial` elements, one per (sample, group)

struct GroupLayout {
  int64_t rows, groups, channels, spatial, all_channels;
  bool packed;  // all rows begin at addresses that packs of 16 bytes may have
  Divider by_spatial;
  TG_HD int64_t length() const { return channels * spatial; }
  // The channel within the group of its element i.
  TG_HD int64_t channel(int64_t i) const {
    if (spatial == 1) return i;
    int64_t c, rest;
    by_spatial.divide(i, c, rest);
    return c;
  }
};
GroupLayout group_layout(const Tensor& input, int64_t samples, int64_t channels, int64_t groups,
                         std::initializer_list<const Tensor*> tensors) {
  const int64_t all = samples * channels, spatial = all == 0 ? 0 : input.numel() / all;
  const int64_t length = channels / groups * spatial;
  return {samples * groups,        groups, channels / groups, spatial, channels, in_packs(length, tensors),
          Divider(spatial, length)};
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
    // Sums of a pack are made in the type of computation, and those of packs in double.
    double sum = 0;
    C mean = 0;
    if (center) {
      for_packs<T>(g, n, m.packed, [&]<int V>(int64_t i) {
        const auto v = load_values<V>(x + base + i);
        C part = 0;
        TG_UNROLL
        for (int j = 0; j < V; ++j) part += v.v[j];
        sum += static_cast<double>(part);
      });
      mean = static_cast<C>(g.reduce(sum, Sum()) / static_cast<double>(n));
      g.sync();
    }
    double squares = 0;
    for_packs<T>(g, n, m.packed, [&]<int V>(int64_t i) {
      const auto v = load_values<V>(x + base + i);
      C part = 0;
      TG_UNROLL
      for (int j = 0; j < V; ++j) part += (v.v[j] - mean) * (v.v[j] - mean);
      squares += static_cast<double>(part);
    });
    squares = g.reduce(squares, Sum());
    g.sync();
    const C rstd = static_cast<C>(1.0 / math::sqrt(squares / static_cast<double>(n) + eps));
    if (g.lane() == 0) {
      means[row] = mean;
      rstds[row] = rstd;
    }
    for_packs<T>(g, n, m.packed, [&]<int V>(int64_t i) {
      auto v = load_values<V>(x + base + i);
      TG_UNROLL
      for (int j = 0; j < V; ++j) {
        const int64_t c = at + m.channel(i + j);
        v.v[j] = (v.v[j] - mean) * rstd * weight.at(c, C(1)) + bias.at(c, C(0));
      }
      store_values<V>(y + base + i, v);
    });
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
    for_packs<T>(g, n, m.packed, [&]<int V>(int64_t i) {
      const auto gv = load_values<V>(grad + base + i), xv = load_values<V>(x + base + i);
      C a = 0, b = 0;
      TG_UNROLL
      for (int j = 0; j < V; ++j) {
        const C gw = gv.v[j] * weight.at(at + m.channel(i + j), C(1));
        a += gw;
        b += gw * (xv.v[j] - mean);
      }
      sums = AddPairs()(sums, {static_cast<double>(a), static_cast<double>(b)});
    });
    sums = g.reduce(sums, AddPairs());
    g.sync();
    const double count = static_cast<double>(n), rd = static_cast<double>(rstd);
    const C shift = center ? static_cast<C>(sums.a / count * rd) : C(0);
    const C slope = static_cast<C>(sums.b / count * rd * rd * rd);
    for_packs<T>(g, n, m.packed, [&]<int V>(int64_t i) {
      auto gv = load_values<V>(grad + base + i);
      const auto xv = load_values<V>(x + base + i);
      TG_UNROLL
      for (int j = 0; j < V; ++j)
        gv.v[j] = gv.v[j] * weight.at(at + m.channel(i + j), C(1)) * rstd - shift - (xv.v[j] - mean) * slope;
      store_values<V>(out + base + i, gv);
    });
  }
};
// A channel's sums over samples and space.
template <class T>
struct GroupParameterGrad {
  using C = compute_t<T>;
  const T *grad, *x;
  const C *means, *rstds;
  int64_t groups, channels;  // channels: of a group
  Parameter<T> weight_grad, bias_grad;
  TG_DEVICE Pair item(int64_t c, int64_t sample, int64_t at) const {
    const int64_t row = sample * groups + (groups == 1 ? 0 : c / channels);
    const C v = load_value(grad + at);
    return {static_cast<double>(v * (load_value(x + at) - means[row]) * rstds[row]), static_cast<double>(v)};
  }
  TG_DEVICE void finish(int64_t c, const Pair& sums) const {
    weight_grad.put(c, sums.a);
    bias_grad.put(c, sums.b);
  }
};

// ---- batch norm: channels of `n` samples of `spatial` elements

ChannelLayout channel_layout(const Tensor& input) {
  int64_t spatial = 1;
  for (int d = 2; d < input.ndim(); ++d) spatial *= input.size(d);
  return {input.size(0), input.size(1), spatial};
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
  // Distances from the channel's first element: the squares lose nothing to a large mean.
  TG_DEVICE C pivot(int64_t c) const { return m.count() > 0 ? load_value(x + m.at(0, c, 0)) : C(0); }
  TG_DEVICE Pair item(int64_t c, int64_t, int64_t at) const {
    const double d = static_cast<double>(load_value(x + at) - pivot(c));
    return {d, d * d};
  }
  TG_DEVICE void finish(int64_t c, const Pair& sums) const {
    const double count = static_cast<double>(m.count()), d = sums.a / count;
    const double below = sums.b / count - d * d, v = below < 0 ? 0.0 : below;
    mean[c] = static_cast<C>(static_cast<double>(pivot(c)) + d);
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
  template <int V>
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t c = m.channel(i);
    const double s = static_cast<double>(statistic.at(c, C(1)));
    const double is = is_variance ? 1.0 / math::sqrt(s + eps) : s;
    const C scale = static_cast<C>(static_cast<double>(weight.at(c, C(1))) * is);
    const C middle = mean.at(c, C(0)), shift = bias.at(c, C(0));
    auto v = load_values<V>(x + i);
    TG_UNROLL
    for (int j = 0; j < V; ++j) v.v[j] = (v.v[j] - middle) * scale + shift;
    store_values<V>(y + i, v);
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
  TG_DEVICE Pair item(int64_t c, int64_t, int64_t at) const {
    const C v = load_value(grad + at);
    return {static_cast<double>(v), static_cast<double>(v * (load_value(x + at) - mean[c]))};
  }
  TG_DEVICE void finish(int64_t c, const Pair& sums) const {
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
  template <int V>
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t c = m.channel(i);
    const double s = static_cast<double>(invstd[c]), w = static_cast<double>(weight.at(c, C(1)));
    const double count = static_cast<double>(m.count());
    const C scale = static_cast<C>(w * s), slope = static_cast<C>(w * s * s * s * sums[c].b / count);
    const C shift = static_cast<C>(w * s * sums[c].a / count), middle = mean[c];
    auto v = load_values<V>(grad + i);
    const auto xv = load_values<V>(x + i);
    TG_UNROLL
    for (int j = 0; j < V; ++j) v.v[j] = v.v[j] * scale - (xv.v[j] - middle) * slope - shift;
    store_values<V>(out + i, v);
  }
};

// One group of threads per row.
template <class Body>
void for_rows(const Work& work, int64_t rows, int64_t length, const Body& body) {
  for_lines(work, rows, length, false, body);
}

}  // namespace

void group_norm_cuda(const Tensor& input, int64_t samples, int64_t channels, int64_t groups, const Tensor& weight,
                     const Tensor& bias, double eps, bool center, const Tensor& output, const Tensor& mean,
                     const Tensor& rstd) {
  const GroupLayout m = group_layout(input, samples, channels, groups, {&input, &output});
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
  const GroupLayout m = group_layout(input, samples, channels, groups, {&input, &output, &input_grad});
  const Work work(input.device(), {&output, &input, &weight, &mean, &rstd, &input_grad, &weight_grad, &bias_grad});
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    for_rows(work, m.rows, m.length(),
             GroupInputGrad<T>{data_of<T>(output), data_of<T>(input), target_of<T>(input_grad), data_of<C>(mean),
                               data_of<C>(rstd), parameter<T>(weight), m, center});
    sum_channels(work, ChannelLayout(samples, channels, m.spatial),
                 GroupParameterGrad<T>{data_of<T>(output), data_of<T>(input), data_of<C>(mean), data_of<C>(rstd),
                                       m.groups, m.channels, parameter<T>(weight_grad), parameter<T>(bias_grad)});
  });
}

void batch_norm_train_cuda(const Tensor& any_input, const Tensor& weight, const Tensor& bias, double eps,
                           const Tensor& output, const Tensor& mean, const Tensor& invstd, const Tensor& var) {
  const Tensor input = contiguous_or_copy(any_input);
  const ChannelLayout m = channel_layout(input);
  const Work work(input.device(), {&input, &weight, &bias, &output, &mean, &invstd, &var});
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    sum_channels(work, m,
                 BatchStats<T>{data_of<T>(input), m, eps, target_of<C>(mean), target_of<C>(invstd), target_of<C>(var)});
    for_element_packs<T>(
        work, input.numel(), m.spatial, {&input, &output},
        BatchNormalise<T>{data_of<T>(input), target_of<T>(output), parameter<T>(weight), parameter<T>(bias),
                          parameter<T>(mean), parameter<T>(invstd), false, eps, m});
  });
}

void batch_norm_eval_cuda(const Tensor& any_input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                          const Tensor& var, double eps, const Tensor& out) {
  const Tensor input = contiguous_or_copy(any_input);
  const ChannelLayout m = channel_layout(input);
  const Work work(input.device(), {&input, &weight, &bias, &mean, &var, &out});
  dispatch_floating(input.dtype(), [&]<class T>() {
    for_element_packs<T>(work, input.numel(), m.spatial, {&input, &out},
                         BatchNormalise<T>{data_of<T>(input), target_of<T>(out), parameter<T>(weight),
                                           parameter<T>(bias), parameter<T>(mean), parameter<T>(var), true, eps, m});
  });
}

void batch_norm_train_grad_cuda(const Tensor& any_output, const Tensor& any_input, const Tensor& weight,
                                const Tensor& mean, const Tensor& invstd, double, const Tensor& input_grad,
                                const Tensor& weight_grad, const Tensor& bias_grad) {
  const Tensor output = contiguous_or_copy(any_output);
  const Tensor input = contiguous_or_copy(any_input);
  const ChannelLayout m = channel_layout(input);
  const Work work(input.device(), {&output, &input, &weight, &mean, &invstd, &input_grad, &weight_grad, &bias_grad});
  const Workspace sums(static_cast<size_t>(m.channels) * sizeof(Pair), work);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    sum_channels(work, m,
                 BatchSums<T>{data_of<T>(output), data_of<T>(input), data_of<C>(mean), data_of<C>(invstd), m,
                              parameter<T>(weight_grad), parameter<T>(bias_grad), static_cast<Pair*>(sums.data())});
    for_element_packs<T>(
        work, input.numel(), m.spatial, {&output, &input, &input_grad},
        BatchInputGrad<T>{data_of<T>(output), data_of<T>(input), target_of<T>(input_grad), parameter<T>(weight),
                          data_of<C>(mean), data_of<C>(invstd), static_cast<const Pair*>(sums.data()), m});
  });
}

}  // namespace tapegrad::cuda
