// Resampling and its transpose. For an output row the input rows that it depends on are added into a buffer of the
// input's width first, with their weights; the buffer is then resampled along the row.
#include <cstring>

#include "tapegrad/aten/copy/channels_last.h"
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/aten/upsample/bytes.h"
#include "tapegrad/aten/upsample/taps.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using resampling::Mode;
using resampling::rounded;
using resampling::sum_t;
using resampling::Taps;

// Up to three spatial dimensions, fewer are widened by leading ones.
template <class C>
struct Plan {
  Taps<C> taps[3];
  int64_t planes = 1;

  Plan(Mode mode, IntSpan in, IntSpan out, bool align_corners, const std::optional<std::vector<double>>& scales) {
    size_t n = in.size() - 2;
    planes = in[0] * in[1];
    for (size_t d = 0; d < 3; ++d) {
      bool real = d + n >= 3;
      size_t s = real ? d + n - 3 : 0;
      taps[d] = real ? resampling::make_taps<C>(mode, in[s + 2], out[s + 2], align_corners, scales ? (*scales)[s] : 0.0)
                     : resampling::make_taps<C>(Mode::Nearest, 1, 1, false, 0.0);
    }
  }
  int64_t in_plane() const { return taps[0].in * taps[1].in * taps[2].in; }
  int64_t out_plane() const { return taps[0].out * taps[1].out * taps[2].out; }
};

template <class T>
void nearest_row(const Taps<sum_t<T>>& taps, const T* from, T* to) {
  const int32_t* index = taps.index.data();
  for (int64_t x = 0; x < taps.out; ++x) to[x] = from[index[x]];
}

template <class T>
void weighted_row(const Taps<sum_t<T>>& taps, const sum_t<T>* line, T* to) {
  using C = sum_t<T>;
  int64_t n = taps.out;
  const int32_t* index = taps.index.data();
  const C* weight = taps.weight.data();
  if (taps.count == 1) {
    for (int64_t x = 0; x < n; ++x) to[x] = rounded<T>(line[index[x]]);
  } else if (taps.count == 2) {
    for (int64_t x = 0; x < n; ++x) to[x] = rounded<T>(weight[x] * line[index[x]] + weight[n + x] * line[index[n + x]]);
  } else {
    for (int64_t x = 0; x < n; ++x) {
      C s = 0;
      for (int64_t k = 0; k < taps.count;
           ++k)  // taps without weight are not there: an infinity below them does not count
        if (C w = weight[k * n + x]; w != C(0)) s += w * line[index[k * n + x]];
      to[x] = rounded<T>(s);
    }
  }
}

template <class T>
void resample(const Plan<sum_t<T>>& plan, bool nearest, const T* input, T* output) {
  using C = sum_t<T>;
  const auto &tz = plan.taps[0], &ty = plan.taps[1], &tx = plan.taps[2];
  int64_t rows = tz.out * ty.out, width = tx.in;
  int64_t work = nearest ? tx.out : tx.out * tx.count + width * ty.count * tz.count;
  parallel_for(0, plan.planes * rows, 32768 / std::max<int64_t>(work, 1) + 1, [&](int64_t first, int64_t last) {
    std::vector<C> line(static_cast<size_t>(nearest ? 0 : width));
    for (int64_t r = first; r < last; ++r) {
      const T* plane = input + r / rows * plan.in_plane();
      int64_t z = r % rows / ty.out, y = r % ty.out;
      T* to = output + r * tx.out;
      auto row = [&](int64_t kz, int64_t ky) { return plane + (tz.at(kz, z) * ty.in + ty.at(ky, y)) * width; };
      if (nearest) {
        // Rows that repeat the one before them are copies of it.
        if (r > first && y > 0 && ty.at(0, y) == ty.at(0, y - 1))
          std::memcpy(to, to - tx.out, static_cast<size_t>(tx.out) * sizeof(T));
        else
          nearest_row<T>(tx, row(0, 0), to);
        continue;
      }
      for (int64_t kz = 0; kz < tz.count; ++kz)
        for (int64_t ky = 0; ky < ty.count; ++ky) {
          const T* from = row(kz, ky);
          C w = tz.weight_at(kz, z) * ty.weight_at(ky, y);
          if (kz + ky == 0) {
            for (int64_t x = 0; x < width; ++x) line[static_cast<size_t>(x)] = w * static_cast<C>(from[x]);
          } else if (w != C(0)) {
            for (int64_t x = 0; x < width; ++x) line[static_cast<size_t>(x)] += w * static_cast<C>(from[x]);
          }
        }
      weighted_row<T>(tx, line.data(), to);
    }
  });
}

// Whether a resampling of (N, C, spatial...) goes along channels.
bool along_channels(const Tensor& t) {
  return can_go_along_channels(t.dtype()) && goes_along_channels(t, t.ndim() - 2);
}

// Nearest neighbours of whole places, which are `channels` numbers each.
template <class T>
void nearest_places(const Plan<sum_t<T>>& plan, int64_t channels, const T* input, T* output) {
  const auto &tz = plan.taps[0], &ty = plan.taps[1], &tx = plan.taps[2];
  const int64_t rows = tz.out * ty.out, samples = plan.planes / channels, width = tx.out * channels;
  parallel_for(0, samples * rows, 32768 / width + 1, [&](int64_t first, int64_t last) {
    WorkCount done;
    for (int64_t r = first; r < last; ++r, done(width)) {
      const int64_t z = r % rows / ty.out, y = r % ty.out;
      T* to = output + r * width;
      if (r > first && y > 0 && ty.at(0, y) == ty.at(0, y - 1)) {
        std::memcpy(to, to - width, static_cast<size_t>(width) * sizeof(T));
        continue;
      }
      const T* from =
          input + r / rows * plan.in_plane() * channels + (tz.at(0, z) * ty.in + ty.at(0, y)) * tx.in * channels;
      for (int64_t x = 0; x < tx.out; ++x)
        std::memcpy(to + x * channels, from + tx.at(0, x) * channels, static_cast<size_t>(channels) * sizeof(T));
    }
  });
}

// A block of channels, whose rows stay in the nearest caches.
constexpr int64_t kChannels = 64;

// As resample(), for lines of places.
template <class T>
void resample_places(const Plan<sum_t<T>>& plan, int64_t channels, const T* input, T* output) {
  using C = sum_t<T>;
  const auto &tz = plan.taps[0], &ty = plan.taps[1], &tx = plan.taps[2];
  const int64_t rows = tz.out * ty.out, samples = plan.planes / channels;
  const int64_t blocks = (channels + kChannels - 1) / kChannels;
  const int64_t work = (tx.out * tx.count + tx.in * ty.count * tz.count) * std::min(channels, kChannels);
  parallel_for(0, samples * rows * blocks, 32768 / work + 1, [&](int64_t first, int64_t last) {
    std::vector<C> line(static_cast<size_t>(tx.in * std::min(channels, kChannels)));
    WorkCount done;
    for (int64_t i = first; i < last; ++i, done(work)) {
      const int64_t r = i / blocks, begin = i % blocks * kChannels, n = std::min(kChannels, channels - begin);
      const int64_t z = r % rows / ty.out, y = r % ty.out;
      // Places of all channels lie side by side.
      const int64_t parts = n == channels ? 1 : tx.in, part = n == channels ? tx.in * n : n;
      std::fill(line.begin(), line.end(), C(-0.0));  // a sum with a zero keeps that zero's sign
      for (int64_t kz = 0; kz < tz.count; ++kz)
        for (int64_t ky = 0; ky < ty.count; ++ky) {
          const C w = tz.weight_at(kz, z) * ty.weight_at(ky, y);
          if (kz + ky > 0 && w == C(0)) continue;
          const int64_t row = (r / rows * tz.in + tz.at(kz, z)) * ty.in + ty.at(ky, y);
          const T* from = input + row * tx.in * channels + begin;
          for (int64_t x = 0; x < parts; ++x, from += channels) {
            C* sum = line.data() + x * part;
            blocks::visit(part, [=](int64_t k, C v) { sum[k] += w * v; }, from);
          }
        }
      T* to = output + r * tx.out * channels + begin;
      for (int64_t x = 0; x < tx.out; ++x, to += channels) {
        const C* a = line.data() + tx.at(0, x) * n;
        const C wa = tx.weight_at(0, x);
        if (tx.count == 1) {
          convert_line(to, a, n);
        } else if (tx.count == 2) {
          const C wb = tx.weight_at(1, x);
          blocks::map(n, to, [=](C v, C u) { return wa * v + wb * u; }, a, line.data() + tx.at(1, x) * n);
        } else {
          alignas(64) C sum[kChannels] = {};
          for (int64_t k = 0; k < tx.count; ++k) {
            const C w = tx.weight_at(k, x);
            if (w == C(0)) continue;
            const C* v = line.data() + tx.at(k, x) * n;
            for (int64_t c = 0; c < n; ++c) sum[c] += w * v[c];
          }
          convert_line(to, static_cast<const C*>(sum), n);
        }
      }
    }
  });
}

// Adds what a row of the output gives to one of the input.
template <class C>
void spread_row(const Taps<C>& taps, const C* from, C* line) {
  for (int64_t k = 0; k < taps.count; ++k) {
    const int32_t* index = taps.index.data() + k * taps.out;
    const C* weight = taps.weight.data() + k * taps.out;
    for (int64_t x = 0; x < taps.out; ++x) line[index[x]] += weight[x] * from[x];
  }
}

// Rows are added up first where that leaves fewer of them, since along a row elements go to places one by one.
template <class T>
void spread(const Plan<sum_t<T>>& plan, const T* output, T* input) {
  using C = sum_t<T>;
  const auto &tz = plan.taps[0], &ty = plan.taps[1], &tx = plan.taps[2];
  const int64_t in_rows = tz.in * ty.in, out_rows = tz.out * ty.out, size = plan.in_plane();
  const bool rows_first = in_rows < out_rows;
  const int64_t width = rows_first ? tx.out : tx.in;
  parallel_for(0, plan.planes, 32768 / std::max<int64_t>(size + plan.out_plane(), 1) + 1,
               [&](int64_t first, int64_t last) {
                 std::vector<C> sums(static_cast<size_t>(size)), line(static_cast<size_t>(tx.in)),
                     row(static_cast<size_t>(tx.out)), rows(static_cast<size_t>(rows_first ? in_rows * width : 0));
                 for (int64_t p = first; p < last; ++p) {
                   std::fill(sums.begin(), sums.end(), C(0));
                   std::fill(rows.begin(), rows.end(), C(0));
                   C* to = rows_first ? rows.data() : sums.data();
                   const T* from = output + p * plan.out_plane();
                   for (int64_t z = 0; z < tz.out; ++z)
                     for (int64_t y = 0; y < ty.out; ++y, from += tx.out) {
                       convert_line(row.data(), from, tx.out);
                       const C* given = row.data();
                       if (!rows_first) {
                         std::fill(line.begin(), line.end(), C(0));
                         spread_row(tx, given, line.data());
                         given = line.data();
                       }
                       for (int64_t kz = 0; kz < tz.count; ++kz)
                         for (int64_t ky = 0; ky < ty.count; ++ky) {
                           const C w = tz.weight_at(kz, z) * ty.weight_at(ky, y);
                           C* sum = to + (tz.at(kz, z) * ty.in + ty.at(ky, y)) * width;
                           for (int64_t x = 0; x < width; ++x) sum[x] += w * given[x];
                         }
                     }
                   for (int64_t r = 0; rows_first && r < in_rows; ++r)
                     spread_row(tx, rows.data() + r * width, sums.data() + r * tx.in);
                   convert_line(input + p * size, sums.data(), size);
                 }
               });
}

// As spread(), for blocks of channels.
template <class T>
void spread_places(const Plan<sum_t<T>>& plan, int64_t channels, const T* output, T* input) {
  using C = sum_t<T>;
  const auto &tz = plan.taps[0], &ty = plan.taps[1], &tx = plan.taps[2];
  const int64_t most = std::min<int64_t>(channels, kChannels / 2), blocks = (channels + most - 1) / most;
  parallel_for(0, plan.planes / channels * blocks, 1, [&](int64_t first, int64_t last) {
    std::vector<C> sums(static_cast<size_t>(plan.in_plane() * most)), line(static_cast<size_t>(tx.in * most));
    WorkCount done;
    for (int64_t i = first; i < last; ++i) {
      const int64_t sample = i / blocks, begin = i % blocks * most, n = std::min(most, channels - begin);
      std::fill(sums.begin(), sums.end(), C(0));
      const T* from = output + sample * plan.out_plane() * channels + begin;
      for (int64_t z = 0; z < tz.out; ++z)
        for (int64_t y = 0; y < ty.out; ++y) {
          std::fill(line.begin(), line.end(), C(0));
          for (int64_t x = 0; x < tx.out; ++x, from += channels)
            for (int64_t k = 0; k < tx.count; ++k) {
              C* sum = line.data() + tx.at(k, x) * n;
              blocks::visit(n, [sum, w = tx.weight_at(k, x)](int64_t c, C g) { sum[c] += w * g; }, from);
            }
          for (int64_t kz = 0; kz < tz.count; ++kz)
            for (int64_t ky = 0; ky < ty.count; ++ky) {
              const C w = tz.weight_at(kz, z) * ty.weight_at(ky, y);
              C* sum = sums.data() + (tz.at(kz, z) * ty.in + ty.at(ky, y)) * tx.in * n;
              for (int64_t x = 0; x < tx.in * n; ++x) sum[x] += w * line[static_cast<size_t>(x)];
            }
          done((tx.out * tx.count + tx.in * ty.count * tz.count) * n);
        }
      for (int64_t p = 0; p < plan.in_plane(); ++p)
        convert_line(input + (sample * plan.in_plane() + p) * channels + begin, sums.data() + p * n, n);
    }
  });
}

}  // namespace

void upsample_cpu(const Tensor& any_input, [[maybe_unused]] IntSpan output_size, std::string_view mode,
                  bool align_corners, const std::optional<std::vector<double>>& scales, const Tensor& any_out) {
  if (any_out.numel() == 0) return;
  const Mode m = *resampling::mode_of(mode);
  const bool nearest = m == Mode::Nearest || m == Mode::NearestExact;
  const bool along = along_channels(any_input);
  const Tensor input = along ? channels_last_or_copy(any_input) : contiguous_or_copy(any_input);
  const Tensor out = along ? any_out : planes_for(any_out);
  auto run = [&]<class T>() {
    Plan<sum_t<T>> plan(m, input.sizes(), out.sizes(), align_corners, scales);
    if (!along) return resample<T>(plan, nearest, target_of<T>(input), target_of<T>(out));
    if constexpr (can_go_along_channels(dtype_of_v<T>))
      (nearest ? nearest_places<T> : resample_places<T>)(plan, input.size(1), target_of<T>(input), target_of<T>(out));
  };
  if (out.dtype() != DType::uint8)
    dispatch_floating(out.dtype(), run);
  else if (nearest)
    run.template operator()<uint8_t>();
  else
    resample_bytes(input, m, align_corners, scales, out);
  if (!along) finish_planes(any_out, out);
}

void upsample_grad_cpu(const Tensor& any_output, [[maybe_unused]] IntSpan input_size, std::string_view mode,
                       bool align_corners, const std::optional<std::vector<double>>& scales, const Tensor& any_out) {
  if (any_out.numel() == 0) return;
  const bool along = along_channels(any_output);
  const Tensor output = along ? channels_last_or_copy(any_output) : contiguous_or_copy(any_output);
  const Tensor out = along ? any_out : planes_for(any_out);
  dispatch_floating(out.dtype(), [&]<class T>() {
    Plan<sum_t<T>> plan(*resampling::mode_of(mode), out.sizes(), output.sizes(), align_corners, scales);
    if (!along) return spread<T>(plan, target_of<T>(output), target_of<T>(out));
    if constexpr (can_go_along_channels(dtype_of_v<T>))
      spread_places<T>(plan, output.size(1), target_of<T>(output), target_of<T>(out));
  });
  if (!along) finish_planes(any_out, out);
}

}  // namespace tapegrad::cpu::TG_ISA
