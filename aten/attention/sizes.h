// The sizes of one call of attention, for host and device.
#pragma once

#include "tapegrad/aten/tensor.h"

namespace tapegrad::attention {

struct Sizes {
  int64_t batch = 0, heads = 0, shared = 0, rows = 0, keys = 0, width = 0, value_width = 0;
  Sizes() = default;
  Sizes(const Tensor& query, const Tensor& key, const Tensor& value)
      : batch(query.size(0)),
        heads(query.size(1)),
        shared(key.size(1)),
        rows(query.size(2)),
        keys(key.size(2)),
        width(query.size(3)),
        value_width(value.size(3)) {}
  // The head of key and value that belongs to head `h` of the query; both are numbered over the whole batch.
  TG_HD int64_t shared_head(int64_t h) const { return h / heads * shared + h % heads * shared / heads; }
  // The first of the query's heads that share head `hk`, and their number.
  TG_HD int64_t group() const { return heads / shared; }
  TG_HD int64_t first_head(int64_t hk) const { return hk / shared * heads + hk % shared * group(); }
};

}  // namespace tapegrad::attention
