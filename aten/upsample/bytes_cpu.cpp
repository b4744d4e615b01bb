// Resampling of bytes in fixed point, as Pillow and PyTorch do it, so that pictures have the same bytes: weights are
// computed in double and rounded to whole numbers of 16 bits, dimensions are resampled one after another from the last
// one on, and intermediate results are rounded to bytes, too. A dimension that keeps its size is skipped, whatever the
// scale.
#include "tapegrad/aten/upsample/bytes.h"

#include <cstring>

#include "tapegrad/aten/copy/tile.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::cpu::TG_ISA {
namespace {

using resampling::Mode;

// Output i is the sum over k of weight[i * count + k] * input[first[i] + k], divided by 2^shift.
struct ByteTaps {
  int64_t in, out, count;
  int shift = 0;
  Table<int32_t> first, weight;

  ByteTaps(Mode mode, int64_t in_size, int64_t out_size, bool align_corners, double scale_given)
      : in(in_size), out(out_size) {
    const resampling::Rule<double> rule(mode, in, out, align_corners, scale_given);
    count = rule.count;
    first.resize(static_cast<size_t>(out));
    Table<double> exact(static_cast<size_t>(count * out));
    std::fill(exact.begin(), exact.end(), 0.0);
    double largest = 0;
    for (int64_t i = 0; i < out; ++i)
      rule.taps(i, [&](int64_t k, int64_t element, double w) {
        int32_t& begin = first[static_cast<size_t>(i)];
        if (k == 0) begin = static_cast<int32_t>(element);
        double& sum = exact[static_cast<size_t>(i * count + element - begin)];  // beyond a border they share one
        largest = std::max(largest, sum += w);
      });
    // As many bits as the largest weight leaves of 15.
    while (shift < 22 && 0.5 + largest * static_cast<double>(2 << shift) < 32768) ++shift;
    weight.resize(exact.size());
    const double one = static_cast<double>(1 << shift);
    for (size_t i = 0; i < exact.size(); ++i)
      weight[i] = static_cast<int32_t>(exact[i] * one + (exact[i] < 0 ? -0.5 : 0.5));
  }
  int32_t half() const { return 1 << shift >> 1; }
};

constexpr int64_t kLanes = 16;  // numbers that are summed side by side
typedef uint8_t Lanes8 __attribute__((vector_size(kLanes)));
typedef uint16_t Lanes16 __attribute__((vector_size(2 * kLanes)));
typedef int32_t Lanes32 __attribute__((vector_size(4 * kLanes)));

// The outputs i of `lanes` columns: tap k is at x + k * step.
template <class Lanes>
TG_INLINE void sum_taps(const ByteTaps& t, int64_t i, const void* x, int64_t step, int64_t lanes, Lanes* to) {
  const int32_t* weight = t.weight.data() + i * t.count;
  const char* from = static_cast<const char*>(x);
  Lanes32 sum = Lanes32{} + t.half();
  for (int64_t k = 0; k < t.count; ++k, from += step) {
    if (weight[k] == 0) continue;  // beyond the last element there may be no memory
    Lanes v{};
    std::memcpy(&v, from, lanes == kLanes ? sizeof v : static_cast<size_t>(lanes) * sizeof v[0]);
    sum += weight[k] * __builtin_convertvector(v, Lanes32);
  }
  sum >>= t.shift;
  sum = sum < 0 ? Lanes32{} : sum > 255 ? Lanes32{} + 255 : sum;
  *to = __builtin_convertvector(sum, Lanes);
}

// Along the last dimension of `rows` rows: kLanes rows at a time, which are turned so that they lie side by side.
void resample_rows(const ByteTaps& t, const uint8_t* x, uint8_t* y, int64_t rows) {
  constexpr int64_t kTurned = kLanes * sizeof(uint16_t);
  parallel_for(0, (rows + kLanes - 1) / kLanes, 2048 / (t.in + t.out * t.count) + 1, [&](int64_t begin, int64_t end) {
    std::vector<uint16_t> along(static_cast<size_t>(kLanes * std::max(t.in, t.out)));
    std::vector<Lanes16> across(static_cast<size_t>(t.in)), sums(static_cast<size_t>(t.out));
    const auto bytes = [](auto& v) { return reinterpret_cast<char*>(v.data()); };
    for (int64_t g = begin; g < end; ++g) {
      const int64_t n = std::min(kLanes, rows - g * kLanes);
      const uint8_t* from = x + g * kLanes * t.in;
      uint8_t* to = y + g * kLanes * t.out;
      for (int64_t i = 0; i < n * t.in; ++i) along[static_cast<size_t>(i)] = from[i];
      transpose_plane<uint16_t>(bytes(across), kTurned, bytes(along), t.in * 2, t.in, kLanes);
      for (int64_t i = 0; i < t.out; ++i)
        sum_taps(t, i, &across[static_cast<size_t>(t.first[static_cast<size_t>(i)])], kTurned, kLanes,
                 &sums[static_cast<size_t>(i)]);
      transpose_plane<uint16_t>(bytes(along), t.out * 2, bytes(sums), kTurned, kLanes, t.out);
      for (int64_t i = 0; i < n * t.out; ++i) to[i] = static_cast<uint8_t>(along[static_cast<size_t>(i)]);
    }
  });
}

// Along the middle dimension of [outer, in, inner].
void resample_columns(const ByteTaps& t, const uint8_t* x, uint8_t* y, int64_t outer, int64_t inner) {
  parallel_for(0, outer * t.out, 32768 / (inner * t.count) + 1, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t i = r % t.out;
      const uint8_t* from = x + (r / t.out * t.in + t.first[static_cast<size_t>(i)]) * inner;
      for (int64_t j = 0; j < inner; j += kLanes) {
        const int64_t n = std::min(kLanes, inner - j);
        Lanes8 sums;
        sum_taps(t, i, from + j, inner, n, &sums);
        std::memcpy(y + r * inner + j, &sums, static_cast<size_t>(n));
      }
    }
  });
}

}  // namespace

void resample_bytes(const Tensor& input, Mode mode, bool align_corners,
                    const std::optional<std::vector<double>>& scales, const Tensor& out) {
  DimVector sizes(input.sizes());
  std::vector<size_t> changed;
  for (size_t d = sizes.size(); d-- > 2;)
    if (sizes[d] != out.sizes()[d]) changed.push_back(d);
  if (changed.empty()) {
    std::memcpy(out.data_ptr(), input.data_ptr(), static_cast<size_t>(out.numel()));
    return;
  }
  Tensor now = input;
  for (const size_t d : changed) {
    const ByteTaps taps(mode, sizes[d], out.sizes()[d], align_corners, scales ? (*scales)[d - 2] : 0.0);
    int64_t outer = 1, inner = 1;
    for (size_t k = 0; k < sizes.size(); ++k) (k < d ? outer : inner) *= k == d ? 1 : sizes[k];
    sizes[d] = taps.out;
    const Tensor next = d == changed.back() ? out : empty_tensor(sizes, DType::uint8);
    const auto* from = static_cast<const uint8_t*>(now.data_ptr());
    auto* to = static_cast<uint8_t*>(next.data_ptr());
    if (inner == 1)
      resample_rows(taps, from, to, outer);
    else
      resample_columns(taps, from, to, outer, inner);
    now = next;
  }
}

}  // namespace tapegrad::cpu::TG_ISA
