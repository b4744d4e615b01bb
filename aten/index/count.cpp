// bincount: counts (or sums of weights) per value.
#include "tapegrad/aten/index/count.h"

#include <algorithm>
#include <bit>
#include <span>
#include <vector>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_reduce.h"
#include "tapegrad/aten/kernels_index.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::cpu {
namespace {

// Counts of small values, in one pass. The tables grow with the values; as long as they are short, four are used in
// turn, so that equal neighbouring values do not depend on each other's store.
class Tally {
 public:
  // For how many values, less than 2^32: tables are not much longer.
  explicit Tally(int64_t values)
      : most_bits_(std::clamp<int>(std::bit_width(static_cast<uint64_t>(values)), 8, 16)),
        bits_in_turn_(std::min(most_bits_ - 3, 10)) {}

  // False: there is a negative value, or one that is too large; what was counted is of no use then.
  bool add(const int64_t* p, int64_t n) {
    constexpr int64_t kBlock = 512;
    for (int64_t first = 0; first < n; first += kBlock) {
      const int64_t m = std::min(kBlock, n - first);
      if (const int bits = std::bit_width(bits_of(p + first, m)); bits > bits_) {
        if (bits > most_bits_) return false;
        grow(bits);
      }
      if (in_turn_ == 1)
        count(p + first, m, tables_.data());
      else
        count_in_turn(p + first, m, tables_.data(), int64_t{1} << bits_);
    }
    return true;
  }
  // How often each value was there, up to the largest that was.
  std::span<const uint32_t> counts() {
    const size_t size = bits_ < 0 ? 0 : size_t{1} << bits_;
    uint32_t* sums = tables_.data();
    for (; in_turn_ > 1; --in_turn_) {
      const uint32_t* last = sums + static_cast<size_t>(in_turn_ - 1) * size;
      for (size_t i = 0; i < size; ++i) sums[i] += last[i];
    }
    size_t n = size;
    while (n > 0 && sums[n - 1] == 0) --n;
    return {sums, n};
  }

 private:
  void grow(int bits) {
    const std::span<const uint32_t> before = counts();
    const int in_turn = bits <= bits_in_turn_ ? kInTurn : 1;
    std::vector<uint32_t> tables(static_cast<size_t>(in_turn) << bits);
    std::ranges::copy(before, tables.begin());
    tables_ = std::move(tables);
    in_turn_ = in_turn;
    bits_ = bits;
  }
  static uint64_t bits_of(const int64_t* p, int64_t n) {
    int64_t x = 0, y = 0, z = 0, w = 0, i = 0;
    for (; i + 4 <= n; i += 4) {
      x |= p[i];
      y |= p[i + 1];
      z |= p[i + 2];
      w |= p[i + 3];
    }
    for (; i < n; ++i) x |= p[i];
    return static_cast<uint64_t>((x | y) | (z | w));
  }
  static void count(const int64_t* p, int64_t n, uint32_t* table) {
    for (int64_t i = 0; i < n; ++i) ++table[p[i]];
  }

  int most_bits_, bits_in_turn_;
  std::vector<uint32_t> tables_;
  int in_turn_ = 1, bits_ = -1;  // values below 2^bits have a place
};

// Undefined if the values need the general path.
Tensor count_small(const int64_t* p, int64_t n, int64_t minlength) {
  constexpr int64_t kWorthAThread = 65536, kRound = 1 << 24;
  const int64_t threads = std::clamp<int64_t>(n / kWorthAThread, 1, get_num_threads());
  if (n / threads >= UINT32_MAX) return {};
  std::vector<Tally> parts(static_cast<size_t>(threads), Tally(n / threads));
  std::vector<char> counted(parts.size(), 1);
  for (int64_t first = 0; first < n; first += kRound) {
    check_interrupt();
    for_parts(threads, std::min(kRound, n - first), [&](int64_t k, int64_t begin, int64_t end) {
      counted[static_cast<size_t>(k)] = parts[static_cast<size_t>(k)].add(p + first + begin, end - begin);
    });
    if (!std::ranges::all_of(counted, [](char c) { return c != 0; })) return {};
  }
  size_t length = static_cast<size_t>(minlength);
  for (Tally& part : parts) length = std::max(length, part.counts().size());
  Tensor out = raw::zeros({static_cast<int64_t>(length)}, DType::int64);
  int64_t* to = out.data<int64_t>();
  for (Tally& part : parts) {
    const std::span<const uint32_t> counts = part.counts();
    for (size_t i = 0; i < counts.size(); ++i) to[i] += counts[i];
  }
  return out;
}

}  // namespace

Tensor bincount_cpu(const Tensor& input, const Tensor& weights, int64_t minlength) {
  check_bincount(input, weights, minlength);
  const Tensor values = raw::contiguous(raw::to(input, DType::int64));
  const int64_t* p = values.data<int64_t>();
  const int64_t n = values.numel();
  if (!weights.defined())
    if (Tensor out = count_small(p, n, minlength); out.defined()) return out;
  int64_t length = minlength;
  if (n > 0) {
    const int64_t smallest = *raw::amin(values).data<int64_t>(), largest = *raw::amax(values).data<int64_t>();
    if (smallest < 0 || largest == INT64_MAX)
      serial_for(0, n, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          TG_CHECK(p[i] >= 0 && p[i] < INT64_MAX, Runtime,
                   "bincount: only 1-d non-negative integral inputs are supported: got {} at index {}", p[i], i);
      });
    length = std::max(length, largest + 1);
  }
  if (!weights.defined()) {
    Tensor out = raw::zeros({length}, DType::int64);
    int64_t* to = out.data<int64_t>();
    serial_for(0, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) ++to[p[i]];
    });
    return out;
  }
  const DType dtype = weights.dtype() == DType::float32 ? DType::float32 : DType::float64;
  Tensor out = raw::zeros({length}, dtype);
  const Tensor w = raw::contiguous(raw::to(weights, dtype));
  dispatch_precision(dtype, [&]<class T>() {
    T* to = out.data<T>();
    const T* from = w.data<T>();
    serial_for(0, n, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) to[p[i]] += from[i];
    });
  });
  return out;
}

}  // namespace tapegrad::cpu
