// The generated C++ API: calls, operators, promotion, views, in-place and out= forms, errors, the meta device. What
// each operator computes is tested from Python against NumPy and torch.
#include <catch2/catch.hpp>

#include "autograd/helpers.h"
#include "tapegrad/aten/functions.h"
#include "tapegrad/c10/dispatch/kernel_table.h"

namespace tapegrad {

namespace entries {
extern TG_API OperatorEntry exp;  // as every row's, in a generated file
}

using namespace tapegrad::test;

TEST_CASE("functions, methods and operators", "[aten]") {
  Tensor a = values({1, 2, 3}), b = values({4, 5, 6});
  CHECK(close(tapegrad::add(a, b), {5, 7, 9}));
  CHECK(close(a + b, {5, 7, 9}));
  CHECK(close(a.mul(b), {4, 10, 18}));
  CHECK(close(2 - a * 0.5, {1.5, 1, 0.5}));
  CHECK(close(-a / b, {-0.25, -0.4, -0.5}));
  CHECK(a.sum().item<double>() == 6);
  CHECK(close(tapegrad::exp(a), {std::exp(1), std::exp(2), std::exp(3)}));
}

TEST_CASE("broadcasting", "[aten]") {
  Tensor column = values({1, 2}, {2, 1}), row = values({10, 20, 30}, {3});
  Tensor sum = column + row;
  CHECK(sum.sizes() == IntSpan({2, 3}));
  CHECK(close(sum, {11, 21, 31, 12, 22, 32}));
  CHECK(contains(error_of([&] { values({1, 2}) + row; }), "shapes [2] and [3] do not broadcast"));
  CHECK((values({}, {0, 3}) + row).numel() == 0);
}

TEST_CASE("promotion", "[aten]") {
  Tensor f32 = empty_tensor({2}, DType::float32), i64 = empty_tensor({2}, DType::int64);
  f32.fill_(1);
  i64.fill_(3);
  CHECK((f32 + i64).dtype() == DType::float32);
  CHECK((i64 + 1).dtype() == DType::int64);
  CHECK((i64 + 0.5).dtype() == default_dtype());
  CHECK((f32 + number(1)).dtype() == DType::float32);
  CHECK((f32 + values({1, 2})).dtype() == DType::float64);
  CHECK((i64 / i64).dtype() == DType::float32);
  CHECK(!error_of([&] { i64.add_(f32); }).empty());
}

TEST_CASE("views share memory", "[aten]") {
  Tensor t = values({1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor column = t.select(1, 1);
  CHECK(close(column, {2, 5}));
  column.fill_(0);
  CHECK(close(t, {1, 0, 3, 4, 0, 6}));
  CHECK(close(t.transpose(0, 1), {1, 4, 0, 0, 3, 6}));
  CHECK(close(t.narrow(1, 1, 2).reshape({4}), {0, 3, 0, 6}));
  CHECK(t.view({3, 2}).data_ptr() == t.data_ptr());
  CHECK(!error_of([&] { t.transpose(0, 1).view({6}); }).empty());
  CHECK(!error_of([&] { t.view({4}); }).empty());
  CHECK(!error_of([&] { t.select(0, 2); }).empty());
  CHECK(!error_of([&] { t.as_strided({100}, {1}); }).empty());
}

TEST_CASE("in-place and out= forms", "[aten]") {
  Tensor t = values({1, 2, 3});
  const void* where = t.data_ptr();
  t.mul_(2).add_(values({1, 1, 1}));
  CHECK(close(t, {3, 5, 7}));
  CHECK(t.data_ptr() == where);
  CHECK(t.version() == 2);
  Tensor out = empty_tensor({3}, DType::float64);
  tapegrad::add_out(t, 1, 1, out);
  CHECK(close(out, {4, 6, 8}));
  CHECK(!error_of([&] { t.add_(values({1, 2, 3, 4, 5, 6}, {2, 3})); }).empty());
  CHECK(close(t, {3, 5, 7}));  // nothing was written
}

TEST_CASE("the meta device computes shapes only", "[aten]") {
  Tensor a = empty_tensor({2, 1}, DType::float32, Device(DeviceType::Meta));
  Tensor b = empty_tensor({3}, DType::float64, Device(DeviceType::Meta));
  Tensor c = a * b;
  CHECK(c.is_meta());
  CHECK(c.sizes() == IntSpan({2, 3}));
  CHECK(c.dtype() == DType::float64);
  CHECK(c.data_ptr() == nullptr);
  CHECK(!error_of([&] { c.item(); }).empty());
  CHECK(!error_of([&] { a + values({1, 2}); }).empty());
}

TEST_CASE("a missing kernel is an error with a name", "[aten]") {
  CHECK(entries::exp.kernels[static_cast<int>(DeviceType::CPU)] != nullptr);
  std::string message = error_of([] { kernel_for<AnyKernel>(entries::exp, Device(DeviceType::Meta)); });
  CHECK(contains(message, "exp"));
  CHECK(contains(message, "meta"));
}

}  // namespace tapegrad
