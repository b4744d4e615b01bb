// Products of float8 matrices with scales, by operators: what the kernels of all devices share.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad {

// Scales are of one number, or matrices: of a, by rows and terms; of b, by terms and columns.
struct TG_API ScaledProduct {
  const Tensor &a, &b, &a_scale, &b_scale, &bias, &result_scale, &out;
  // Whether there are scales of terms, which cannot be taken out of the sums.
  bool of_terms() const;
};

// out from the sums of products (float32), which are overwritten. scaled: they are multiplied by the scales already.
TG_API void finish_scaled(const ScaledProduct& p, const Tensor& sums, bool scaled);
// The whole product, in float32.
TG_API void widened_product(const ScaledProduct& p);

}  // namespace tapegrad
