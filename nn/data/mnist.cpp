#include "tapegrad/nn/data/mnist.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <vector>

#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/c10/dispatch/modes.h"

namespace tapegrad::datasets {

namespace {

// zlib reads plain files as they are.
std::vector<unsigned char> read_file(const std::string& path) {
  std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), &gzclose);
  TG_CHECK(file, Runtime, "read_idx: cannot open {}", path);
  std::vector<unsigned char> bytes(size_t{1} << 20);
  size_t used = 0;
  while (true) {
    if (used == bytes.size()) bytes.resize(2 * bytes.size());
    const unsigned want = static_cast<unsigned>(std::min<size_t>(bytes.size() - used, size_t{1} << 30));
    const int got = gzread(file.get(), bytes.data() + used, want);
    TG_CHECK(got >= 0, Runtime, "read_idx: {} is damaged", path);
    if (got == 0) break;
    used += static_cast<size_t>(got);
  }
  // A compressed file that ends too early reads like a short one, but cannot be closed without an error.
  const int closed = gzclose(file.release());
  TG_CHECK(closed == Z_OK, Runtime, "read_idx: {} is damaged or incomplete", path);
  bytes.resize(used);
  return bytes;
}

DType idx_dtype(unsigned char code, const std::string& path) {
  constexpr std::pair<int, DType> kCodes[] = {{0x08, DType::uint8}, {0x09, DType::int8},    {0x0B, DType::int16},
                                              {0x0C, DType::int32}, {0x0D, DType::float32}, {0x0E, DType::float64}};
  for (const auto& [known, dtype] : kCodes)
    if (known == code) return dtype;
  TG_THROW(Runtime, "read_idx: not an idx file: {}", path);
}

}  // namespace

Tensor read_idx(const std::string& path) {
  const std::vector<unsigned char> bytes = read_file(path);
  TG_CHECK(bytes.size() >= 4 && bytes[0] == 0 && bytes[1] == 0, Runtime, "read_idx: not an idx file: {}", path);
  const DType dtype = idx_dtype(bytes[2], path);
  const size_t ndim = bytes[3], head = 4 + 4 * ndim;
  TG_CHECK(bytes.size() >= head && ndim <= 8, Runtime, "read_idx: not an idx file: {}", path);
  DimVector sizes;
  const size_t width = element_size(dtype);
  size_t expected = width;
  for (size_t d = 0; d < ndim; ++d) {
    const unsigned char* p = bytes.data() + 4 + 4 * d;
    const size_t n = size_t{p[0]} << 24 | size_t{p[1]} << 16 | size_t{p[2]} << 8 | size_t{p[3]};
    TG_CHECK(!__builtin_mul_overflow(expected, n, &expected), Runtime, "read_idx: not an idx file: {}", path);
    sizes.push_back(static_cast<int64_t>(n));
  }
  TG_CHECK(bytes.size() - head == expected, Runtime, "read_idx: {} holds {} bytes of values, its header says {}", path,
           bytes.size() - head, expected);
  Tensor result = empty_tensor(sizes, dtype);
  auto* out = static_cast<unsigned char*>(result.data_ptr());
  if (expected > 0) std::memcpy(out, bytes.data() + head, expected);
  for (size_t i = 0; width > 1 && i < expected; i += width) std::reverse(out + i, out + i + width);  // big-endian
  return result;
}

MNIST::MNIST(const std::string& folder, bool train) {
  namespace fs = std::filesystem;
  auto find = [&](const std::string& name) -> std::string {
    for (const char* place : {"", "MNIST/raw/"})
      for (const char* ending : {"", ".gz"})
        if (const fs::path path = fs::path(folder) / (place + name + ending); fs::exists(path)) return path.string();
    return "";
  };
  const bool whole = !find("train-images-idx3-ubyte").empty();
  const std::string part = train && whole ? "train" : "t10k";
  const std::string image_file = find(part + "-images-idx3-ubyte"), label_file = find(part + "-labels-idx1-ubyte");
  TG_CHECK(!image_file.empty() && !label_file.empty(), Runtime,
           "MNIST: {}-images-idx3-ubyte and {}-labels-idx1-ubyte, or those with .gz, are not in {}", part, part,
           folder);
  images = read_idx(image_file);
  labels = raw::to(read_idx(label_file), DType::int64);
  TG_CHECK(images.dim() == 3 && images.size(1) == 28 && images.size(2) == 28 && labels.dim() == 1 &&
               labels.size(0) == images.size(0),
           Runtime, "MNIST: expected images of 28 x 28 and a label for each: got {} and {}",
           format_ints(images.sizes()), format_ints(labels.sizes()));
  if (!whole) {
    const int64_t first = std::min<int64_t>(8000, size());
    const int64_t from = train ? 0 : first, count = train ? first : size() - first;
    images = images.narrow(0, from, count);
    labels = labels.narrow(0, from, count);
  }
}

Tensor MNIST::normalized() const {
  const NoGradGuard no_grad;
  return images.to(DType::float32).div_(255.0).sub_(kMean).div_(kStd).unsqueeze(1);
}

}  // namespace tapegrad::datasets
