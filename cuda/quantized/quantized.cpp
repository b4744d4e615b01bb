// Products with factors of 8 and 4 bits: of operators where PyTorch has them on CUDA.
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/quantized/scaled_product.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/cuda/kernels.h"
#include "tapegrad/cuda/linalg/product_library.h"

namespace tapegrad::cuda {
namespace {

[[noreturn]] void only_on_cpu(const char* op) { TG_THROW(NotImplemented, "{}: only on the CPU", op); }

bool on_16_bytes(const Tensor& t) { return reinterpret_cast<uintptr_t>(t.data_ptr()) % 16 == 0; }
Tensor dense(const Tensor& t) {
  return t.is_contiguous() && on_16_bytes(t) ? t : raw::clone(t, MemoryFormat::Contiguous);
}

struct Scaling {
  Tensor scales;
  Scales kind = Scales::none;
};
// Scales of lines (rows of a, columns of b) and terms as the library reads them; of kind none where it does not.
Scaling laid_out(const Tensor& s, int64_t lines, int64_t terms) {
  const int64_t parts = (terms + 127) / 128;
  if (s.dtype() != DType::float32) return {};
  if (s.numel() == 1) return {s, Scales::one};
  if (s.size(0) == lines && s.size(1) == 1) return {dense(s), Scales::lines};
  if (s.size(1) != parts) return {};
  if (s.size(0) == lines) return {dense(raw::t(s)), Scales::parts};
  if (s.size(0) != (lines + 127) / 128) return {};
  const Tensor padded = raw::zeros({s.size(0), (parts + 3) / 4 * 4}, s.dtype(), s.device());
  raw::copy_(raw::narrow(padded, 1, 0, parts), s);
  return {padded, Scales::tiles};
}

// sums = a * b by the library, with the scales where these are given, and a bias of the dtype that it wants.
bool multiply(const Tensor& a, const Tensor& b, const Scaling& a_scale, const Scaling& b_scale, const Tensor& bias,
              bool fast, const Tensor& sums) {
  const Work work(sums.device(), {&a, &b, &bias, &a_scale.scales, &b_scale.scales, &sums});
  const auto data = [](const Tensor& t) { return t.defined() ? t.data_ptr() : nullptr; };
  const MixedProduct mixed{
      b.dtype(), sums.dtype(), a_scale.kind, b_scale.kind, data(a_scale.scales), data(b_scale.scales), fast};
  const auto matrix = [](const Tensor& t) { return Matrix{t.data_ptr(), t.stride(0), t.stride(1)}; };
  return library_product(work, {a.dtype(), 1, a.size(0), b.size(1), a.size(1), 1, matrix(a), matrix(b), 0,
                                sums.data_ptr(), data(bias), 0, &mixed});
}

// The same of float8, whose terms have to lie next to each other, and in multiples of 16 bytes.
bool multiply_float8(const ScaledProduct& p, const Scaling& a_scale, const Scaling& b_scale, const Tensor& bias,
                     bool fast, const Tensor& sums) {
  if (p.a.size(1) % 16 != 0 || p.b.size(1) % 16 != 0) return false;
  const auto lines = [](const Tensor& t) {
    const bool fits = t.stride(1) == 1 && t.stride(0) % 16 == 0 && t.stride(0) >= t.size(1) && on_16_bytes(t);
    return fits ? t : dense(t);
  };
  return multiply(lines(p.a), raw::t(lines(raw::t(p.b))), a_scale, b_scale, bias, fast, sums);
}

bool with_scales(const ScaledProduct& p, bool fast, const Tensor& bias, const Tensor& sums) {
  const int64_t terms = p.a.size(1);
  const Tensor b_scale = p.b_scale.numel() == 1 ? p.b_scale : raw::t(p.b_scale);
  Scaling a = laid_out(p.a_scale, p.a.size(0), terms), b = laid_out(b_scale, p.b.size(1), terms);
  if (a.kind == Scales::none || b.kind == Scales::none) return false;
  const auto like = [&](const Tensor& one, int64_t lines, Scales kind) {
    const int64_t wanted[] = {lines, kind == Scales::lines ? 1 : (terms + 127) / 128};
    return laid_out(raw::expand(raw::reshape(one, {1, 1}), wanted), lines, terms);
  };
  if (a.kind == Scales::one && b.kind != Scales::one) a = like(p.a_scale, p.a.size(0), b.kind);
  if (b.kind == Scales::one && a.kind != Scales::one) b = like(p.b_scale, p.b.size(1), a.kind);
  return multiply_float8(p, a, b, bias, fast, sums);
}

}  // namespace

void int_mm_cuda(const Tensor& input, const Tensor& mat2, const Tensor& out) {
  raw::mm_out(raw::to(input, DType::int32), raw::to(mat2, DType::int32), out);
}

// Exact factors, and sums of float32 (of fewer bits where float8 is multiplied as such and `fast`): by the library with
// the scales, or without them, or of bfloat16, which holds float8 exactly; else in float32.
void scaled_mm_cuda(const Tensor& input, const Tensor& mat2, const Tensor& scale_a, const Tensor& scale_b,
                    const Tensor& bias, const Tensor& scale_result, std::optional<DType>, bool fast,
                    const Tensor& out) {
  const ScaledProduct p{input, mat2, scale_a, scale_b, bias, scale_result, out};
  if (out.numel() == 0) return;
  if (product_library.load(std::memory_order_acquire) == nullptr) return widened_product(p);
  const DType to = out.dtype(), bias_to = to == DType::float32 ? DType::bfloat16 : to;
  const bool direct = (is_half(to) || to == DType::float32) && (!bias.defined() || bias.dtype() == bias_to);
  if (direct && with_scales(p, fast, bias.defined() ? raw::contiguous(bias) : bias, out)) return;
  const Tensor sums = to == DType::float32 ? out : raw::empty(out.sizes(), DType::float32, out.device());
  if (!direct && with_scales(p, fast, {}, sums)) return finish_scaled(p, sums, true);
  if (!p.of_terms() &&
      (multiply_float8(p, {}, {}, {}, fast, sums) ||
       multiply(raw::to(input, DType::bfloat16), raw::to(mat2, DType::bfloat16), {}, {}, {}, false, sums)))
    return finish_scaled(p, sums, false);
  widened_product(p);
}

void weight_int8pack_mm_cuda(const Tensor& input, const Tensor& mat2, const Tensor& scales, const Tensor& out) {
  const Tensor sums = raw::mm(raw::to(input, DType::float32), raw::t(raw::to(mat2, DType::float32)));
  raw::copy_(out, raw::mul(sums, scales));
}

void convert_weight_to_int4pack_for_cpu_cuda(const Tensor&, int64_t, const Tensor&) {
  only_on_cpu("_convert_weight_to_int4pack_for_cpu");
}
void weight_int4pack_mm_for_cpu_cuda(const Tensor&, const Tensor&, int64_t, const Tensor&, const Tensor&) {
  only_on_cpu("_weight_int4pack_mm_for_cpu");
}
void dynamic_quantized_linear_cuda(const Tensor&, const Tensor&, const Tensor&, const Tensor&, const Tensor&) {
  only_on_cpu("dynamic quantized linear");
}

}  // namespace tapegrad::cuda
