// Whether tensors share memory, and what that means for a target that an operator writes to.
#include "tapegrad/aten/iterate/outputs.h"

#include <catch2/catch.hpp>

#include "autograd/helpers.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad {

using namespace tapegrad::test;

TEST_CASE("tensors that share bytes may overlap", "[outputs]") {
  const Tensor base = values({0, 1, 2, 3, 4, 5}, {2, 3});
  SECTION("identical ones do, and are the same elements") {
    CHECK(may_overlap(base, base));
    CHECK(same_elements(base, base));
    const Tensor alias = base.detach();
    CHECK(may_overlap(base, alias));
    CHECK(same_elements(base, alias));
  }
  SECTION("the same bytes in another order or of another dtype are not the same elements") {
    const Tensor square = values({0, 1, 2, 3}, {2, 2});
    CHECK(may_overlap(square, square.t()));
    CHECK_FALSE(same_elements(square, square.t()));
    CHECK_FALSE(same_elements(base, base.view({6})));
    CHECK(may_overlap(base, base.view(DType::int64)));
    CHECK_FALSE(same_elements(base, base.view(DType::int64)));
  }
  SECTION("neighbours do not, not even at the byte where one ends") {
    CHECK_FALSE(may_overlap(base.select(0, 0), base.select(0, 1)));
    CHECK(may_overlap(base.select(0, 0), base.view({6}).narrow(0, 2, 2)));
    CHECK_FALSE(may_overlap(base, values({0, 1, 2})));
  }
  SECTION("interleaved ones may: only extents are compared") {
    CHECK(may_overlap(base.select(1, 0), base.select(1, 1)));
  }
  SECTION("empty and undefined ones do not") {
    CHECK_FALSE(may_overlap(base, base.narrow(0, 1, 0)));
    CHECK_FALSE(may_overlap(base.narrow(0, 1, 0), base.narrow(0, 1, 0)));
    CHECK_FALSE(may_overlap(base, Tensor()));
    CHECK_FALSE(may_overlap(empty_tensor({2}, DType::float32, Device(DeviceType::Meta)), base));
  }
  SECTION("dimensions of size one have no extent, whatever their stride") {
    const Tensor one = alias_tensor(base, {1, 1}, {100, 7}, 2);
    CHECK(may_overlap(one, base));
    CHECK(may_overlap(one, one));
    CHECK_FALSE(may_overlap(one, alias_tensor(base, {1}, {100}, 3)));
    CHECK_FALSE(may_overlap(one, base.view({6}).narrow(0, 3, 3)));
  }
  SECTION("negative strides reach down from the first element") {
    const Tensor backwards = alias_tensor(base, {3}, {-1}, 2);  // elements 2, 1, 0
    CHECK(may_overlap(backwards, base.select(0, 0)));
    CHECK(may_overlap(backwards, alias_tensor(base, {1}, {1}, 0)));
    CHECK_FALSE(may_overlap(backwards, base.select(0, 1)));
  }
  SECTION("expanded ones are as long as what they repeat") {
    const Tensor row = base.select(0, 0).expand({4, 3});
    CHECK(may_overlap(row, base.select(0, 0)));
    CHECK_FALSE(may_overlap(row, base.select(0, 1)));
  }
}

TEST_CASE("a source that a target shares memory with is read from a copy, or refused", "[outputs]") {
  const Tensor base = values({0, 1, 2, 3, 4, 5, 6, 7});
  CHECK_FALSE(must_copy_source("add", base, base));
  CHECK_FALSE(must_copy_source("add", base, base.detach()));
  CHECK_FALSE(must_copy_source("add", base.narrow(0, 0, 4), base.narrow(0, 4, 4)));
  CHECK(must_copy_source("add", base.view({4, 2}).select(1, 0), base.narrow(0, 1, 4)));
  CHECK(error_of([&] { must_copy_source("add", base.narrow(0, 0, 4), base.narrow(0, 1, 4)); }) ==
        "add: unsupported operation: the tensor to write to overlaps an operand partly: shapes [4] and [4]\n"
        "take a clone() of one of them first");
}

TEST_CASE("out= takes the result directly only where no input is", "[outputs]") {
  const Tensor out = values({0, 1, 2, 3}), input = values({4, 5, 6, 7});
  const TensorSpec spec{DimVector(out.sizes()), out.dtype(), out.device(), {}};
  CHECK(out_target("cumsum", out, spec, {&input}).is_same(out));
  CHECK_FALSE(out_target("cumsum", out, spec, {&out}).is_same(out));
  CHECK_FALSE(out_target("cumsum", out, spec, {&input}, TensorSpan(&out, 1)).is_same(out));

  const Tensor target = out_target("cumsum", out, spec, {&out});
  target.fill_(9);
  CHECK(close(out, {0, 1, 2, 3}));
  finish_out(out, target);
  CHECK(close(out, {9, 9, 9, 9}));
}

TEST_CASE("out= of other sizes gets new memory, beside which other views keep theirs", "[outputs]") {
  const Tensor base = values({0, 1, 2, 3}), empty = base.narrow(0, 1, 0);
  write_out("stack", empty, values({7, 8}));
  CHECK(close(empty, {7, 8}));
  CHECK(close(base, {0, 1, 2, 3}));
  static std::string warned;
  set_warning_handler([](const std::string& message) { warned = message; });
  const Tensor view = base.narrow(0, 0, 4);
  write_out("stack", base, values({7, 8}));
  CHECK(warned ==
        "An output with one or more elements was resized since it had shape [4], which does not match the required "
        "output shape [2]. An empty out= is resized without a warning");
  CHECK(close(base, {7, 8}));
  CHECK(close(view, {0, 1, 2, 3}));
  set_warning_handler([](const std::string&) { TG_THROW(Runtime, "as an error"); });
  CHECK(error_of([&] { write_out("stack", base, values({1})); }) == "as an error");
  CHECK(close(base, {7, 8}));
  set_warning_handler([](const std::string&) {});
}

}  // namespace tapegrad
