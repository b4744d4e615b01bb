// Attention of float32 and float64 by whole matrices, with our own products in the library's place, against the fused
// kernels.
#include "cuda/linalg/products.h"

#include <catch2/catch.hpp>

#include "tapegrad/aten/functions_attention.h"
#include "tapegrad/aten/functions_compare.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/cuda/kernel_table.h"
#include "tapegrad/cuda/memory/device_allocator.h"

using namespace tapegrad;
using namespace cuda::own_products;

namespace {

int most = 0;  // products taken
bool takes_some(const cuda::Product&) { return asked <= most; }

}  // namespace

TEST_CASE("Attention by products is attention by the fused kernels", "[cuda]") {
  REQUIRE(tapegrad_cuda_init() > 0);
  struct Kind {
    int64_t heads, shared, rows, keys;
    bool causal, masked, dropped;
  };
  for (const DType dtype : {DType::float32, DType::float64})
    for (const Kind& k : {Kind{2, 2, 66, 64, false, false, false}, Kind{2, 2, 70, 73, true, false, false},
                          Kind{4, 2, 64, 80, false, true, false}, Kind{2, 1, 65, 64, false, true, true},
                          Kind{1, 1, 520, 530, true, false, false}, Kind{1, 1, 700, 400, true, true, true},
                          Kind{2, 1, 520, 520, true, false, false}}) {
      CAPTURE(k.rows, k.causal, k.masked, k.dropped, dtype == DType::float32);
      const int64_t batch = 2, width = 8, wide = 12;
      const Tensor q = filled(DimVector{batch, k.heads, k.rows, width}, dtype, 1);
      const Tensor key = filled(DimVector{batch, k.shared, k.keys, width}, dtype, 2);
      const Tensor v = filled(DimVector{batch, k.shared, k.keys, wide}, dtype, 3);
      const Tensor g = filled(DimVector{batch, k.heads, k.rows, wide}, dtype, 4);
      const DimVector full{batch, k.heads, k.rows, k.keys};
      Tensor mask, kept;
      if (k.masked) {
        mask = gt(filled(full, DType::float32, 5), 0.2);
        mask.select(2, 3).fill_(false);  // a row that sees nothing
      }
      if (k.dropped) kept = gt(filled(full, DType::float32, 6), -0.7);
      const auto run = [&] {
        const auto [o, lse] = _attention(q, key, v, mask, k.causal, 0.3, kept, 1.25);
        const auto [dq, dk, dv] = _attention_grad(g, q, key, v, mask, o, lse, k.causal, 0.3, kept, 1.25);
        return std::vector<Tensor>{o, lse, dq, dk, dv};
      };
      const std::vector<Tensor> fused = run();
      const bool in_blocks = k.causal && k.heads == k.shared && k.rows >= 512;
      const int products_wanted = in_blocks ? 7 * static_cast<int>((k.rows + 255) / 256) : 7;
      for (const int limit : {0, 1, 3, 5}) {
        most = limit;
        takes = limit == 0 ? nullptr : &takes_some;
        const std::vector<Tensor> products = with_products(run);
        CHECK((limit == 0 ? asked == products_wanted : asked > limit));
        for (size_t i = 0; i < fused.size(); ++i) {
          CAPTURE(limit, i);
          CHECK(difference(fused[i], products[i]) < (dtype == DType::float32 ? 2e-5 : 1e-12));
        }
      }
    }
}

TEST_CASE("Short of memory for scores, attention goes by the fused kernels", "[cuda]") {
  REQUIRE(tapegrad_cuda_init() > 0);
  const DimVector sizes{1, 8, 1024, 8};  // scores of 256 rows at a time: 8 MB
  const Tensor q = filled(sizes, DType::float32, 1), k = filled(sizes, DType::float32, 2),
               v = filled(sizes, DType::float32, 3);
  cuda::DeviceAllocator& allocator = cuda::device_allocator(0);
  allocator.empty_cache();
  const double before = allocator.fraction();
  takes = nullptr;
  const auto output = [&] { return std::get<0>(_attention(q, k, v, Tensor(), true, 0.3, Tensor(), 1.0)); };
  const Tensor all = with_products(output);
  CHECK(asked == 8);
  allocator.empty_cache();
  allocator.set_fraction(0.0015);  // 6 of 4,096 MB
  const Tensor without = with_products(output);
  allocator.set_fraction(before);
  CHECK(asked == 0);
  CHECK(difference(without, all) < 2e-5);
}
