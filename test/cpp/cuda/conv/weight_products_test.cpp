// Gradients of weights by whole products, with our own in the library's place, against the kernels of convolutions.
#include <catch2/catch.hpp>
#include <cmath>

#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/aten/functions_conv.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/float32_precision.h"
#include "tapegrad/cuda/kernel_table.h"
#include "tapegrad/cuda/linalg/product_library.h"
#include "tapegrad/cuda/memory/device_allocator.h"

using namespace tapegrad;
using cuda::Product;
using cuda::product_library;

namespace {

int asked = 0;
bool refuses = false;

bool by_gemm(const cuda::Stream& stream, const Product& p) {
  ++asked;
  if (refuses) return false;
  product_library = nullptr;
  cuda::gemm(stream, p.dtype, p.batch, p.m, p.n, p.k, p.alpha, p.a, p.b, p.beta, p.c);
  product_library = &by_gemm;
  return true;
}

Tensor filled(IntSpan sizes, DType dtype, int64_t seed) {
  const Tensor t = empty_tensor(sizes, DType::float32);
  for (int64_t i = 0; i < t.numel(); ++i)
    static_cast<float*>(t.data_ptr())[i] = static_cast<float>((i * 37 + seed * 101) % 61 - 30) / 24;
  const Tensor there = empty_tensor(TensorSpec{sizes, dtype, Device(DeviceType::CUDA, 0), {}});
  there.copy_(t);
  return there;
}

struct Case {
  int64_t n, ic, oc, side, kernel, stride, padding, dilation = 1, groups = 1;
  int64_t out() const { return (side + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1; }
};

double difference(const Tensor& a, const Tensor& b) {
  const Tensor x = to(a, DType::float32, Device(DeviceType::CPU)), y = to(b, DType::float32, Device(DeviceType::CPU));
  double most = 0;
  for (int64_t i = 0; i < x.numel(); ++i) {
    const double d = std::abs(static_cast<const float*>(x.data_ptr())[i] - static_cast<const float*>(y.data_ptr())[i]);
    most = d > most || std::isnan(d) ? d : most;
  }
  return most;
}

// The products that were asked for; the result is compared with that of the convolution's own kernels.
int products_of(const Case& c, DType dtype = DType::float32) {
  const Tensor input = filled(DimVector{c.n, c.ic, c.side, c.side}, dtype, 1),
               grad = filled(DimVector{c.n, c.oc, c.out(), c.out()}, dtype, 2);
  const DimVector weight{c.oc, c.ic / c.groups, c.kernel, c.kernel}, stride{c.stride, c.stride},
      padding{c.padding, c.padding}, dilation{c.dilation, c.dilation};
  const auto run = [&] { return _conv_grad_weight(grad, input, weight, stride, padding, dilation, c.groups); };
  const Tensor own = run();
  asked = 0;
  product_library = &by_gemm;
  const Tensor by_products = run();
  product_library = nullptr;
  CHECK(difference(own, by_products) < 2e-3);
  return asked;
}

}  // namespace

TEST_CASE("Weights of one element and of first layers have gradients by products", "[cuda]") {
  REQUIRE(tapegrad_cuda_init() > 0);
  const Case one{3, 6, 5, 4, 1, 1, 0}, first{2, 3, 4, 9, 3, 2, 1}, dilated{2, 1, 4, 9, 3, 1, 2, 2};
  for (const Case& c : {one, first, dilated, Case{1, 2, 3, 5, 5, 1, 0}}) CHECK(products_of(c) == 1);
  refuses = true;
  CHECK(products_of(one) == 1);
  refuses = false;
  for (const Case& c : {Case{2, 6, 5, 6, 3, 1, 1}, Case{2, 6, 5, 6, 1, 2, 0}, Case{2, 6, 5, 6, 1, 1, 1},
                        Case{2, 6, 4, 6, 1, 1, 0, 1, 2}})
    CHECK(products_of(c) == 0);
  CHECK(products_of(one, DType::bfloat16) == 0);
  // Products in TF32 where convolutions may not round are not used.
  set_allow_tf32(true);
  CHECK((products_of(one) == 0 && products_of(first) == 0));
  set_cudnn_switch(CudnnSwitch::AllowTF32, 1);
  CHECK((products_of(one) == 0 && products_of(first) == 1));
  set_cudnn_switch(CudnnSwitch::AllowTF32, 0);
  set_allow_tf32(false);
}

TEST_CASE("Gradients of the weights of many images are added in portions, and without memory otherwise", "[cuda]") {
  REQUIRE(tapegrad_cuda_init() > 0);
  const Case many{70, 1, 1024, 16, 16, 16, 0};  // 1 MB for each image
  CHECK(products_of(many) == 2);
  cuda::DeviceAllocator& allocator = cuda::device_allocator(0);
  const double before = allocator.fraction();
  allocator.empty_cache();
  allocator.set_fraction(0.01);  // 41 of 4,096 MB
  CHECK(products_of(many) == 0);
  allocator.set_fraction(before);
}
