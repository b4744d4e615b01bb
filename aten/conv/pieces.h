// How oneDNN's convolutions are cut: into ranges of images, bands of one spatial dimension, and ranges of the channels
// that are written. The borders depend on sizes only, never on the number of threads, so that results have the same
// bits for any number; pieces are short enough that Ctrl-C need not interrupt one. Plain values.
#pragma once

#include <vector>

#include "tapegrad/aten/conv/geometry.h"

namespace tapegrad::onednn {

enum class Pass : uint8_t { Forward, GradInput, GradWeight };

// One dimension of a piece: the outputs [out_first, out_first + out), computed from the inputs [in_first, in_first +
// in) and the padding. For the gradient of the input: these inputs, from all outputs that read them.
struct Band {
  int64_t in_first, in, out_first, out, pad_left, pad_right;
};

struct Pieces {
  // Images of a piece but the last one, and how many ranges there are; the same of the channels, of the input in a
  // gradient of the input and else of the output.
  int64_t images, image_count;
  int64_t channels, channel_count;
  int dimension;  // of the bands, one of three
  std::vector<Band> bands;

  int64_t band_count() const { return static_cast<int64_t>(bands.size()); }
  int64_t count() const { return image_count * band_count() * channel_count; }
};

Pieces cut(const conv::Geometry& g, Pass pass, DType type);

// For a gradient of the weight: the number of partial sums over ranges of images and bands, which are added at the end.
int64_t partial_sums(const conv::Geometry& g, const Pieces& p, DType type);

}  // namespace tapegrad::onednn
