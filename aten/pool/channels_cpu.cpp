// Pooling along channels.
#include "tapegrad/aten/pool/channels.h"

#include <limits>

#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/iterate/network_types.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA::pool_channels {
namespace {

using pool::Window;
using pool::Windows;

constexpr int64_t kChannels = 128;  // of a block: sums stay in the nearest cache

// A row of places of one sample, and a block of channels.
struct Strip {
  int64_t sample, z, y, channel, n;
};

// Calls f(strip, count of work) for all of size[0] x size[1] rows of the samples of `t`, in parallel; `work` is that of
// a row and one channel.
template <class F>
void for_strips(const Tensor& t, const int64_t (&size)[3], int64_t work, F&& f) {
  const int64_t channels = t.size(1), blocks = (channels + kChannels - 1) / kChannels, rows = size[0] * size[1];
  const int64_t grain = 32768 / std::max<int64_t>(work * std::min(channels, kChannels), 1) + 1;
  parallel_for(0, t.size(0) * rows * blocks, grain, [&](int64_t first, int64_t last) {
    WorkCount done;
    for (int64_t i = first; i < last; ++i) {
      const int64_t from = i % blocks * kChannels, row = i / blocks;
      f(Strip{row / rows, row % rows / size[1], row % size[1], from, std::min(kChannels, channels - from)}, done);
    }
  });
}

// Where a block of channels of a place begins.
struct Places {
  const int64_t* size;
  int64_t channels;
  int64_t within(int64_t z, int64_t y, int64_t x) const { return (z * size[1] + y) * size[2] + x; }
  int64_t at(const Strip& s, int64_t place) const {
    return (s.sample * size[0] * size[1] * size[2] + place) * channels + s.channel;
  }
};

int64_t window_work(const Windows& w) {
  const int64_t in = w.in_plane(), out = w.out_plane();
  return (in + out) / pool::rows_of_plane(w);
}

// Takes places of a window one by one and hands out four at a time, for one load and store of what is kept per channel.
template <class F>
struct InFours {
  F take;  // of a std::index_sequence as long as the places, and these
  int64_t place[4] = {};
  int held = 0;
  void operator()(int64_t p) {
    place[held++] = p;
    if (held < 4) return;
    take(std::make_index_sequence<4>(), place);
    held = 0;
  }
  void rest() {
    for (int k = 0; k < held; ++k) take(std::make_index_sequence<1>(), place + k);
    held = 0;
  }
};
template <class F>
InFours(F) -> InFours<F>;

bool takes(const Tensor& t, size_t spatial) {
  return can_go_along_channels(t.dtype()) && goes_along_channels(t, static_cast<int64_t>(spatial));
}

// Calls f<T>(channels, index of the first one in the output, place, sums, the window) for all windows that hold a place
// of the input, and writes the sums. Each place asks for its windows, so that threads share them all.
template <class F>
void gather_windows(const Windows& w, const Tensor& out, F&& f) {
  const int64_t channels = out.size(1);
  const Places in{w.in, channels}, from{w.out, channels};
  dispatch_network(out.dtype(), [&]<class T>() {
    for_strips(out, w.in, w.in[2] + w.out[2], [&](const Strip& s, WorkCount& done) {
      int64_t first[3], last[3], at[3];
      w.rule[0].holding(s.z, first[0], last[0]);
      w.rule[1].holding(s.y, first[1], last[1]);
      for (int64_t here = 0; here < w.in[2]; ++here) {
        const int64_t place = in.within(s.z, s.y, here);
        alignas(64) compute_t<T> sum[kChannels] = {};
        w.rule[2].holding(here, first[2], last[2]);
        for (at[0] = first[0]; at[0] < last[0]; ++at[0])
          for (at[1] = first[1]; at[1] < last[1]; ++at[1])
            for (at[2] = first[2]; at[2] < last[2]; ++at[2], done(s.n))
              f.template operator()<T>(s.n, from.at(s, from.within(at[0], at[1], at[2])), place, sum, at);
        convert_line(target_of<T>(out) + in.at(s, place), static_cast<const compute_t<T>*>(sum), s.n);
      }
      done(w.in[2] * s.n);
    });
  });
}

// Whether gather_windows() asks each place for windows that a thread could as well take one by one: samples and blocks
// of channels are enough for all threads, and no buffer is large. Sums are the same: windows add to a place in their
// order.
template <class T>
bool scatters(const Windows& w, const Tensor& out) {
  constexpr int64_t kMostBuffer = 8 << 20;  // bytes
  const int64_t channels = out.size(1), blocks = (channels + kChannels - 1) / kChannels;
  return out.size(0) * blocks >= get_num_threads() &&
         (std::is_same_v<T, compute_t<T>> ||
          w.in_plane() * std::min(channels, kChannels) * static_cast<int64_t>(sizeof(compute_t<T>)) <= kMostBuffer);
}

// Calls f(channels, index of the first one in the output, window (z, y, x), sums of the first place, elements from one
// place to the next) for all windows of each sample and block of channels, and writes the sums.
template <class T, class F>
void scatter_windows(const Windows& w, const Tensor& out, F&& f) {
  using C = compute_t<T>;
  const int64_t channels = out.size(1), blocks = (channels + kChannels - 1) / kChannels, in = w.in_plane();
  const Places places{w.in, channels}, windows{w.out, channels};
  parallel_for(0, out.size(0) * blocks, 1, [&](int64_t first, int64_t last) {
    WorkCount done;
    constexpr bool kDirect = std::is_same_v<T, C>;
    const int64_t widest = std::min(channels, kChannels);
    const Tensor buffer = kDirect ? Tensor() : empty_tensor({in * widest}, dtype_of_v<C>);
    for (int64_t i = first; i < last; ++i) {
      const int64_t from = i % blocks * kChannels;
      const Strip s{i / blocks, 0, 0, from, std::min(kChannels, channels - from)};
      T* const to = target_of<T>(out) + places.at(s, 0);
      C* sums;
      if constexpr (kDirect)
        sums = to;
      else
        sums = target_of<C>(buffer);
      const int64_t step = kDirect ? channels : s.n;
      for (int64_t p = 0; p < in; ++p, done(s.n)) std::fill_n(sums + p * step, s.n, C(0));
      int64_t at[3];
      for (at[0] = 0; at[0] < w.out[0]; ++at[0])
        for (at[1] = 0; at[1] < w.out[1]; ++at[1])
          for (at[2] = 0; at[2] < w.out[2]; ++at[2])
            done(s.n * f(s.n, windows.at(s, windows.within(at[0], at[1], at[2])), at, sums, step));
      if constexpr (!kDirect)
        for (int64_t p = 0; p < in; ++p, done(s.n)) convert_line(to + p * channels, sums + p * step, s.n);
    }
  });
}

// A block of channels in the compute type.
template <class T>
struct Block {
  alignas(64) compute_t<T> scratch[kChannels];
  const compute_t<T>* of(const T* from, int64_t n) { return converted<compute_t<T>>(from, n, scratch); }
};

}  // namespace

bool max_windows(const Windows& w, const Tensor& any_input, size_t spatial, const Tensor& values,
                 const Tensor& indices) {
  if (!takes(any_input, spatial)) return false;
  const Tensor input = channels_last_or_copy(any_input);
  dispatch_network(input.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    using Index = int32_t;  // as wide as the values
    const int64_t channels = input.size(1);
    const Places in{w.in, channels}, out{w.out, channels};
    for_strips(input, w.out, window_work(w), [&](const Strip& s, WorkCount& done) {
      alignas(64) C best[kChannels];
      alignas(64) Index at[kChannels];
      const Window &wz = w.table[0][static_cast<size_t>(s.z)], &wy = w.table[1][static_cast<size_t>(s.y)];
      const T* from = target_of<T>(input) + in.at(s, 0);
      T* value = target_of<T>(values) + out.at(s, out.within(s.z, s.y, 0));
      int64_t* index = target_of<int64_t>(indices) + out.at(s, out.within(s.z, s.y, 0));
      InFours compare{[&]<size_t... K>(std::index_sequence<K...>, const int64_t* place) {
        auto take = [&best, &at, place](int64_t i, auto... v) {
          C most = best[i];
          Index where = at[i];
          const auto look = [&](C x, int64_t here) {
            const bool found = x > most || x != x;
            most = found ? x : most;
            where = found ? static_cast<Index>(here) : where;
          };
          (look(v, place[K]), ...);
          best[i] = most;
          at[i] = where;
        };
        blocks::visit(s.n, take, (from + place[K] * channels)...);
        done(s.n * static_cast<int64_t>(sizeof...(K)));
      }};
      for (const Window& wx : w.table[2]) {
        std::fill_n(best, s.n, -std::numeric_limits<C>::infinity());
        std::fill_n(at, s.n, static_cast<Index>(in.within(wz.first, wy.first, wx.first)));
        for (int64_t z = wz.first; z < wz.last; z += w.step[0])
          for (int64_t y = wy.first; y < wy.last; y += w.step[1])
            for (int64_t x = wx.first; x < wx.last; x += w.step[2]) compare(in.within(z, y, x));
        compare.rest();
        convert_line(value, static_cast<const C*>(best), s.n);
        convert_line(index, static_cast<const Index*>(at), s.n);
        value += channels;
        index += channels;
      }
    });
  });
  return true;
}

bool mean_windows(const Windows& w, const Tensor& any_input, size_t spatial, int64_t divisor, const Tensor& out) {
  if (!takes(any_input, spatial)) return false;
  const Tensor input = channels_last_or_copy(any_input);
  dispatch_network(out.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    constexpr int64_t kFew = 16;  // the places of wider windows are added up in parts, which loses fewer digits
    const int64_t channels = input.size(1);
    const Places in{w.in, channels}, to{w.out, channels};
    for_strips(input, w.out, window_work(w), [&](const Strip& s, WorkCount& done) {
      const Window &wz = w.table[0][static_cast<size_t>(s.z)], &wy = w.table[1][static_cast<size_t>(s.y)];
      const T* from = target_of<T>(input) + in.at(s, 0);
      T* target = target_of<T>(out) + to.at(s, to.within(s.z, s.y, 0));
      alignas(64) C sum[kChannels], part[kChannels];
      C* into = sum;
      InFours add{[&]<size_t... K>(std::index_sequence<K...>, const int64_t* place) {
        blocks::visit(s.n, [into](int64_t i, auto... v) { into[i] += (v + ...); }, (from + place[K] * channels)...);
        done(s.n * static_cast<int64_t>(sizeof...(K)));
      }};
      for (const Window& wx : w.table[2]) {
        std::fill_n(sum, s.n, C(0));
        const bool in_parts = wx.last - wx.first > kFew;
        for (int64_t z = wz.first; z < wz.last; ++z)
          for (int64_t y = wy.first; y < wy.last; ++y) {
            if (!in_parts) {
              for (int64_t x = wx.first; x < wx.last; ++x) add(in.within(z, y, x));
              continue;
            }
            into = part;
            for (int64_t begin = wx.first; begin < wx.last; begin += kFew) {
              std::fill_n(part, s.n, C(0));
              for (int64_t x = begin; x < std::min(wx.last, begin + kFew); ++x) add(in.within(z, y, x));
              add.rest();
              for (int64_t i = 0; i < s.n; ++i) sum[i] += part[i];
            }
            into = sum;
          }
        add.rest();
        const int64_t d = divisor ? divisor : wz.count * wy.count * wx.count;
        for (int64_t i = 0; i < s.n; ++i) sum[i] = pool::mean_of(sum[i], d);
        convert_line(target, static_cast<const C*>(sum), s.n);
        target += channels;
      }
    });
  });
  return true;
}

void max_grad(const Windows& w, const Tensor& output, const Tensor& indices, const Tensor& out) {
  bool scattered = false;
  dispatch_network(out.dtype(), [&]<class T>() {
    scattered = scatters<T>(w, out);
    if (!scattered) return;
    scatter_windows<T>(w, out, [&](int64_t n, int64_t window, const int64_t*, compute_t<T>* sums, int64_t step) {
      Block<T> block;
      const compute_t<T>* g = block.of(target_of<T>(output) + window, n);
      const int64_t* place = target_of<int64_t>(indices) + window;
      int64_t i = 0;
      for (; i + 4 <= n; i += 4) {  // all are read before the first is written
        compute_t<T>* to[4];
        compute_t<T> v[4];
        for (int64_t k = 0; k < 4; ++k) {
          to[k] = sums + place[i + k] * step + i + k;
          v[k] = *to[k] + g[i + k];
        }
        for (int64_t k = 0; k < 4; ++k) *to[k] = v[k];
      }
      for (; i < n; ++i) sums[place[i] * step + i] += g[i];
      return 1;
    });
  });
  if (scattered) return;
  gather_windows(w, out, [&]<class T>(int64_t n, int64_t window, int64_t place, compute_t<T>* sum, const int64_t*) {
    auto add = [sum, place](int64_t i, compute_t<T> g, int64_t at) { sum[i] += at == place ? g : compute_t<T>(0); };
    blocks::visit(n, add, target_of<T>(output) + window, target_of<int64_t>(indices) + window);
  });
}

bool mean_grad(const Windows& w, const Tensor& any_output, size_t spatial, int64_t divisor, const Tensor& out) {
  if (!takes(any_output, spatial)) return false;
  const Tensor output = channels_last_or_copy(any_output);
  const auto window_at = [&](size_t d, const int64_t* at) -> const Window& {
    return w.table[d][static_cast<size_t>(at[d])];
  };
  const auto share_of = [&]<class C>(C one, const int64_t* at) {
    const auto count = [&](size_t d) { return window_at(d, at).count; };
    return pool::mean_of(one, divisor ? divisor : count(0) * count(1) * count(2));
  };
  bool scattered = false;
  dispatch_network(out.dtype(), [&]<class T>() {
    using C = compute_t<T>;
    scattered = scatters<T>(w, out);
    if (!scattered) return;
    scatter_windows<T>(w, out, [&](int64_t n, int64_t window, const int64_t* at, C* sums, int64_t step) {
      Block<T> block;
      const C* g = block.of(target_of<T>(output) + window, n);
      const C share = share_of(C(1), at);
      const Window &wz = window_at(0, at), &wy = window_at(1, at), &wx = window_at(2, at);
      for (int64_t z = wz.first; z < wz.last; ++z)
        for (int64_t y = wy.first; y < wy.last; ++y)
          for (int64_t x = wx.first; x < wx.last; ++x) {
            C* sum = sums + ((z * w.in[1] + y) * w.in[2] + x) * step;
#pragma GCC ivdep
            for (int64_t i = 0; i < n; ++i) sum[i] += g[i] * share;
          }
      return (wz.last - wz.first) * (wy.last - wy.first) * (wx.last - wx.first) + 1;
    });
  });
  if (scattered) return true;
  gather_windows(w, out, [&]<class T>(int64_t n, int64_t window, int64_t, compute_t<T>* sum, const int64_t* at) {
    const auto share = share_of(compute_t<T>(1), at);
    auto add = [sum, share](int64_t i, compute_t<T> g) { sum[i] += g * share; };
    blocks::visit(n, add, target_of<T>(output) + window);
  });
  return true;
}

}  // namespace tapegrad::cpu::TG_ISA::pool_channels
