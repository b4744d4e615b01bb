// Normalisation over groups of channels of one sample, which layer norm (every element of the row a channel of one
// element), group norm, instance norm (one channel a group) and RMS norm (no mean) are cases of.
#include <cmath>
#include <vector>

#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/norm/lane_sums.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

// Sizes of a call: rows of `channels` x `spatial` elements, one per (sample, group).
struct Layout {
  int64_t rows, groups, channels, spatial, all_channels;
  int64_t length() const { return channels * spatial; }
  int64_t grain() const { return 16384 / std::max<int64_t>(length(), 1) + 1; }
};

Layout layout_of(const Tensor& input, int64_t samples, int64_t channels, int64_t groups) {
  int64_t all = samples * channels;
  return {samples * groups, groups, channels / groups, all == 0 ? 0 : input.numel() / all, channels};
}

// A parameter in the type that is computed in; empty when absent.
template <class C>
std::vector<C> load(const Tensor& t) {
  std::vector<C> r;
  if (!t.defined()) return r;
  r.resize(static_cast<size_t>(t.numel()));
  dispatch_floating(t.dtype(), [&]<class P>() {
    for (size_t i = 0; i < r.size(); ++i) r[i] = static_cast<C>(static_cast<compute_t<P>>(target_of<P>(t)[i]));
  });
  return r;
}

// One result per channel, in the dtype of the parameter.
template <class C>
void store(const C* values, const Tensor& to) {
  dispatch_floating(to.dtype(), [&]<class P>() {
    for (int64_t i = 0; i < to.numel(); ++i) target_of<P>(to)[i] = static_cast<P>(static_cast<compute_t<P>>(values[i]));
  });
}

template <class T>
void forward(const Layout& m, const T* input, const std::vector<compute_t<T>>& weight,
             const std::vector<compute_t<T>>& bias, double eps, bool center, T* output, compute_t<T>* means,
             compute_t<T>* rstds) {
  using C = compute_t<T>;
  int64_t n = m.length();
  parallel_for(0, m.rows, m.grain(), [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) {
      const T* x = input + r * n;
      T* y = output + r * n;
      C mean = 0;
      if (center) mean = static_cast<C>(lane_sum<C>(n, [](C v) { return v; }, x) / static_cast<double>(n));
      auto squared = [mean](C v) { return (v - mean) * (v - mean); };
      C rstd = static_cast<C>(1.0 / std::sqrt(lane_sum<C>(n, squared, x) / static_cast<double>(n) + eps));
      means[r] = mean;
      rstds[r] = rstd;
      int64_t at = r % m.groups * m.channels;
      const C* w = weight.empty() ? nullptr : weight.data() + at;
      const C* b = bias.empty() ? nullptr : bias.data() + at;
      if (m.spatial == 1) {
        if (w && b)
          blocks::map(n, y, [=](C v, C scale, C shift) { return (v - mean) * rstd * scale + shift; }, x, w, b);
        else if (w)
          blocks::map(n, y, [=](C v, C scale) { return (v - mean) * rstd * scale; }, x, w);
        else if (b)
          blocks::map(n, y, [=](C v, C shift) { return (v - mean) * rstd + shift; }, x, b);
        else
          blocks::map(n, y, [=](C v) { return (v - mean) * rstd; }, x);
      } else {
        for (int64_t c = 0; c < m.channels; ++c) {
          C scale = w ? rstd * w[c] : rstd, shift = b ? b[c] : C(0);
          blocks::map(m.spatial, y + c * m.spatial, [=](C v) { return (v - mean) * scale + shift; }, x + c * m.spatial);
        }
      }
    }
  });
}

template <class T>
struct Backward {
  using C = compute_t<T>;
  const Layout& m;
  const T *grad, *input;
  const C *weight, *means, *rstds;  // weight: all channels, or null
  bool center;
  T* grad_input;

  // One row; adds to the sums per channel of g * xhat and of g.
  void row(int64_t r, C* sum_gx, C* sum_g) const {
    int64_t n = m.length(), s = m.spatial, at = r % m.groups * m.channels;
    const T *g = grad + r * n, *x = input + r * n;
    T* out = grad_input + r * n;
    C mean = means[r], rstd = rstds[r];
    const C* w = weight ? weight + at : nullptr;
    double a = 0, b = 0;  // sums of g * w and of g * w * (x - mean)
    if (s == 1) {
      if (w) {
        lane_sums<C>(
            n, [](C gi, C wi, C) { return gi * wi; }, [=](C gi, C wi, C xi) { return gi * wi * (xi - mean); }, a, b, g,
            w, x);
      } else {
        lane_sums<C>(n, [](C gi, C) { return gi; }, [=](C gi, C xi) { return gi * (xi - mean); }, a, b, g, x);
      }
      auto add = [=](int64_t i, C gi, C xi) {
        sum_gx[at + i] += gi * (xi - mean) * rstd;
        sum_g[at + i] += gi;
      };
      blocks::visit(n, add, g, x);
    } else {
      for (int64_t c = 0; c < m.channels; ++c) {
        double ga = 0, gb = 0;
        lane_sums<C>(
            s, [](C gi, C) { return gi; }, [=](C gi, C xi) { return gi * (xi - mean); }, ga, gb, g + c * s, x + c * s);
        double scale = w ? static_cast<double>(w[c]) : 1.0;
        a += ga * scale;
        b += gb * scale;
        sum_gx[at + c] += static_cast<C>(gb * static_cast<double>(rstd));
        sum_g[at + c] += static_cast<C>(ga);
      }
    }
    double rd = static_cast<double>(rstd), count = static_cast<double>(n);
    C shift = center ? static_cast<C>(a / count * rd) : C(0);
    C slope = static_cast<C>(b / count * rd * rd * rd);
    if (s == 1) {
      if (w)
        blocks::map(n, out, [=](C gi, C wi, C xi) { return gi * wi * rstd - shift - (xi - mean) * slope; }, g, w, x);
      else
        blocks::map(n, out, [=](C gi, C xi) { return gi * rstd - shift - (xi - mean) * slope; }, g, x);
    } else {
      for (int64_t c = 0; c < m.channels; ++c) {
        C scale = w ? rstd * w[c] : rstd;
        auto gradient = [=](C gi, C xi) { return gi * scale - shift - (xi - mean) * slope; };
        blocks::map(s, out + c * s, gradient, g + c * s, x + c * s);
      }
    }
  }
};

}  // namespace

void group_norm_cpu(const Tensor& input, int64_t samples, int64_t channels, int64_t groups, const Tensor& weight,
                    const Tensor& bias, double eps, bool center, const Tensor& output, const Tensor& mean,
                    const Tensor& rstd) {
  Layout m = layout_of(input, samples, channels, groups);
  in_planes(output, [&](const Tensor& planes) {
    dispatch_floating(input.dtype(), [&]<class T>() {
      using C = compute_t<T>;
      forward<T>(m, target_of<T>(input), load<C>(weight), load<C>(bias), eps, center, target_of<T>(planes),
                 target_of<C>(mean), target_of<C>(rstd));
    });
  });
}

void group_norm_grad_cpu(const Tensor& output, const Tensor& input, int64_t samples, int64_t channels, int64_t groups,
                         const Tensor& weight, const Tensor& mean, const Tensor& rstd, [[maybe_unused]] double eps,
                         bool center, const Tensor& input_grad, const Tensor& weight_grad, const Tensor& bias_grad) {
  Layout m = layout_of(input, samples, channels, groups);
  const Tensor planes = planes_for(input_grad);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    std::vector<C> w = load<C>(weight);
    Backward<T> step{m,
                     target_of<T>(output),
                     target_of<T>(input),
                     w.empty() ? nullptr : w.data(),
                     target_of<C>(mean),
                     target_of<C>(rstd),
                     center,
                     target_of<T>(planes)};
    // Every chunk of rows sums into a line of its own; at most 64 lines, added in order.
    int64_t grain = std::max(m.grain(), (m.rows + 15) / 16);
    Split split = split_range(m.rows, grain);
    size_t c = static_cast<size_t>(channels), lines = static_cast<size_t>(std::max<int64_t>(split.count, 1));
    std::vector<C> sums(2 * c * lines, C(0));
    parallel_for(0, m.rows, grain, [&](int64_t first, int64_t last, int64_t chunk) {
      C* line = sums.data() + 2 * c * static_cast<size_t>(chunk);
      for (int64_t r = first; r < last; ++r) step.row(r, line, line + c);
    });
    for (size_t l = 1; l < lines; ++l)
      for (size_t i = 0; i < 2 * c; ++i) sums[i] += sums[2 * c * l + i];
    store(sums.data(), weight_grad);
    store(sums.data() + c, bias_grad);
  });
  finish_planes(input_grad, planes);
}

}  // namespace tapegrad::cpu::TG_ISA
