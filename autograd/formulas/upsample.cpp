#include "tapegrad/autograd/formulas/upsample.h"

namespace tapegrad {

DimVector spatial_sizes(IntSpan sizes) { return DimVector(IntSpan(sizes.data() + 2, sizes.size() - 2)); }

std::tuple<Tensor, Tensor, Tensor> grid_sample_double_grad() {
  TG_THROW(NotImplemented, "grid_sample: its gradient cannot be differentiated again");
}

}  // namespace tapegrad
