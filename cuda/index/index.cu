// Indexing with lists of places: index, index_put, index_select, index_add, index_copy, index_fill, take, put,
// embedding.
#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/functors/math.h"
#include "tapegrad/aten/index/index_plan.h"
#include "tapegrad/aten/iterate/convert/cast.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/index/places.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {
namespace {

// The places reach this many elements from the first.
int64_t extent_of(const Tensor& t, uint64_t dims) {
  int64_t n = 1;
  for (int d = 0; d < t.ndim(); ++d)
    if (dims >> d & 1) n += (t.size(d) - 1) * t.stride(d);
  return std::max<int64_t>(n, 1);
}

void read(const Tensor& input, const Indices& indices, const PlaceGeometry& side, const Tensor& out) {
  if (out.numel() == 0) return;
  const Work work(out.device(), {&input, &out});
  const auto item = static_cast<int64_t>(element_size(out.dtype()));
  if (side.outer_numel == 1 && side.dense_inner() && in_packs(side.inner_numel, {&input, &out}) &&
      indices.steps_in_packs(item)) {
    const int64_t per_row = side.inner_numel * item / 16, packs = indices.list().count * per_row;
    for_elements(work, packs,
                 ReadRows{static_cast<const char*>(input.data_ptr()), static_cast<char*>(out.data_ptr()), item,
                          indices.list(), Divider(per_row, packs)});
    return;
  }
  dispatch_bytes(out.dtype(), [&]<class T>() {
    for_elements(work, out.numel(), ReadPlaces<T>{data_of<T>(input), target_of<T>(out), side, indices.list()});
  });
}

template <class T, class F>
void write(const Tensor& out, const Tensor& rows, const Indices& indices, const PlaceGeometry& side, int64_t extent,
           const F& f) {
  const int64_t n = indices.list().count * side.outer_numel * side.inner_numel;
  if (n == 0) return;
  const Work work(out.device(), {&rows, &out});
  const SortedPlaces sorted = sorted_places(work, out.device(), indices.list(), indices.list().count, extent);
  const PlaceWriter<F> writer{sorted.key_data(), sorted.order_data(), indices.list().count, f};
  constexpr int V = sizeof(T) < 16 ? kRowPack<T> : 1;
  if (V > 1 && rows.defined() && side.outer_numel == 1 && side.dense_inner() &&
      in_packs(side.inner_numel, {&rows, &out}) && indices.steps_in_packs(static_cast<int64_t>(sizeof(T))))
    for_elements(work, n / V, WritePlaces<T, F, V>{target_of<T>(out), data_of<T>(rows), side, writer});
  else
    for_elements(work, n, WritePlaces<T, F>{target_of<T>(out), data_of<T>(rows), side, writer});
}

void assign_rows(const Tensor& out, const Tensor& rows, const Indices& indices, const PlaceGeometry& side,
                 int64_t extent) {
  dispatch_bytes(out.dtype(), [&]<class T>() { write<T>(out, rows, indices, side, extent, steps::Assign<T>{}); });
}
void add_rows(const Tensor& out, const Tensor& rows, const Indices& indices, const PlaceGeometry& side, int64_t extent,
              const Scalar& alpha = 1) {
  dispatch_dtype(out.dtype(), [&]<class T>() {
    write<T>(out, rows, indices, side, extent, steps::Add<T>{alpha.to<steps::Compute<T>>()});
  });
}

void start_from(const Tensor& input, const Tensor& out) {
  if (!out.is_same(input)) copy_any(out, input, true);
}

// One dimension replaced by a vector of indices. A tensor without dimensions counts as a vector of one.
struct VectorIndex {
  int64_t dim;
  Indices indices;
  PlaceGeometry side;
  int64_t extent;
  VectorIndex(const Tensor& t, int64_t given, const Tensor& index, const char* op, bool wrap = false)
      : dim(wrap_dim(given, t.ndim(), op)),
        indices(t.device(), index.numel(), op),
        side(t, uint64_t{1} << dim, static_cast<int>(dim)),
        extent(extent_of(t, uint64_t{1} << dim)) {
    indices.add(index, index.sizes(), t.ndim() ? t.size(dim) : 1, t.ndim() ? t.stride(dim) : 1, wrap, dim);
  }
};

Indices plan_places(const Tensor& t, TensorSpan given, const IndexPlan& plan, const char* op) {
  int64_t count = 1;
  for (int64_t s : plan.index_sizes) count *= s;
  Indices indices(t.device(), count, op);
  for (size_t d = 0; d < given.size(); ++d) {
    if (!given[d].defined()) continue;
    const auto dim = static_cast<int64_t>(d);
    indices.add(given[d], plan.index_sizes, t.size(dim), t.stride(dim), true, dim);
  }
  return indices;
}

// Gradient rows of an embedding: sums, on request divided by the number of occurrences of the index.
template <class T>
struct EmbeddingSum {
  using C = steps::Compute<T>;
  bool by_frequency;
  TG_DEVICE C start(T) const { return C(0); }
  TG_DEVICE C step(C a, T x) const { return a + steps::widen<T>(x); }
  TG_DEVICE void finish(T& to, C a, int64_t n) const {
    to = steps::narrow<T>(by_frequency ? a / static_cast<math::real_t<C>>(n) : a);
  }
};

}  // namespace

void index_tensor_cuda(const Tensor& input, TensorSpan given, const Tensor& out) {
  const IndexPlan plan = plan_index(input, given, "index");
  const Indices indices = plan_places(input, given, plan, "index");
  read(input, indices, PlaceGeometry(input, plan.indexed, plan.outer_dims), out);
}

void index_put_cuda(const Tensor& input, TensorSpan given, const Tensor& values, bool accumulate, const Tensor& out) {
  const IndexPlan plan = plan_index(out, given, "index_put");
  const Indices indices = plan_places(out, given, plan, "index_put");
  const Tensor rows = contiguous_apart(values, plan.sizes, values.dtype(), out);
  start_from(input, out);
  const PlaceGeometry side(out, plan.indexed, plan.outer_dims);
  if (accumulate)
    add_rows(out, rows, indices, side, extent_of(out, plan.indexed));
  else
    assign_rows(out, rows, indices, side, extent_of(out, plan.indexed));
}

void index_select_cuda(const Tensor& input, int64_t dim, const Tensor& index, bool, const Tensor& out) {
  const VectorIndex v(input, dim, index, "index_select");
  read(input, v.indices, v.side, out);
}
void index_add_cuda(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha,
                    const Tensor& out) {
  const VectorIndex v(out, dim, index, "index_add");
  const Tensor rows = contiguous_apart(source, source.sizes(), source.dtype(), out);
  start_from(input, out);
  add_rows(out, rows, v.indices, v.side, v.extent, alpha);
}
void index_copy_cuda(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source, const Tensor& out) {
  const VectorIndex v(out, dim, index, "index_copy");
  const Tensor rows = contiguous_apart(source, source.sizes(), source.dtype(), out);
  start_from(input, out);
  assign_rows(out, rows, v.indices, v.side, v.extent);
}
void index_fill_cuda(const Tensor& input, int64_t dim, const Tensor& index, const Operand& value, const Tensor& out) {
  const VectorIndex v(out, dim, index, "index_fill", true);
  start_from(input, out);
  const Tensor one = empty_tensor({}, out.dtype(), out.device());
  fill_cuda(one, value);
  // As many rows as places, all of them this value.
  const int64_t n = v.indices.list().count * v.side.outer_numel * v.side.inner_numel;
  const Tensor rows = empty_tensor({n}, out.dtype(), out.device());
  copy_any(rows, alias_tensor(one, {n}, {0}, 0), true);
  assign_rows(out, rows, v.indices, v.side, v.extent);
}
void take_cuda(const Tensor& input, const Tensor& index, const Tensor& out) {
  const Tensor from = contiguous_or_copy(input);
  const VectorIndex v(alias_tensor(from, {from.numel()}, {1}, from.storage_offset()), 0, index, "take", true);
  read(from, v.indices, v.side, out);
}
void put_cuda(const Tensor& input, const Tensor& index, const Tensor& source, bool accumulate, const Tensor& out) {
  const Tensor flat = alias_tensor(out, {out.numel()}, {1}, out.storage_offset());
  const VectorIndex v(flat, 0, index, "put", true);
  const Tensor rows = contiguous_apart(source, source.sizes(), source.dtype(), out);
  start_from(input, out);
  if (accumulate)
    add_rows(flat, rows, v.indices, v.side, v.extent);
  else
    assign_rows(flat, rows, v.indices, v.side, v.extent);
}

void embedding_cuda(const Tensor& weight, const Tensor& indices, int64_t, bool, bool, const Tensor& out) {
  const VectorIndex v(weight, 0, indices, "embedding");
  read(weight, v.indices, v.side, out);
}
void embedding_backward_cuda(const Tensor& grad_output, const Tensor& indices, int64_t num_weights, int64_t padding_idx,
                             bool scale_grad_by_freq, const Tensor& out) {
  zero_dense(out);
  if (grad_output.numel() == 0 || num_weights == 0) return;
  const Tensor rows = contiguous_apart(grad_output, grad_output.sizes(), grad_output.dtype(), out);
  const VectorIndex v(out, 0, indices, "embedding_backward");
  dispatch_floating_complex(out.dtype(), [&]<class T>() {
    write<T>(out, rows, v.indices, v.side, v.extent, EmbeddingSum<T>{scale_grad_by_freq});
  });
  if (padding_idx >= 0 && padding_idx < num_weights)
    fill_value(alias_tensor(out, {out.size(1)}, {1}, out.storage_offset() + padding_idx * out.size(1)), 0);
}

}  // namespace tapegrad::cuda
