// Images of handwritten digits from idx files (LeCun, Cortes and Burges, 1998), plain or compressed with gzip.
#pragma once

#include <string>

#include "tapegrad/aten/tensor.h"

namespace tapegrad::datasets {

// The array in an idx file, as a tensor of its element type. Raises Runtime if the file is not in this format.
TG_API Tensor read_idx(const std::string& path);

struct TG_API MNIST {
  static constexpr double kMean = 0.1307, kStd = 0.3081;

  Tensor images;  // uint8, (N, 28, 28)
  Tensor labels;  // int64, (N)

  // From a folder with the usual file names, compressed or not. Where it holds only the 10,000 test images, as the
  // folder that comes with tapegrad does, they are split: 8,000 to train, 2,000 to test.
  MNIST(const std::string& folder, bool train);

  int64_t size() const { return images.size(0); }
  // As input of a network: float32 of (N, 1, 28, 28) with mean 0 and standard deviation 1.
  Tensor normalized() const;
};

}  // namespace tapegrad::datasets
