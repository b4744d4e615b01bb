// Gradients of weights by whole products, with our own in the library's place, against the kernels of convolutions.
#include "cuda/linalg/products.h"

#include <catch2/catch.hpp>

#include "tapegrad/aten/cudnn_switches.h"
#include "tapegrad/aten/functions_conv.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/c10/dispatch/float32_precision.h"
#include "tapegrad/cuda/kernel_table.h"
#include "tapegrad/cuda/memory/device_allocator.h"

using namespace tapegrad;
using namespace cuda::own_products;

namespace {

struct Case {
  int64_t n, ic, oc, side, kernel, stride, padding, dilation = 1, groups = 1;
  size_t spatial = 2;
  int64_t unused = 0;  // places at the end that a transposed convolution with output_padding leaves out
  int64_t out() const { return (side + 2 * padding - dilation * (kernel - 1) - 1) / stride + 1 - unused; }
  // (a, b, spatial...); of volumes the depth, whose numbers are all `depth`, comes first.
  DimVector sizes(std::initializer_list<int64_t> first, int64_t spatial_size, int64_t depth = 1) const {
    DimVector all(first);
    if (spatial == 3) all.push_back(depth);
    all.resize(first.size() + spatial, spatial_size);
    return all;
  }
};

// The products that were asked for; the result is compared with that of the convolution's own kernels.
int products_of(const Case& c, DType dtype = DType::float32) {
  const Tensor input = filled(c.sizes({c.n, c.ic}, c.side), dtype, 1),
               grad = filled(c.sizes({c.n, c.oc}, c.out()), dtype, 2);
  const DimVector weight = c.sizes({c.oc, c.ic / c.groups}, c.kernel), stride = c.sizes({}, c.stride),
                  padding = c.sizes({}, c.padding, 0), dilation = c.sizes({}, c.dilation);
  const auto run = [&] { return _conv_grad_weight(grad, input, weight, stride, padding, dilation, c.groups); };
  const Tensor own = run();
  CHECK(difference(own, with_products(run)) < 2e-3);
  return asked;
}

}  // namespace

TEST_CASE("Weights of one element and of first layers have gradients by products", "[cuda]") {
  REQUIRE(tapegrad_cuda_init() > 0);
  const Case one{3, 6, 5, 4, 1, 1, 0}, first{2, 3, 4, 9, 3, 2, 1}, dilated{2, 1, 4, 9, 3, 1, 2, 2};
  for (const Case& c : {one, first, dilated, Case{1, 2, 3, 5, 5, 1, 0}}) CHECK(products_of(c) == 1);
  for (const Case& c : {one, first, dilated})  // signals, and volumes of one layer
    for (const size_t spatial : {size_t{1}, size_t{3}}) {
      Case other = c;
      other.spatial = spatial;
      CHECK(products_of(other) == 1);
    }
  takes = [](const cuda::Product&) { return false; };
  CHECK(products_of(one) == 1);
  takes = nullptr;
  for (const Case& c : {Case{2, 6, 5, 6, 3, 1, 1}, Case{2, 6, 5, 6, 1, 2, 0}, Case{2, 6, 5, 6, 1, 1, 1},
                        Case{2, 6, 4, 6, 1, 1, 0, 1, 2}, Case{2, 3, 4, 9, 3, 1, 0, 2, 1, 2, 1}})
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
