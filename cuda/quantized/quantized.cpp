// Products with factors of 8 and 4 bits: of operators where PyTorch has them on CUDA.
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_linalg.h"
#include "tapegrad/aten/functions_pointwise.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/tensor.h"
#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {
namespace {

[[noreturn]] void only_on_cpu(const char* op) { TG_THROW(NotImplemented, "{}: only on the CPU", op); }

}  // namespace

void int_mm_cuda(const Tensor& input, const Tensor& mat2, const Tensor& out) {
  raw::mm_out(raw::to(input, DType::int32), raw::to(mat2, DType::int32), out);
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
