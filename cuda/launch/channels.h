// Two sums per channel of a tensor seen as [samples, channels, spatial]: `sum_channels(work, layout, body)` adds up
// body.item(channel, sample, element) over samples and space, and calls body.finish(channel, sums) once for each
// channel, on one thread. A channel is cut into parts, so that few of them keep a whole device busy; the cut, and with
// it the order of summation, depends on the sizes alone. Sums are in double.
#pragma once

#include "tapegrad/cuda/launch/divide.h"
#include "tapegrad/cuda/launch/loops.h"

namespace tapegrad::cuda {

struct Pair {
  double a, b;
};
struct AddPairs {
  TG_DEVICE Pair operator()(const Pair& x, const Pair& y) const { return {x.a + y.a, x.b + y.b}; }
};

struct ChannelLayout {
  int64_t samples, channels, spatial;
  Divider by_spatial, by_channels;
  ChannelLayout(int64_t n, int64_t c, int64_t s)
      : samples(n), channels(c), spatial(s), by_spatial(s, n * c * s), by_channels(c, n * c) {}
  TG_HD int64_t count() const { return samples * spatial; }
  TG_HD int64_t at(int64_t sample, int64_t c, int64_t j) const { return (sample * channels + c) * spatial + j; }
  // The channel of an element.
  TG_HD int64_t channel(int64_t i) const {
    int64_t row, rest, c;
    by_spatial.divide(i, row, rest);
    by_channels.divide(row, rest, c);
    return c;
  }
};

struct ChannelParts {
  int64_t parts, part;  // of samples * spatial
  Pair* sums;           // [parts, channels]
};

inline constexpr int kChannelsOfBlock = 32;  // where they lie side by side: neighbouring threads take neighbouring ones

template <class Body>
TG_KERNEL void side_by_side_kernel(ChannelLayout m, ChannelParts p, Body body) {
  constexpr int kRows = kBlock / kChannelsOfBlock;
  TG_SHARED(Pair, scratch, kBlock);
  const int64_t c = static_cast<int64_t>(block_index()) * kChannelsOfBlock + thread_index() % kChannelsOfBlock;
  const int64_t row = thread_index() / kChannelsOfBlock, part = block_row(), begin = part * p.part;
  const int64_t end = begin + p.part < m.samples ? begin + p.part : m.samples;
  Pair sums{0, 0};
  if (c < m.channels) {
    TG_UNROLL_4
    for (int64_t n = begin + row; n < end; n += kRows) sums = AddPairs()(sums, body.item(c, n, m.at(n, c, 0)));
  }
  scratch[thread_index()] = sums;
  block_sync();
  if (row != 0 || c >= m.channels) return;
  for (int r = 1; r < kRows; ++r) sums = AddPairs()(sums, scratch[r * kChannelsOfBlock + thread_index()]);
  p.sums[part * m.channels + c] = sums;
}

template <class Body>
TG_KERNEL void channel_kernel(ChannelLayout m, ChannelParts p, Body body) {
  TG_SHARED(Pair, scratch, kWarp);
  const int64_t part = block_row(), begin = part * p.part;
  const int64_t end = begin + p.part < m.count() ? begin + p.part : m.count();
  for (int64_t c = block_index(); c < m.channels; c += grid_size()) {
    Pair sums{0, 0};
    TG_UNROLL_4
    for (int64_t i = begin + thread_index(); i < end; i += block_size()) {
      int64_t sample, j;
      m.by_spatial.divide(i, sample, j);
      sums = AddPairs()(sums, body.item(c, sample, m.at(sample, c, j)));
    }
    sums = block_reduce(sums, AddPairs(), scratch);
    block_sync();
    if (thread_index() == 0) p.sums[part * m.channels + c] = sums;
  }
}

template <class Body>
struct FinishChannel {
  int64_t channels, parts;
  const Pair* sums;
  Body body;
  TG_DEVICE void operator()(int64_t c) const {
    Pair total{0, 0};
    TG_UNROLL_4
    for (int64_t p = 0; p < parts; ++p) total = AddPairs()(total, sums[p * channels + c]);
    body.finish(c, total);
  }
};

template <class Body>
void sum_channels(const Work& work, const ChannelLayout& m, const Body& body) {
  if (m.channels == 0) return;
  constexpr int64_t kWanted = 1024, kLeast = 1024;  // blocks; elements of a part
  const bool side_by_side = m.spatial == 1;
  const int64_t columns = side_by_side ? (m.channels + kChannelsOfBlock - 1) / kChannelsOfBlock : m.channels;
  const int64_t least = side_by_side ? kLeast / kChannelsOfBlock : kLeast;
  const int64_t most = std::clamp<int64_t>(m.count() / least, 1, 256);
  const int64_t wanted = std::clamp<int64_t>((kWanted + columns - 1) / columns, 1, most);
  ChannelParts p{};
  p.part = std::max<int64_t>(1, (m.count() + wanted - 1) / wanted);
  p.parts = std::max<int64_t>(1, (m.count() + p.part - 1) / p.part);
  const Workspace partial(static_cast<size_t>(p.parts * m.channels) * sizeof(Pair), work);
  p.sums = static_cast<Pair*>(partial.data());
  const Grid grid(std::min<int64_t>(columns, 1 << 20), p.parts);
  if (side_by_side)
    launch_block(work, &side_by_side_kernel<Body>, Grid(columns, p.parts), kBlock, 0, m, p, body);
  else
    launch_block(work, &channel_kernel<Body>, grid, kBlock, 0, m, p, body);
  for_elements(work, m.channels, FinishChannel<Body>{m.channels, p.parts, p.sums, body});
}

}  // namespace tapegrad::cuda
