#include "tapegrad/distributed/pairwise_backend.h"

#include <algorithm>
#include <cstring>
#include <vector>

namespace tapegrad::distributed {

void PairwiseBackend::swap_all(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait) {
  const auto me = static_cast<size_t>(rank());
  if (in[me].nbytes != 0 && out[me].data != nullptr && in[me].data != out[me].data)
    std::memcpy(out[me].data, in[me].data, in[me].nbytes);
  start(in, out, wait)->finish();
}

void PairwiseBackend::exchange(const void* mine, size_t n, void* all, const Wait& wait) {
  std::vector<ConstBytes> in(ranks(), {mine, n});
  std::vector<Bytes> out;
  for (size_t r = 0; r < ranks(); ++r) out.push_back({static_cast<char*>(all) + r * n, n});
  swap_all(in, out, wait);
}

void PairwiseBackend::all_reduce(void* data, int64_t numel, DType dtype, Reduce op, const Wait& wait) {
  // In blocks that fit into caches, and of which each rank sums its own piece; a piece is large beside what a message
  // costs. While a block is summed, pieces of the next one and sums of the one before travel.
  constexpr int64_t kBlock = int64_t{8} << 20, kPiece = int64_t{64} << 10;
  const auto itemsize = static_cast<int64_t>(element_size(dtype));
  const int64_t step = std::max(kBlock, size() * kPiece) / itemsize;
  const int64_t part_bytes = (std::min(step, numel) / size() + 1) * itemsize * (size() - 1);
  const auto come =
      std::make_unique_for_overwrite<char[]>(static_cast<size_t>(numel > step ? 2 * part_bytes : part_bytes));
  struct Block {
    std::vector<Bytes> pieces;  // by rank
    Terms sum;
  };
  const auto start_block = [&](int64_t begin) {
    const int64_t n = std::min(step, numel - begin);
    auto* part = static_cast<char*>(data) + begin * itemsize;
    Block block;
    std::vector<const void*> in;
    std::vector<int64_t> counts;
    for (int r = 0; r < size(); ++r) {
      const int64_t first = n * r / size(), last = n * (r + 1) / size();
      in.push_back(part + first * itemsize);
      counts.push_back(last - first);
      block.pieces.push_back({part + first * itemsize, static_cast<size_t>((last - first) * itemsize)});
    }
    block.sum = collect(in, counts, come.get() + (begin / step % 2) * part_bytes, dtype, wait);
    return block;
  };
  Block block, next;
  std::unique_ptr<Swap> sums;
  if (numel > 0) block = start_block(0);
  for (int64_t begin = 0; begin < numel; begin += step) {
    if (begin + step < numel) next = start_block(begin + step);
    block.sum.swap->finish();
    const Bytes mine = block.pieces[static_cast<size_t>(rank())];
    reduce_bytes(mine.data, block.sum.terms, static_cast<int64_t>(mine.nbytes) / itemsize, dtype, op);
    if (sums) sums->finish();
    sums = start(std::vector<ConstBytes>(ranks(), {mine.data, mine.nbytes}), block.pieces, wait);
    block = std::move(next);
  }
  if (sums) sums->finish();
}

void PairwiseBackend::broadcast(Bytes data, int root, const Wait& wait) {
  std::vector<ConstBytes> in(ranks());
  std::vector<Bytes> out(ranks());
  if (rank() == root)
    std::fill(in.begin(), in.end(), ConstBytes{data.data, data.nbytes});
  else
    out[static_cast<size_t>(root)] = data;
  start(in, out, wait)->finish();
}

void PairwiseBackend::reduce(void* data, int64_t numel, DType dtype, Reduce op, int root, const Wait& wait) {
  const auto itemsize = static_cast<int64_t>(element_size(dtype));
  std::vector<const void*> in;
  std::vector<int64_t> counts;
  std::vector<Bytes> out;
  for (int r = 0; r < size(); ++r) {
    const int64_t first = numel * r / size(), last = numel * (r + 1) / size();
    in.push_back(static_cast<char*>(data) + first * itemsize);
    counts.push_back(last - first);
    out.push_back({rank() == root ? static_cast<char*>(data) + first * itemsize : nullptr,
                   static_cast<size_t>((last - first) * itemsize)});
  }
  const auto nbytes = static_cast<size_t>(counts[static_cast<size_t>(rank())] * itemsize);
  const auto mine = std::make_unique_for_overwrite<char[]>(nbytes);
  reduce_scatter(in, counts, mine.get(), dtype, op, wait);
  gather({mine.get(), nbytes}, out, root, wait);
}

void PairwiseBackend::all_gather(ConstBytes in, std::span<const Bytes> out, const Wait& wait) {
  const std::vector<ConstBytes> all(ranks(), in);
  swap_all(all, out, wait);
}

void PairwiseBackend::gather(ConstBytes in, std::span<const Bytes> out, int root, const Wait& wait) {
  std::vector<ConstBytes> given(ranks());
  given[static_cast<size_t>(root)] = in;
  swap_all(given, rank() == root ? out : std::span<const Bytes>(std::vector<Bytes>(ranks())), wait);
}

void PairwiseBackend::scatter(std::span<const ConstBytes> in, Bytes out, int root, const Wait& wait) {
  std::vector<Bytes> taken(ranks());
  taken[static_cast<size_t>(root)] = out;
  const std::vector<ConstBytes> nothing(ranks());
  swap_all(rank() == root ? in : nothing, taken, wait);
}

PairwiseBackend::Terms PairwiseBackend::collect(std::span<const void* const> in, std::span<const int64_t> numel,
                                                char* come, DType dtype, const Wait& wait) {
  const size_t itemsize = element_size(dtype);
  const size_t nbytes = static_cast<size_t>(numel[static_cast<size_t>(rank())]) * itemsize;
  std::vector<ConstBytes> given;
  std::vector<Bytes> taken;
  Terms all;
  for (size_t r = 0; r < ranks(); ++r) {
    given.push_back({in[r], static_cast<size_t>(numel[r]) * itemsize});
    const bool own = r == static_cast<size_t>(rank());
    taken.push_back({own ? const_cast<void*>(in[r]) : come, nbytes});
    all.terms.push_back(taken.back().data);
    if (!own) come += nbytes;
  }
  all.swap = start(given, taken, wait);
  return all;
}

void PairwiseBackend::reduce_scatter(std::span<const void* const> in, std::span<const int64_t> numel, void* out,
                                     DType dtype, Reduce op, const Wait& wait) {
  const int64_t n = numel[static_cast<size_t>(rank())];
  const auto come =
      std::make_unique_for_overwrite<char[]>((ranks() - 1) * static_cast<size_t>(n) * element_size(dtype));
  const Terms sum = collect(in, numel, come.get(), dtype, wait);
  sum.swap->finish();
  reduce_bytes(out, sum.terms, n, dtype, op);
}

void PairwiseBackend::all_to_all(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait) {
  swap_all(in, out, wait);
}

}  // namespace tapegrad::distributed
