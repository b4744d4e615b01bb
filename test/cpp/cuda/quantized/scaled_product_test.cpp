// What a library of matrix products is asked for products of float8, and what is done when it refuses a part of it: a
// library that computes on the host from the layouts that cuBLASLt documents, against the same call without one.
#include <catch2/catch.hpp>

#include "cuda/linalg/products.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_quantized.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/cuda/kernel_table.h"
#include "tapegrad/cuda/runtime/driver.h"
#include "tapegrad/cuda/simulated/simulated_driver.h"

using namespace tapegrad;
using namespace cuda::own_products;
using cuda::MixedProduct;
using cuda::Product;
using cuda::product_library;
using cuda::Scales;

namespace {

float number_at(const void* p, DType dtype, int64_t i) {
  if (dtype == DType::float8_e4m3fn) return static_cast<float>(static_cast<const Float8E4M3FN*>(p)[i]);
  if (dtype == DType::float8_e5m2) return static_cast<float>(static_cast<const Float8E5M2*>(p)[i]);
  if (dtype == DType::float16) return static_cast<float>(static_cast<const Half*>(p)[i]);
  if (dtype == DType::bfloat16) return static_cast<float>(static_cast<const BFloat16*>(p)[i]);
  return static_cast<const float*>(p)[i];
}

// The scale of term l of a line.
float scale_at(Scales kind, const void* scales, int64_t line, int64_t l, int64_t lines, int64_t terms) {
  const auto* s = static_cast<const float*>(scales);
  const int64_t parts = (terms + 127) / 128;
  switch (kind) {
    case Scales::none:
      return 1;
    case Scales::one:
      return s[0];
    case Scales::lines:
      return s[line];
    case Scales::parts:
      return s[l / 128 * lines + line];
    case Scales::tiles:
      return s[line / 128 * ((parts + 3) / 4 * 4) + l / 128];
  }
  return 0;
}

std::vector<Scales> asked_for;
bool (*refuses)(const Product&) = nullptr;
bool biased = false;

bool multiply(const cuda::Stream& stream, const Product& p) {
  if (p.mixed == nullptr || p.k == 0) return false;
  const MixedProduct& m = *p.mixed;
  const auto whole = [](int64_t n) { return n % 16 == 0; };
  const auto placed = [&](const void* q) { return whole(static_cast<int64_t>(reinterpret_cast<uintptr_t>(q))); };
  if (is_float8(p.dtype)) {
    REQUIRE((p.a.col == 1 && p.b.row == 1 && whole(p.a.row) && whole(p.b.col) && whole(p.k) && whole(p.n)));
    REQUIRE((placed(p.a.data) && placed(p.b.data)));
  }
  REQUIRE((m.c == DType::float32 || p.bias == nullptr || is_half(m.c)));
  const bool scaled = m.a_kind != Scales::none;
  REQUIRE(
      (scaled == (m.b_kind != Scales::none) && scaled == (m.a_scales != nullptr) && scaled == (m.b_scales != nullptr)));
  REQUIRE(((m.a_kind == Scales::one) == (m.b_kind == Scales::one) &&
           (m.a_kind == Scales::lines) == (m.b_kind == Scales::lines)));
  if (m.a_kind > Scales::one) REQUIRE((placed(m.a_scales) && placed(m.b_scales)));
  if (refuses != nullptr && refuses(p)) return false;
  asked_for.push_back(m.a_kind);
  biased = p.bias != nullptr;
  const cuda::simulated::HostAccess access(stream.handle);
  const DType bias_dtype = m.c == DType::float32 ? DType::bfloat16 : m.c;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0;
      for (int64_t l = 0; l < p.k; ++l)
        sum += static_cast<double>(number_at(p.a.data, p.dtype, i * p.a.row + l * p.a.col)) *
               number_at(p.b.data, m.b, l * p.b.row + j * p.b.col) * scale_at(m.a_kind, m.a_scales, i, l, p.m, p.k) *
               scale_at(m.b_kind, m.b_scales, j, l, p.n, p.k);
      if (p.bias != nullptr) sum += number_at(p.bias, bias_dtype, j);
      if (m.c == DType::float32)
        static_cast<float*>(p.c)[i * p.n + j] = static_cast<float>(sum);
      else if (m.c == DType::float16)
        static_cast<Half*>(p.c)[i * p.n + j] = Half(static_cast<float>(sum));
      else
        static_cast<BFloat16*>(p.c)[i * p.n + j] = BFloat16(static_cast<float>(sum));
    }
  return true;
}

Tensor scales(int64_t rows, int64_t columns, int64_t seed) {
  const Tensor t = filled(DimVector{rows, columns}, DType::float32, seed, 60);
  return raw::add(raw::mul(t, t), Scalar(0.25));  // none is near zero
}

// The call with and without the library, and how the library was asked at last.
struct Outcome {
  double difference;
  std::vector<Scales> asked;
};
template <class F>
Outcome compare(const F& call, bool (*refused)(const Product&) = nullptr) {
  const Tensor own = call();
  asked_for.clear();
  refuses = refused;
  product_library = &multiply;
  const Tensor with = call();
  product_library = nullptr;
  return {difference(own, with), asked_for};
}

using Asked = std::vector<Scales>;

}  // namespace

TEST_CASE("Products of float8 are those of the library with scales of all kinds", "[cuda]") {
  REQUIRE(tapegrad_cuda_init() > 0);
  const int64_t m = 130, k = 272, n = 144, parts = 3;
  const Tensor a = filled(DimVector{m, k}, DType::float8_e4m3fn, 1),
               b = transpose(filled(DimVector{n, k}, DType::float8_e5m2, 2), 0, 1);
  const Tensor half_bias = filled(DimVector{n}, DType::bfloat16, 3);
  struct Case {
    Tensor a, b;
    Scales kind;
  };
  const Case cases[] = {{scales(1, 1, 1), scales(1, 1, 2), Scales::one},
                        {scales(m, 1, 1), scales(1, n, 2), Scales::lines},
                        {scales(m, 1, 1), scales(1, 1, 2), Scales::lines},
                        {scales(1, 1, 1), scales(1, n, 2), Scales::lines},
                        {scales(m, parts, 1), scales(parts, n, 2), Scales::parts},
                        {scales(m, parts, 1), scales(parts, 2, 2), Scales::parts},
                        {scales(2, parts, 1), scales(parts, n, 2), Scales::tiles},
                        {scales(m, parts, 1), scales(1, 1, 2), Scales::parts},
                        {transpose(scales(parts, m, 1), 0, 1), transpose(scales(n, parts, 2), 0, 1), Scales::parts},
                        {narrow(scales(m + 1, 1, 1), 0, 1, m), scales(1, n, 2), Scales::lines}};
  for (const Case& c : cases)
    for (const DType to : {DType::bfloat16, DType::float16, DType::float32, DType::float8_e5m2})
      for (const bool with_bias : {false, true}) {
        CAPTURE(dtype_name(to), static_cast<int>(c.kind), with_bias, c.a.size(0), c.a.size(1), c.b.size(1));
        const auto call = [&] {
          return raw::_scaled_mm(a, b, c.a, c.b, with_bias ? half_bias : Tensor(), {}, to, false);
        };
        const Outcome o = compare(call);
        CHECK(o.asked == Asked{c.kind});
        CHECK(o.difference < (to == DType::float32 ? 2e-4 : is_half(to) ? 0.07 : 2));
        CHECK(biased == (with_bias && (to == DType::bfloat16 || to == DType::float32)));
      }
}

TEST_CASE("What the library refuses of a product of float8 is done in another way", "[cuda]") {
  const int64_t m = 33, k = 272, n = 48, parts = 3;
  const Tensor a = filled(DimVector{m, k}, DType::float8_e4m3fn, 1),
               b = transpose(filled(DimVector{n, k}, DType::float8_e4m3fn, 2), 0, 1);
  const auto with = [&](const Tensor& x, const Tensor& y, const Tensor& s, const Tensor& t) {
    return [=] { return raw::_scaled_mm(x, y, s, t, {}, {}, DType::float32, false); };
  };
  const Tensor s = scales(m, 1, 1), t = scales(1, n, 2), u = scales(m, parts, 1), v = scales(parts, n, 2);
  // Scales of lines come after a product without scales, of float8 or of bfloat16.
  Outcome o = compare(with(a, b, s, t), [](const Product& p) { return p.mixed->a_kind == Scales::lines; });
  CHECK((o.asked == Asked{Scales::none} && o.difference < 1e-4));
  o = compare(with(a, b, s, t), [](const Product& p) { return is_float8(p.dtype); });
  CHECK((o.asked == Asked{Scales::none} && o.difference < 1e-4));
  o = compare(with(a, b, s, t), [](const Product&) { return true; });
  CHECK((o.asked.empty() && o.difference == 0));
  // Those of terms do not: without the library's kinds all is widened.
  o = compare(with(a, b, u, v), [](const Product& p) { return p.mixed->a_kind == Scales::parts; });
  CHECK((o.asked.empty() && o.difference == 0));
  // Sizes that float8 does not take are those of bfloat16; another layout is copied.
  const Tensor odd = narrow(b, 1, 0, 41);
  o = compare(with(a, odd, s, narrow(t, 1, 0, 41)));
  CHECK((o.asked == Asked{Scales::none} && o.difference < 1e-4));
  o = compare(with(narrow(a, 1, 1, 256), narrow(b, 0, 1, 256), s, t));
  CHECK((o.asked == Asked{Scales::lines} && o.difference < 1e-4));
  o = compare(with(a, contiguous(b), s, t));
  CHECK((o.asked == Asked{Scales::lines} && o.difference < 1e-4));
  // Nothing to multiply, or to write.
  o = compare(with(narrow(a, 1, 0, 0), narrow(b, 0, 0, 0), s, t));
  CHECK((o.asked.empty() && o.difference == 0));
  o = compare(with(narrow(a, 0, 0, 0), b, narrow(s, 0, 0, 0), t));
  CHECK(o.asked.empty());
}
