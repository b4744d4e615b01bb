#include "tapegrad/nn/files/files.h"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>

#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_random.h"
#include "tapegrad/tapegrad.h"

namespace tapegrad::nn {
namespace {

// A name in the folder for temporary files that is removed in the end.
struct Path {
  std::string text = "/tmp/tapegrad_files_test_" + std::to_string(::getpid());
  ~Path() { std::remove(text.c_str()); }
  void write(const std::string& content) const { std::ofstream(text, std::ios::binary) << content; }
};

std::string file_of(const std::string& header, size_t bytes = 0) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + std::string(bytes, '\1');
}

}  // namespace

TEST_CASE("a module goes through a file", "[nn]") {
  const Path path;
  const Sequential a(Linear(3, 4), BatchNorm1d(4)), b(Linear(3, 4), BatchNorm1d(4));
  save(*a, path.text);
  load(*b, path.text);
  const Tensor x = tapegrad::randn({5, 3});
  CHECK(equal(a(x), b(x)));
  const Sequential other(Linear(3, 4));
  CHECK_THROWS_WITH(load(*other, path.text), Catch::Contains("unexpected: \"1.weight\""));
  load(*other, path.text, false);
}

TEST_CASE("tensors of all kinds go through a file", "[nn]") {
  const Path path;
  NamedTensors all{{"empty", tapegrad::zeros({0, 3})},
                   {"scalar", tapegrad::full({}, 2.5, DType::float64)},
                   {"a \"name\"\n", tapegrad::arange(6).reshape({2, 3}).t()},
                   {"flags", tapegrad::ones({2}, DType::bool_)},
                   {"half", tapegrad::ones({3}, DType::bfloat16)},
                   {"complex", tapegrad::ones({2}, DType::complex64)}};
  save_tensors(all, path.text);
  const NamedTensors read = load_tensors(path.text);
  REQUIRE(read.size() == all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(read[i].first == all[i].first);
    CHECK(read[i].second.dtype() == all[i].second.dtype());
    CHECK(equal(read[i].second, all[i].second));
  }
  CHECK_THROWS_AS(save_tensors({{"a", all[0].second}, {"a", all[0].second}}, path.text), Error);
  CHECK_THROWS_AS(save_tensors({{"a", tapegrad::ones({1}, DType::complex128)}}, path.text), Error);
  CHECK(load_tensors(path.text).size() == all.size());  // the old file is as it was
  CHECK_THROWS_WITH(save_tensors(all, "/no/such/folder/file"), Catch::Contains("cannot open"));
}

TEST_CASE("names are decoded", "[nn]") {
  const Path path;
  path.write(file_of(
      R"( {"__metadata__":{"format":"pt"}, "\u00e4\ud83d\ude00\/" : {"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
      2));
  const NamedTensors read = load_tensors(path.text);
  REQUIRE(read.size() == 1);
  CHECK(read[0].first == "\xc3\xa4\xf0\x9f\x98\x80/");
}

TEST_CASE("damaged files are refused", "[nn]") {
  const Path path;
  for (
      const std::string& content :
      {std::string("short"), std::string(8, '\xff'), file_of(""), file_of("[]"), file_of("{}x"), file_of(R"({"a":1})"),
       file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 3),
       file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
       file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,0]}})", 4),
       file_of(R"({"a":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}})", 4),
       file_of(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
       file_of(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,0]}})"),
       file_of(R"({"a":{"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,0]}})"),
       file_of(R"({"a":{"dtype":"F32","shape":[1]}})", 4), file_of(R"({"a":{"shape":[0],"data_offsets":[0,0]}})"),
       file_of(
           R"({"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"),
       file_of(R"({"\ud83d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})"), file_of(R"({"\x":{}})"),
       file_of(R"({"a)")}) {
    path.write(content);
    CHECK_THROWS_AS(load_tensors(path.text), Error);
  }
  CHECK_THROWS_WITH(load_tensors("/no/such/file"), Catch::Contains("cannot open /no/such/file"));
}

}  // namespace tapegrad::nn
