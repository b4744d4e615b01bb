#include "tapegrad/aten/conv/pieces.h"

#include <algorithm>

namespace tapegrad::onednn {
namespace {

using conv::Geometry;

// The activations of a piece and their reordered copies should stay in the second-level cache.
constexpr double kPieceBytes = 768 * 1024;
constexpr double kPieceWork = 1e6;  // multiplications, about 10 us
constexpr double kChannelPieceWork = 8e6;
constexpr int64_t kWantedPieces = 8;
// Bands share what they read only at their borders, while ranges of channels each read all of it: bands are better
// where that is more than the caches hold, and where there are too few channels (measured with 2 threads on Zen 3: a
// 3x3 convolution of 1x128x112x112 takes 0.83 of the time, one of 1x32x256x256 0.6; 3 -> 64 channels of 1x3x224x224
// would take 1.2 times as long). Moving a byte between layouts takes as long as some multiplications.
constexpr double kManyBytes = 4 * kPieceBytes;
constexpr double kBandWork = 8e6, kBandWorkOfWeight = 64e6, kWorkPerByte = 4;
// A piece cannot be interrupted: 10 ms at the best rate, some ten times that where a convolution runs badly.
constexpr double kMostWork = 3e8, kMostBytes = 64 << 20;
// A piece of a gradient of the weight ends with a walk over the weight, so that it may be longer.
constexpr double kMostWorkOfWeight = 1e9;
// Where 16-bit numbers are multiplied, more of them are in the same time (measured on a Zen 5 with AVX-512: 230 G a
// second instead of 100 to 120), while sums in float take as long to add up.
constexpr double kHalfSpeed = 2.5;
double speed(DType type) { return is_half(type) ? kHalfSpeed : 1; }

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }
// The quotient as a count of at least one.
int64_t times(double a, double b) { return std::max<int64_t>(1, static_cast<int64_t>(a / std::max(b, 1.0))); }

double image_work(const Geometry& g) { return g.work() / static_cast<double>(g.n); }
double image_bytes(const Geometry& g) {
  return 4.0 * static_cast<double>(g.ic * g.in_spatial() + g.oc * g.out_spatial());
}

// oneDNN computes few channels as if they were 8.
double padding_to_lanes(const Geometry& g) {
  auto factor = [&](int64_t channels) {
    return std::max(1.0, 8.0 * static_cast<double>(g.groups) / static_cast<double>(std::max<int64_t>(channels, 1)));
  };
  return g.groups > 1 && g.groups == g.ic ? 1.0 : factor(g.ic) * factor(g.oc);
}

// Partial sums of a gradient of the weight are at most 8. Each is written and read once more, which takes as long as
// a thousand multiplications for an element; where channels can be cut instead, that is cheaper: the input is then
// reordered once for all of them.
constexpr double kWorkPerSum = 1000;
int64_t most_sums(const Geometry& g, DType type) {
  const double weights = static_cast<double>(std::max<int64_t>(g.weight_numel(), 1));
  return std::clamp<int64_t>(static_cast<int64_t>(g.work() / (weights * kWorkPerSum * speed(type))),
                             g.groups == 1 ? 1 : 2, 8);
}

void cut_images(const Geometry& g, Pass pass, DType type, Pieces& p) {
  double per_image = image_work(g), bytes = image_bytes(g);
  int64_t images = std::max(times(kPieceBytes, bytes), times(kPieceWork, per_image));
  double most = kMostWork;
  if (pass == Pass::GradWeight) {
    images = std::max(images, ceil_div(g.n, most_sums(g, type)));
    most = kMostWorkOfWeight * speed(type);
  }
  images = std::min({images, g.n, times(most, per_image * padding_to_lanes(g)), times(kMostBytes, bytes)});
  p.image_count = ceil_div(g.n, images);
  p.images = ceil_div(g.n, p.image_count);
  // A slightly smaller piece that divides the batch saves a second primitive.
  for (int64_t i = p.images; i > p.images / 2 && i > 0; --i)
    if (g.n % i == 0) {
      p.images = i;
      break;
    }
  p.image_count = ceil_div(g.n, p.images);
}

// The first one, whose elements are furthest apart in memory, unless another is much longer.
int dimension_of_bands(const Geometry& g) {
  int d = 3 - g.spatial;
  for (int e = d + 1; e < 3; ++e)
    if (g.out[e] > 4 * g.out[d]) d = e;
  return d;
}

// Bands of `rows` outputs. Each holds at least one row of the input and of the output: rows that see nothing but
// padding belong to the first and the last band.
void cut_bands(const Geometry& g, Pass pass, int64_t rows, Pieces& p) {
  const int d = p.dimension;
  const int64_t in = g.in[d], out = g.out[d], stride = g.stride[d], pad = g.pad[d];
  const int64_t reach = g.dilation[d] * (g.kernel[d] - 1);
  // Bands of the input end where an output begins to read, so that no left padding is negative.
  const bool of_input = pass == Pass::GradInput;
  const int64_t begin = of_input ? ceil_div(pad, stride) : ceil_div(std::max<int64_t>(pad - reach, 0), stride);
  const int64_t end = std::min(out, ceil_div(in + pad, stride));
  const int64_t count = in > 0 && end > begin ? ceil_div(end - begin, rows) : 1;
  p.bands.clear();
  if (count == 1) return p.bands.push_back({0, in, 0, out, pad, pad});
  rows = ceil_div(end - begin, count);
  for (int64_t first = begin; first < end; first += rows) {
    const bool at_begin = first == begin, at_end = first + rows >= end;
    Band b;
    b.out_first = at_begin ? 0 : first;
    b.out = (at_end ? out : first + rows) - b.out_first;
    if (of_input) {
      b.in_first = at_begin ? 0 : first * stride - pad;
      b.in = (at_end ? in : (first + rows) * stride - pad) - b.in_first;
      const int64_t before =
          std::min(b.out_first, reach / stride);  // outputs of the band before that reach into this one
      b.out_first -= before;
      b.out += before;
    }
    const int64_t low = b.out_first * stride - pad, high = (b.out_first + b.out - 1) * stride - pad + reach + 1;
    if (!of_input) {
      b.in_first = std::max<int64_t>(low, 0);
      b.in = std::min(high, in) - b.in_first;
    }
    b.pad_left = b.in_first - low;
    b.pad_right = std::max<int64_t>(high - b.in_first - b.in, 0);
    p.bands.push_back(b);
  }
}

}  // namespace

Pieces cut(const Geometry& g, Pass pass, DType type) {
  Pieces p;
  cut_images(g, pass, type, p);
  const bool of_input = pass == Pass::GradInput, of_weight = pass == Pass::GradWeight;
  const int64_t channels = of_input ? g.ic : g.oc;
  const int64_t most_parts = g.groups == 1 ? std::max<int64_t>(1, channels / 32) : 1;
  const int d = p.dimension = dimension_of_bands(g);
  const double work = image_work(g), bytes = image_bytes(g), length = static_cast<double>(g.out[d]);
  int64_t rows = g.out[d];
  if (p.images == 1) {
    const double read = 4.0 * static_cast<double>(of_input ? g.oc * g.out_spatial() : g.ic * g.in_spatial());
    const bool few = p.image_count < kWantedPieces && most_parts == 1;
    if (few || (!of_weight && read > kManyBytes)) {
      const int64_t halo = ceil_div(g.dilation[d] * (g.kernel[d] - 1), g.stride[d]);
      const double least_work = of_weight ? kBandWorkOfWeight : kBandWork;
      rows = std::max({times((of_weight ? 8 : 2) * kPieceBytes * length, bytes), 4 * halo,
                       times(least_work * length, work + kWorkPerByte * bytes)});
    }
    rows = std::min(
        {rows, times((of_weight ? kMostWorkOfWeight * speed(type) : kMostWork) * length, work * padding_to_lanes(g)),
         times(kMostBytes * length, bytes)});
  }
  cut_bands(g, pass, rows, p);
  // Channels are cut only where there are too few pieces for several threads, or those run too long.
  const int64_t so_far = p.image_count * p.band_count();
  const double piece = work * static_cast<double>(p.images) / static_cast<double>(p.band_count());
  const int64_t wanted = so_far < kWantedPieces ? std::min(kWantedPieces / so_far, times(piece, kChannelPieceWork)) : 1;
  const double most = kMostWork * (of_weight ? speed(type) : 1);
  const int64_t parts = std::min(std::max(wanted, times(piece, most)), most_parts);
  p.channels = parts == 1 ? channels : ceil_div(ceil_div(channels, parts), 16) * 16;
  p.channel_count = ceil_div(channels, p.channels);
  return p;
}

int64_t partial_sums(const Geometry& g, const Pieces& p, DType type) {
  return std::min(p.image_count * p.band_count(), most_sums(g, type));
}

}  // namespace tapegrad::onednn
