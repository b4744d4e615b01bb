#include "tapegrad/c10/tensor/tensor_impl.h"

#include <catch2/catch.hpp>

#include "autograd/helpers.h"

namespace tapegrad {

using namespace tapegrad::test;

TEST_CASE("sizes, strides and layout", "[c10][tensor]") {
  Tensor t = empty_tensor({2, 3, 4}, DType::float32);
  CHECK(t.ndim() == 3);
  CHECK(t.numel() == 24);
  CHECK(t.strides() == IntSpan({12, 4, 1}));
  CHECK(t.is_contiguous());
  CHECK(t.size(-1) == 4);
  CHECK(t.nbytes() == 96);
  CHECK(!error_of([&] { t.size(3); }).empty());
  Tensor number = empty_tensor(IntSpan(), DType::int64);
  CHECK(number.ndim() == 0);
  CHECK(number.numel() == 1);
  Tensor none = empty_tensor({3, 0}, DType::float32);
  CHECK(none.numel() == 0);
  CHECK(none.is_contiguous());
}

TEST_CASE("more dimensions than fit inline", "[c10][tensor]") {
  Tensor t = empty_tensor({1, 2, 1, 2, 1, 2, 3}, DType::float32);
  CHECK(t.ndim() == 7);
  CHECK(t.numel() == 24);
  CHECK(t.stride(1) == 12);
  t.impl()->set_geometry({24}, {1}, 0);
  CHECK(t.ndim() == 1);
  CHECK(t.strides() == IntSpan({1}));
}

TEST_CASE("layouts without holes", "[c10][tensor]") {
  Tensor t = empty_tensor({4, 6}, DType::float32);
  auto dense = [&](IntSpan sizes, IntSpan strides) {
    return alias_tensor(t, sizes, strides, 0).impl()->is_non_overlapping_and_dense();
  };
  CHECK(dense({4, 6}, {6, 1}));
  CHECK(dense({6, 4}, {1, 6}));
  CHECK(dense({6, 1, 4}, {1, 99, 6}));
  CHECK(!dense({2, 6}, {12, 1}));
  CHECK(!dense({4, 6}, {0, 1}));
  CHECK(!dense({3, 3}, {1, 1}));
}

TEST_CASE("views share bytes and version", "[c10][tensor]") {
  Tensor t = values({1, 2, 3, 4}, {2, 2});
  Tensor view = alias_tensor(t, {2}, {2}, 1);
  CHECK(close(view, {2, 4}));
  CHECK(view.data_ptr() == static_cast<char*>(t.data_ptr()) + 8);
  *view.data<double>() = 7;
  CHECK(close(t, {1, 7, 3, 4}));
  view.impl()->bump_version("test_", 0);
  CHECK(t.version() == 1);
  CHECK(std::string(t.impl()->counter().writer.op) == "test_");

  SECTION("detached ones notice writes, data_alias does not") {
    Tensor detached = t.detach(), data = t.data_alias();
    t.add_(1);
    CHECK(detached.version() == 2);
    CHECK(data.version() == 0);
    CHECK(close(data, {2, 8, 4, 5}));
  }
}

TEST_CASE("a storage lives as long as its last view", "[c10][tensor]") {
  Tensor view;
  {
    Tensor t = values({1, 2, 3});
    view = alias_tensor(t, {2}, {1}, 1);
    CHECK(t.impl()->storage().use_count() == 2);
  }
  CHECK(view.impl()->storage().use_count() == 1);
  CHECK(close(view, {2, 3}));
}

TEST_CASE("typed access checks the dtype", "[c10][tensor]") {
  Tensor t = empty_tensor({2}, DType::float32);
  CHECK(contains(error_of([&] { t.data<double>(); }), "expected a tensor of dtype float64: got float32"));
  CHECK(t.data<float>() == t.data_ptr());
}

}  // namespace tapegrad
