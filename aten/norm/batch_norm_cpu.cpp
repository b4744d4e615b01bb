// Batch normalisation. Sums over a channel run plane by plane where a channel has planes, and along whole rows of
// channels where each sample holds one number per channel (N, C).
#include <cmath>
#include <vector>

#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/norm/lane_sums.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

struct Layout {
  int64_t n, channels, spatial;
  int64_t count() const { return n * spatial; }
};

// Whether every place of an image is a row of channels.
bool along_channels(const Tensor& input) {
  return can_go_along_channels(input.dtype()) && goes_along_channels(input, input.ndim() - 2);
}

Tensor in_rows(const Tensor& t, bool along) { return along ? channels_last_or_copy(t) : contiguous_or_copy(t); }

Layout layout_of(const Tensor& input, bool along) {
  // If one size is zero, the others may be arbitrarily large.
  if (input.numel() == 0) return {0, input.size(1), input.ndim() == 2 ? 1 : 0};
  Layout m{input.size(0), input.size(1), 1};
  for (int64_t d = 2; d < input.ndim(); ++d) (along ? m.n : m.spatial) *= input.size(d);
  return m;
}

template <class C>
std::vector<C> load(const Tensor& t, int64_t channels, C absent) {
  std::vector<C> r(static_cast<size_t>(channels), absent);
  if (t.defined())
    dispatch_floating(t.dtype(), [&]<class P>() {
      for (size_t i = 0; i < r.size(); ++i) r[i] = static_cast<C>(static_cast<compute_t<P>>(target_of<P>(t)[i]));
    });
  return r;
}

// One result per channel, in the dtype of the parameter.
void store(const std::vector<double>& values, const Tensor& to) {
  dispatch_floating(to.dtype(), [&]<class P>() {
    for (size_t i = 0; i < values.size(); ++i)
      target_of<P>(to)[i] = static_cast<P>(static_cast<compute_t<P>>(values[i]));
  });
}

// How samples are cut so that few channels still make enough work: pieces of samples per channel.
int64_t sample_pieces(const Layout& m) {
  if (m.channels >= 64 || m.count() < 65536) return 1;
  return std::min<int64_t>({m.n, 64 / std::max<int64_t>(m.channels, 1) + 1, 16});
}

// Adds the terms of as many rows to sums per channel: several rows for one load and store of the sums.
template <class T, class C, class A, class B, size_t... K>
void add_rows(const T* p, const T* q, int64_t row, int64_t first, int64_t last, A term_a, B term_b, C* sum_a, C* sum_b,
              std::index_sequence<K...>) {
  constexpr size_t kRows = sizeof...(K);
  auto add = [=](int64_t i, auto... values) {
    const C v[2 * kRows] = {values...};
    C a = sum_a[i], b = sum_b[i];
    ((a += term_a(v[K], v[kRows + K], first + i)), ...);
    ((b += term_b(v[K], v[kRows + K], first + i)), ...);
    sum_a[i] = a;
    sum_b[i] = b;
  };
  auto at = [=](const T* from, size_t k) { return from + static_cast<int64_t>(k) * row + first; };
  blocks::visit(last - first, add, at(p, K)..., at(q, K)...);
}

// Two sums per channel of term_a(x, g, c) and term_b(x, g, c), where g may be absent.
template <class T, class A, class B>
void channel_sums(const Layout& m, const T* x, const T* g, A term_a, B term_b, std::vector<double>& sum_a,
                  std::vector<double>& sum_b) {
  using C = compute_t<T>;
  size_t channels = static_cast<size_t>(m.channels);
  sum_a.assign(channels, 0);
  sum_b.assign(channels, 0);
  if (m.spatial == 1) {
    // Rows of channels; a block of 256 rows is summed in C, blocks in double. Threads share the columns, and pieces of
    // the rows where few columns have many.
    const int64_t pieces = m.channels >= 1024 ? 1 : std::clamp<int64_t>(m.n / 4096, 1, 16);
    const int64_t per = ((m.n + pieces - 1) / pieces + 255) / 256 * 256;
    const int64_t width = std::max<int64_t>(64, 32768 / std::max<int64_t>(per, 1));
    const int64_t strips = (m.channels + width - 1) / width;
    std::vector<double> part(2 * channels * static_cast<size_t>(pieces));
    parallel_for(0, strips * pieces, 1, [&](int64_t first_task, int64_t last_task) {
      for (int64_t task = first_task; task < last_task; ++task) {
        const int64_t first = task % strips * width, last = std::min(m.channels, first + width);
        const int64_t begin = task / strips * per, end = std::min(m.n, begin + per);
        double* total = part.data() + 2 * m.channels * (task / strips);
        std::vector<C> a(static_cast<size_t>(last - first)), b(a.size());
        for (int64_t from = begin; from < end; from += 256) {
          std::fill(a.begin(), a.end(), C(0));
          std::fill(b.begin(), b.end(), C(0));
          const int64_t to = std::min(end, from + 256);
          int64_t i = from;
          auto take = [&](auto rows) {
            const T* p = x + i * m.channels;
            const T* q = g ? g + i * m.channels : p;
            add_rows(p, q, m.channels, first, last, term_a, term_b, a.data(), b.data(), rows);
            i += static_cast<int64_t>(rows.size());
          };
          while (i + 4 <= to) take(std::make_index_sequence<4>{});
          while (i < to) take(std::make_index_sequence<1>{});
          for (int64_t c = first; c < last; ++c) {
            total[2 * c] += static_cast<double>(a[static_cast<size_t>(c - first)]);
            total[2 * c + 1] += static_cast<double>(b[static_cast<size_t>(c - first)]);
          }
        }
      }
    });
    for (size_t i = 0; i < part.size(); i += 2) {
      sum_a[i / 2 % channels] += part[i];
      sum_b[i / 2 % channels] += part[i + 1];
    }
    return;
  }
  int64_t pieces = sample_pieces(m), per = (m.n + pieces - 1) / pieces;
  std::vector<double> part(2 * channels * static_cast<size_t>(pieces));
  int64_t grain = 32768 / std::max<int64_t>(m.spatial * per, 1) + 1;
  parallel_for(0, m.channels * pieces, grain, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) {
      int64_t c = t / pieces, piece = t % pieces;
      double a = 0, b = 0;
      for (int64_t i = piece * per; i < std::min(m.n, (piece + 1) * per); ++i) {
        const T* p = x + (i * m.channels + c) * m.spatial;
        const T* q = g ? g + (i * m.channels + c) * m.spatial : p;
        double pa, pb;
        lane_sums<C>(
            m.spatial, [=](C v, C w) { return term_a(v, w, c); }, [=](C v, C w) { return term_b(v, w, c); }, pa, pb, p,
            q);
        a += pa;
        b += pb;
      }
      part[2 * static_cast<size_t>(t)] = a;
      part[2 * static_cast<size_t>(t) + 1] = b;
    }
  });
  for (size_t c = 0; c < channels; ++c)
    for (size_t piece = 0; piece < static_cast<size_t>(pieces); ++piece) {
      sum_a[c] += part[2 * (c * static_cast<size_t>(pieces) + piece)];
      sum_b[c] += part[2 * (c * static_cast<size_t>(pieces) + piece) + 1];
    }
}

// Calls f(p, q, r, c, n) for lines of one channel, or f_row(p, q, r) for rows of all channels.
template <class Line, class Row>
void for_lines(const Layout& m, Line line, Row row) {
  if (m.spatial == 1) {
    parallel_for(0, m.n, 32768 / std::max<int64_t>(m.channels, 1) + 1, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) row(i * m.channels);
    });
    return;
  }
  parallel_for(0, m.n * m.channels, 32768 / std::max<int64_t>(m.spatial, 1) + 1, [&](int64_t first, int64_t last) {
    for (int64_t t = first; t < last; ++t) line(t * m.spatial, t % m.channels);
  });
}

template <class T>
void normalise(const Layout& m, const T* x, const std::vector<compute_t<T>>& mean,
               const std::vector<compute_t<T>>& scale, const std::vector<compute_t<T>>& shift, T* y) {
  using C = compute_t<T>;
  const C *mp = mean.data(), *sp = scale.data(), *bp = shift.data();
  for_lines(
      m,
      [&](int64_t at, int64_t c) {
        C a = mp[c], s = sp[c], b = bp[c];
        blocks::map(m.spatial, y + at, [=](C v) { return (v - a) * s + b; }, x + at);
      },
      [&](int64_t at) {
        blocks::map(m.channels, y + at, [](C v, C a, C s, C b) { return (v - a) * s + b; }, x + at, mp, sp, bp);
      });
}

}  // namespace

void batch_norm_train_cpu(const Tensor& any_input, const Tensor& weight, const Tensor& bias, double eps,
                          const Tensor& output, const Tensor& mean, const Tensor& invstd, const Tensor& var) {
  const bool along = along_channels(any_input);
  const Tensor input = in_rows(any_input, along);
  const Tensor place = along ? output : planes_for(output);
  const Layout m = layout_of(input, along);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T* x = target_of<T>(input);
    size_t channels = static_cast<size_t>(m.channels);
    std::vector<double> sum, squares;
    double count = static_cast<double>(m.count());
    // Shifted by the first element of the channel, the squares lose nothing to a large mean; one pass gives both.
    std::vector<C> pivot(channels);
    for (size_t c = 0; c < channels && m.count() > 0; ++c)
      pivot[c] = static_cast<C>(x[static_cast<int64_t>(c) * m.spatial]);
    const C* pv = pivot.data();
    channel_sums<T>(
        m, x, nullptr, [pv](C v, C, int64_t c) { return v - pv[c]; },
        [pv](C v, C, int64_t c) { return (v - pv[c]) * (v - pv[c]); }, sum, squares);
    std::vector<C> centre(channels), scale = load<C>(weight, m.channels, C(1)), shift = load<C>(bias, m.channels, C(0));
    for (size_t c = 0; c < channels; ++c) {
      double d = sum[c] / count, v = std::max(squares[c] / count - d * d, 0.0);
      double is = 1.0 / std::sqrt(v + eps);
      if (!(squares[c] == squares[c])) is = squares[c];  // NaN stays NaN
      centre[c] = static_cast<C>(static_cast<double>(pivot[c]) + d);
      target_of<C>(mean)[c] = centre[c];
      target_of<C>(invstd)[c] = static_cast<C>(is);
      target_of<C>(var)[c] = static_cast<C>(v * count / (count - 1));
      scale[c] = static_cast<C>(static_cast<double>(scale[c]) * is);
    }
    normalise<T>(m, x, centre, scale, shift, target_of<T>(place));
  });
  if (!along) finish_planes(output, place);
}

void batch_norm_eval_cpu(const Tensor& any_input, const Tensor& weight, const Tensor& bias, const Tensor& mean,
                         const Tensor& var, double eps, const Tensor& out) {
  const bool along = along_channels(any_input);
  const Tensor input = in_rows(any_input, along);
  const Tensor place = along ? out : planes_for(out);
  const Layout m = layout_of(input, along);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    std::vector<C> centre = load<C>(mean, m.channels, C(0)), scale = load<C>(weight, m.channels, C(1)),
                   shift = load<C>(bias, m.channels, C(0)), v = load<C>(var, m.channels, C(1));
    for (size_t c = 0; c < scale.size(); ++c)
      scale[c] = static_cast<C>(static_cast<double>(scale[c]) / std::sqrt(static_cast<double>(v[c]) + eps));
    normalise<T>(m, target_of<T>(input), centre, scale, shift, target_of<T>(place));
  });
  if (!along) finish_planes(out, place);
}

void batch_norm_train_grad_cpu(const Tensor& any_output, const Tensor& any_input, const Tensor& weight,
                               const Tensor& mean, const Tensor& invstd, [[maybe_unused]] double eps,
                               const Tensor& input_grad, const Tensor& weight_grad, const Tensor& bias_grad) {
  const bool along = along_channels(any_input);
  const Tensor output = in_rows(any_output, along), input = in_rows(any_input, along);
  const Tensor place = along ? input_grad : planes_for(input_grad);
  const Layout m = layout_of(input, along);
  dispatch_floating(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    const T *x = target_of<T>(input), *g = target_of<T>(output);
    const C *mp = target_of<C>(mean), *is = target_of<C>(invstd);
    size_t channels = static_cast<size_t>(m.channels);
    std::vector<double> sum_g, sum_gx;
    channel_sums<T>(
        m, x, g, [](C, C gv, int64_t) { return gv; }, [mp](C v, C gv, int64_t c) { return gv * (v - mp[c]); }, sum_g,
        sum_gx);
    std::vector<C> scale = load<C>(weight, m.channels, C(1)), slope(channels), shift(channels);
    double count = static_cast<double>(m.count());
    for (size_t c = 0; c < channels; ++c) {
      double s = static_cast<double>(is[c]), w = static_cast<double>(scale[c]);
      scale[c] = static_cast<C>(w * s);
      slope[c] = static_cast<C>(w * s * s * s * sum_gx[c] / count);
      shift[c] = static_cast<C>(w * s * sum_g[c] / count);
    }
    // A batch of nothing has no invstd: its sums stay 0.
    for (size_t c = 0; c < channels && m.count() > 0; ++c) sum_gx[c] *= static_cast<double>(is[c]);
    store(sum_gx, weight_grad);
    store(sum_g, bias_grad);
    T* out = target_of<T>(place);
    const C *sc = scale.data(), *sl = slope.data(), *sh = shift.data();
    for_lines(
        m,
        [&](int64_t at, int64_t c) {
          C a = sc[c], b = sl[c], d = sh[c], mu = mp[c];
          blocks::map(m.spatial, out + at, [=](C gv, C v) { return gv * a - (v - mu) * b - d; }, g + at, x + at);
        },
        [&](int64_t at) {
          auto gradient = [](C gv, C v, C a, C mu, C b, C d) { return gv * a - (v - mu) * b - d; };
          blocks::map(m.channels, out + at, gradient, g + at, x + at, sc, mp, sl, sh);
        });
  });
  if (!along) finish_planes(input_grad, place);
}

}  // namespace tapegrad::cpu::TG_ISA
