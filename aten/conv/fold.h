// Sizes of fold and unfold.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::conv {

struct FoldSizes {
  int64_t blocks[2];  // patches along each dimension
};

// Checks the parameters and that there is a patch.
TG_API FoldSizes fold_sizes(const char* op, IntSpan image, IntSpan kernel_size, IntSpan dilation, IntSpan padding,
                            IntSpan stride);

}  // namespace tapegrad::conv
