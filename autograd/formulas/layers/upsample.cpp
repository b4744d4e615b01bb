#include "tapegrad/autograd/formulas/layers/upsample.h"

namespace tapegrad {

DimVector spatial_sizes(IntSpan sizes) { return DimVector(IntSpan(sizes.data() + 2, sizes.size() - 2)); }

}  // namespace tapegrad
