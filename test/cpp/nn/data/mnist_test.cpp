#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include <unistd.h>

#include "tapegrad/tapegrad.h"

namespace tapegrad::datasets {
namespace {

// A file that goes with its object.
struct TemporaryFile {
  std::string path;
  explicit TemporaryFile(const std::string& bytes)
      : path((std::filesystem::temp_directory_path() / ("tapegrad-idx-" + std::to_string(getpid()))).string()) {
    std::ofstream(path, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::remove(path.c_str()); }
};

}  // namespace

TEST_CASE("an idx file of 16-bit numbers is read in the right byte order", "[data]") {
  const TemporaryFile file(std::string("\0\0\x0B\x02\0\0\0\x01\0\0\0\x03\0\x01\x01\0\xFF\xFF", 18));
  const Tensor t = read_idx(file.path);
  CHECK(t.dtype() == DType::int16);
  CHECK(t.sizes() == IntSpan{1, 3});
  CHECK(t.data<int16_t>()[0] == 1);
  CHECK(t.data<int16_t>()[1] == 256);
  CHECK(t.data<int16_t>()[2] == -1);
}

TEST_CASE("what is no idx file is refused", "[data]") {
  for (const std::string& bytes : {std::string("hello"),
                                   std::string("\0\0\x08\x01\0\0\0\x05"
                                               "ab",
                                               10),
                                   std::string("\0\0\x07\x01\0\0\0\0", 8),
                                   std::string("\0\0\x08\x03\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 16)}) {
    const TemporaryFile file(bytes);
    CHECK_THROWS_AS(read_idx(file.path), Error);
  }
  CHECK_THROWS_AS(read_idx("/nowhere/at/all"), Error);
  CHECK_THROWS_AS(MNIST("/nowhere/at/all", true), Error);
}

}  // namespace tapegrad::datasets
