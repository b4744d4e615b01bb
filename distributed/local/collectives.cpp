// Collectives through the chunks of the area. All ranks make the same number of steps in a call, which follows from its
// sizes, so chunks and their order never depend on timing. Two or three ranks each read what the others filled and add
// it to their own; from four on each reduces its share of a chunk and all copy the shares, two copies in place of one
// for each rank.
#include <algorithm>
#include <cstring>

#include "tapegrad/distributed/local/local_backend.h"

namespace tapegrad::distributed::local {

namespace {

constexpr size_t kLeastChunk = size_t{16} << 10;
constexpr int kMostThatReadAll = 3;

constexpr size_t ceil_div(size_t a, size_t b) { return a / b + (a % b != 0); }

// The bytes of part `index` of `nbytes` bytes in parts of `part`.
size_t part_of(size_t nbytes, size_t part, size_t index) {
  return index > nbytes / part ? 0 : std::min(part, nbytes - index * part);
}

void copy(void* to, const void* from, size_t nbytes) {
  if (nbytes != 0 && to != from) std::memcpy(to, from, nbytes);
}
char* at(void* data, size_t offset) { return static_cast<char*>(data) + offset; }
const char* at(const void* data, size_t offset) { return static_cast<const char*>(data) + offset; }

}  // namespace

// ---- Steps

void LocalBackend::await_steps(int source, uint64_t steps, const Wait& wait) {
  auto done = [&](int r) { return r == rank() || area_.steps_done(r).load() >= steps; };
  int r = source == kAll ? 0 : source;
  const int end = source == kAll ? size() : source + 1;
  auto ready = [&] {
    while (r < end && done(r)) ++r;
    return r == end;
  };
  area_.until(wait, ready, [&] {
    std::vector<int> ranks;
    for (int i = r; i < end; ++i)
      if (!done(i)) ranks.push_back(i);
    return ranks;
  });
}

void LocalBackend::stream(const Flow& flow, const Wait& wait) {
  const size_t delay = flow.combine ? 2 : 1;  // from filling to taking
  if (flow.chunks == 0) return;
  for (size_t t = 0; t < flow.chunks + delay; ++t) {
    const uint64_t step = steps_;
    if (t < flow.chunks && flow.fill) {
      // The chunk was filled kBuffers steps ago and taken from at most two steps later, in whichever call that was.
      if (step + 3 > kBuffers) await_steps(kAll, step + 3 - kBuffers, wait);
      flow.fill(t, step);
    }
    if (t != 0 && (flow.combine || flow.take)) await_steps(flow.source, step, wait);
    if (flow.combine && t >= 1 && t - 1 < flow.chunks) flow.combine(t - 1, step - 1);
    if (flow.take && t >= delay) flow.take(t - delay, step - delay);
    steps_ = step + 1;
    area_.steps_done(rank()).store(steps_);
    area_.notify_all();
    if (t % 64 == 63) wait.poll(Clock::now(), [this] { return std::vector<int>{rank()}; });
  }
}

// Small calls are cut as well, so that filling and taking overlap.
size_t LocalBackend::chunk_for(size_t nbytes) const noexcept {
  const size_t quarter = ceil_div(ceil_div(nbytes, 4), kLine) * kLine;
  return std::clamp(quarter, std::min(kLeastChunk, area_.chunk_bytes()), area_.chunk_bytes());
}

// Of a chunk that has a part for each rank.
size_t LocalBackend::part_bytes() const noexcept {
  return area_.chunk_bytes() / static_cast<size_t>(size()) / kLine * kLine;
}

size_t LocalBackend::most(size_t mine, const Wait& wait) {
  std::vector<size_t> all(static_cast<size_t>(size()));
  exchange_bytes(&mine, sizeof(mine), all.data(), wait);
  return *std::max_element(all.begin(), all.end());
}

// ---- Reductions

void LocalBackend::reduce_to(void* data, int64_t numel, DType dtype, Reduce op, int root, const Wait& wait) {
  if (size() == 1) return;
  const size_t element = element_size(dtype), nbytes = static_cast<size_t>(numel) * element;
  const size_t chunk = chunk_for(nbytes);
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  const bool takes = root == kAll || root == rank();
  std::vector<const void*> rows(n);
  Flow flow;
  flow.chunks = ceil_div(nbytes, chunk);
  auto fill = [&](size_t i, uint64_t step) {
    copy(area_.chunk(rank(), step), at(data, i * chunk), part_of(nbytes, chunk, i));
  };
  auto reduce = [&](char* out, size_t count) {
    reduce_bytes(out, rows, static_cast<int64_t>(count / element), dtype, op);
  };
  if (size() <= kMostThatReadAll) {
    if (root != rank()) flow.fill = fill;
    if (takes)
      flow.take = [&](size_t i, uint64_t step) {
        char* own = at(data, i * chunk);
        for (size_t r = 0; r < n; ++r) rows[r] = r == me ? own : area_.chunk(static_cast<int>(r), step);
        reduce(own, part_of(nbytes, chunk, i));
      };
    return stream(flow, wait);
  }
  // Share r of a chunk begins at r * share.
  auto share_of = [&](size_t i) { return ceil_div(ceil_div(part_of(nbytes, chunk, i), n), kLine) * kLine; };
  flow.fill = fill;
  flow.combine = [&](size_t i, uint64_t step) {
    const size_t share = share_of(i), first = me * share;
    for (size_t r = 0; r < n; ++r) rows[r] = area_.chunk(static_cast<int>(r), step) + first;
    reduce(area_.chunk(rank(), step) + first, part_of(part_of(nbytes, chunk, i), share, me));
  };
  if (takes)
    flow.take = [&](size_t i, uint64_t step) {
      const size_t share = share_of(i);
      for (size_t r = 0; r < n; ++r)
        copy(at(data, i * chunk + r * share), area_.chunk(static_cast<int>(r), step) + r * share,
             part_of(part_of(nbytes, chunk, i), share, r));
    };
  stream(flow, wait);
}

void LocalBackend::all_reduce(void* data, int64_t numel, DType dtype, Reduce op, const Wait& wait) {
  check_reduce("all_reduce", dtype, op);
  guarded(wait, [&] { reduce_to(data, numel, dtype, op, kAll, wait); });
}

void LocalBackend::reduce(void* data, int64_t numel, DType dtype, Reduce op, int root, const Wait& wait) {
  check_reduce("reduce", dtype, op);
  guarded(wait, [&] { reduce_to(data, numel, dtype, op, root, wait); });
}

void LocalBackend::reduce_scatter(std::span<const void* const> in, std::span<const int64_t> numel, void* out,
                                  DType dtype, Reduce op, const Wait& wait) {
  check_reduce("reduce_scatter", dtype, op);
  guarded(wait, [&] {
    const size_t element = element_size(dtype), part = part_bytes();
    const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
    auto bytes_of = [&](size_t r) { return static_cast<size_t>(numel[r]) * element; };
    if (n == 1) return copy(out, in[0], bytes_of(0));
    std::vector<const void*> rows(n);
    Flow flow;
    for (size_t r = 0; r < n; ++r) flow.chunks = std::max(flow.chunks, ceil_div(bytes_of(r), part));
    flow.fill = [&](size_t i, uint64_t step) {
      for (size_t r = 0; r < n; ++r)
        if (r != me) copy(area_.chunk(rank(), step) + r * part, at(in[r], i * part), part_of(bytes_of(r), part, i));
    };
    flow.take = [&](size_t i, uint64_t step) {
      const size_t count = part_of(bytes_of(me), part, i);
      if (count == 0) return;
      for (size_t r = 0; r < n; ++r)
        rows[r] = r == me ? at(in[me], i * part) : area_.chunk(static_cast<int>(r), step) + me * part;
      reduce_bytes(at(out, i * part), rows, static_cast<int64_t>(count / element), dtype, op);
    };
    stream(flow, wait);
  });
}

// ---- Copies

void LocalBackend::broadcast(Bytes data, int root, const Wait& wait) {
  guarded(wait, [&] {
    if (size() == 1) return;
    const size_t chunk = chunk_for(data.nbytes);
    Flow flow;
    flow.chunks = ceil_div(data.nbytes, chunk);
    flow.source = root;
    auto& way = rank() == root ? flow.fill : flow.take;
    way = [&](size_t i, uint64_t step) {
      char *own = at(data.data, i * chunk), *common = area_.chunk(root, step);
      const size_t n = part_of(data.nbytes, chunk, i);
      rank() == root ? copy(common, own, n) : copy(own, common, n);
    };
    stream(flow, wait);
  });
}

void LocalBackend::gather_to(ConstBytes in, std::span<const Bytes> out, int root, const Wait& wait) {
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  size_t longest = 0;
  for (const Bytes& b : out) longest = std::max(longest, b.nbytes);
  const size_t chunk = chunk_for(longest);
  Flow flow;
  if (n > 1) flow.chunks = ceil_div(longest, chunk);
  if (root != rank())
    flow.fill = [&](size_t i, uint64_t step) {
      copy(area_.chunk(rank(), step), at(in.data, i * chunk), part_of(in.nbytes, chunk, i));
    };
  if (root == kAll || root == rank()) {
    copy(out[me].data, in.data, in.nbytes);
    flow.take = [&](size_t i, uint64_t step) {
      for (size_t r = 0; r < n; ++r)
        if (r != me)
          copy(at(out[r].data, i * chunk), area_.chunk(static_cast<int>(r), step), part_of(out[r].nbytes, chunk, i));
    };
  }
  stream(flow, wait);
}

void LocalBackend::all_gather(ConstBytes in, std::span<const Bytes> out, const Wait& wait) {
  guarded(wait, [&] { gather_to(in, out, kAll, wait); });
}

void LocalBackend::gather(ConstBytes in, std::span<const Bytes> out, int root, const Wait& wait) {
  guarded(wait, [&] { gather_to(in, out, root, wait); });
}

// A chunk has a part for each receiver. How many there are is known to pairs only.
void LocalBackend::pairwise(std::span<const ConstBytes> in, std::span<const Bytes> out, int source, const Wait& wait) {
  const auto n = static_cast<size_t>(size()), me = static_cast<size_t>(rank());
  const bool sends = source == kAll || source == rank();
  if (sends) copy(out[me].data, in[me].data, in[me].nbytes);
  if (n == 1) return;
  const size_t part = part_bytes();
  size_t longest = 0;
  for (size_t r = 0; r < n; ++r)
    if (r != me) longest = std::max({longest, sends ? in[r].nbytes : 0, out[r].nbytes});
  Flow flow;
  flow.chunks = most(ceil_div(longest, part), wait);
  flow.source = source;
  if (sends)
    flow.fill = [&](size_t i, uint64_t step) {
      for (size_t r = 0; r < n; ++r)
        if (r != me)
          copy(area_.chunk(rank(), step) + r * part, at(in[r].data, i * part), part_of(in[r].nbytes, part, i));
    };
  if (source != rank())
    flow.take = [&](size_t i, uint64_t step) {
      for (size_t r = 0; r < n; ++r)
        if (r != me && (source == kAll || static_cast<size_t>(source) == r))
          copy(at(out[r].data, i * part), area_.chunk(static_cast<int>(r), step) + me * part,
               part_of(out[r].nbytes, part, i));
    };
  stream(flow, wait);
}

void LocalBackend::scatter(std::span<const ConstBytes> in, Bytes out, int root, const Wait& wait) {
  guarded(wait, [&] {
    std::vector<Bytes> from(static_cast<size_t>(size()));
    from[static_cast<size_t>(root)] = out;
    pairwise(in, from, root, wait);
  });
}

void LocalBackend::all_to_all(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait) {
  guarded(wait, [&] { pairwise(in, out, kAll, wait); });
}

}  // namespace tapegrad::distributed::local
