// Stands in for aten/onednn and aten/*/onednn*.cpp in a build without oneDNN (TAPEGRAD_ONEDNN=OFF).
#include "tapegrad/aten/conv/onednn.h"
#include "tapegrad/aten/onednn/product.h"

namespace tapegrad::onednn {

bool available() { return false; }
bool multiplies(DType) { return false; }
bool has_int8_tiles() { return false; }
bool is_faster(const Product&) { return false; }
bool sgemm(const Product&, float, const float*, const float*, float, float*) { return false; }
bool multiply(const Product&, DType, const void*, const void*, DType, bool, void*) { return false; }
bool conv_forward(const conv::Geometry&, DType, const void*, const void*, const void*, void*) { return false; }
bool conv_grad_input(const conv::Geometry&, DType, const void*, const void*, void*) { return false; }
bool conv_grad_weight(const conv::Geometry&, DType, const void*, const void*, void*) { return false; }

}  // namespace tapegrad::onednn
