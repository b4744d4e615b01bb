// Joining operators composed of cat and views.
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/functions_create.h"
#include "tapegrad/aten/functions_join.h"
#include "tapegrad/aten/functions_view.h"
#include "tapegrad/aten/kernels_join.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::composite {

namespace {
template <class F>
std::vector<Tensor> each(TensorSpan tensors, F&& f) {
  std::vector<Tensor> result;
  result.reserve(tensors.size());
  for (const Tensor& t : tensors) result.push_back(f(t));
  return result;
}

void check_any(TensorSpan tensors, const char* op) {
  TG_CHECK(!tensors.empty(), Runtime, "{}: expected at least one tensor", op);
}
}  // namespace

Tensor hstack(TensorSpan tensors) {
  check_any(tensors, "hstack");
  auto parts = each(tensors, [](const Tensor& t) { return atleast_1d(t); });
  return cat(parts, parts[0].ndim() == 1 ? 0 : 1);
}

Tensor vstack(TensorSpan tensors) {
  check_any(tensors, "vstack");
  return cat(each(tensors, [](const Tensor& t) { return atleast_2d(t); }), 0);
}

Tensor dstack(TensorSpan tensors) {
  check_any(tensors, "dstack");
  return cat(each(tensors, [](const Tensor& t) { return atleast_3d(t); }), 2);
}

Tensor column_stack(TensorSpan tensors) {
  check_any(tensors, "column_stack");
  return cat(each(tensors, [](const Tensor& t) { return t.ndim() <= 1 ? reshape(t, {t.numel(), 1}) : t; }), 1);
}

std::vector<Tensor> meshgrid(TensorSpan tensors, std::optional<std::string_view> order) {
  TG_CHECK(!tensors.empty(), Runtime, "meshgrid expects a non-empty TensorList");
  if (!order) warn("meshgrid: in an upcoming release, it will be required to pass the indexing argument");
  const std::string_view indexing = order.value_or("ij");
  TG_CHECK(indexing == "ij" || indexing == "xy", Runtime,
           "meshgrid: indexing must be one of \"xy\" or \"ij\": got \"{}\"",
           fmt::string_view(indexing.data(), indexing.size()));
  const size_t n = tensors.size();
  // "xy" exchanges the first two vectors before and the first two dimensions after.
  const bool swap = indexing == "xy" && n >= 2;
  DimVector sizes(n);
  for (size_t i = 0; i < n; ++i) {
    TG_CHECK(tensors[i].ndim() <= 1, Runtime,
             "meshgrid: Expected 0D or 1D tensor in the tensor list: got sizes {} at position {}",
             format_ints(tensors[i].sizes()), i);
    TG_CHECK(tensors[i].dtype() == tensors[0].dtype(), Runtime,
             "meshgrid expects all tensors to have the same dtype: got {} and {}", tensors[0].dtype(),
             tensors[i].dtype());
    TG_CHECK(tensors[i].device() == tensors[0].device() || tensors[i].is_batched() || tensors[0].is_batched(), Runtime,
             "meshgrid expects all tensors to have the same device: got {} and {}", tensors[0].device(),
             tensors[i].device());
    sizes[swap && i < 2 ? 1 - i : i] = tensors[i].numel();
  }
  std::vector<Tensor> grids;
  for (size_t i = 0; i < n; ++i) {
    DimVector shape(n, 1);
    shape[swap && i < 2 ? 1 - i : i] = tensors[i].numel();
    grids.push_back(expand(reshape(tensors[i], shape), sizes));
  }
  return grids;
}

Tensor cartesian_prod(TensorSpan tensors) {
  check_any(tensors, "cartesian_prod");
  if (tensors.size() == 1) {
    TG_CHECK(tensors[0].ndim() == 1, Runtime, "cartesian_prod: expected vectors: got sizes {}",
             format_ints(tensors[0].sizes()));
    return tensors[0];
  }
  auto columns = each(tapegrad::meshgrid(tensors, "ij"), [](const Tensor& t) { return reshape(t, {-1}); });
  return stack(columns, 1);
}

Tensor block_diag(TensorSpan tensors) {
  if (tensors.empty()) return zeros({1, 0});
  auto blocks = each(tensors, [](const Tensor& t) {
    TG_CHECK(t.ndim() <= 2, Runtime, "block_diag: Input tensors must have 2 or fewer dimensions: got {}",
             format_ints(t.sizes()));
    return atleast_2d(t);
  });
  int64_t columns = 0, before = 0;
  DType dtype = blocks[0].dtype();
  for (const Tensor& b : blocks) {
    columns += b.size(1);
    dtype = promote_types(dtype, b.dtype());
  }
  std::vector<Tensor> rows;
  for (const Tensor& b : blocks) {
    check_interrupt();
    const int64_t after = columns - before - b.size(1);
    const Tensor parts[] = {zeros({b.size(0), before}, dtype, b.device()), to(b, dtype),
                            zeros({b.size(0), after}, dtype, b.device())};
    rows.push_back(cat(parts, 1));
    before += b.size(1);
  }
  return cat(rows, 0);
}

std::vector<Tensor> broadcast_tensors(TensorSpan tensors) {
  if (tensors.empty()) return {};
  DimVector sizes(tensors[0].sizes());
  for (const Tensor& t : tensors) sizes = broadcast_sizes(sizes, t.sizes(), "broadcast_tensors");
  return each(tensors, [&](const Tensor& t) { return t.sizes() == IntSpan(sizes) ? t : expand(t, sizes); });
}

}  // namespace tapegrad::composite
