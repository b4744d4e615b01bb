#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/index/index_plan.h"
#include "tapegrad/aten/index/places.h"
#include "tapegrad/aten/kernels_copy.h"
#include "tapegrad/aten/kernels_index.h"
#include "tapegrad/aten/view/geometry.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

Tensor dense(const Tensor& t) {
  if (t.is_contiguous()) return t;
  Tensor copy = empty_tensor(t.sizes(), t.dtype());
  copy_cpu(copy, t, false);
  return copy;
}

Tensor dense_broadcast(const Tensor& t, IntSpan sizes) {
  if (t.sizes() == sizes) return dense(t);
  Tensor copy = empty_tensor(sizes, t.dtype());
  copy_cpu(copy, t, false);
  return copy;
}

Places places_of(const Tensor& input, TensorSpan indices, const IndexPlan& plan, const char* op) {
  int64_t count = 1;
  for (int64_t s : plan.index_sizes) count *= s;
  Places places(count);
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].defined()) continue;
    const int64_t dim = static_cast<int64_t>(d);
    places.add(dense_broadcast(indices[d], plan.index_sizes), input.size(dim),
               input.stride(dim) * static_cast<int64_t>(input.itemsize()), true, dim, op);
  }
  return places;
}

// One dimension replaced by a vector of indices. A tensor without dimensions counts as a vector of one.
struct VectorIndex {
  Places places;
  PlaceLoop loop;
  VectorIndex(const Tensor& t, int64_t dim, const Tensor& index, const char* op, bool wrap = false)
      : places(index.numel()),
        loop(t, uint64_t{1} << wrap_dim(dim, t.ndim(), op), static_cast<int>(wrap_dim(dim, t.ndim(), op))) {
    const int64_t d = wrap_dim(dim, t.ndim(), op);
    const int64_t size = t.ndim() ? t.size(d) : 1, stride = t.ndim() ? t.stride(d) : 1;
    places.add(dense(index), size, stride * static_cast<int64_t>(t.itemsize()), wrap, d, op);
  }
};

// `out` starts as a copy of `input` unless it is the input itself (in-place).
void start_from(const Tensor& input, const Tensor& out) {
  if (out.is_same(input)) return;
  copy_cpu(out, input, false);
}

// A source that writing `out` does not change.
Tensor separate(const Tensor& source, const Tensor& out) {
  Tensor s = dense(source);
  if (!geometry::may_overlap(out, s) && !(s.data_ptr() == out.data_ptr() && s.numel() > 0)) return s;
  Tensor copy = empty_tensor(s.sizes(), s.dtype());
  copy_cpu(copy, s, false);
  return copy;
}

void write_rows(const PlaceLoop& loop, const Places& places, const Tensor& rows) {
  with_bits(rows.itemsize(), [&]<class T>() {
    write_places<T>(loop, places, static_cast<const T*>(rows.data_ptr()), [](T& to, const T* from) { to = *from; });
  });
}

// Adds an element, and of the 16-bit formats a block of them.
template <class T>
struct AddTo {
  void operator()(T& to, const T* from) const { to = add_values(to, *from); }
  void sixteen(T* to, const T* from) const requires std::is_same_v<T, Half> || std::is_same_v<T, BFloat16> {
    alignas(64) float x[sixteen::kBlock], y[sixteen::kBlock];
    sixteen::load(to, x);
    sixteen::load(from, y);
#pragma GCC unroll 1  // unrolled first, short loops are not vectorised
    for (int l = 0; l < sixteen::kBlock; ++l) x[l] += y[l];
    sixteen::store(x, to);
  }
};

void add_rows(const PlaceLoop& loop, const Places& places, const Tensor& rows) {
  dispatch_dtype(rows.dtype(),
                 [&]<class T>() { write_places<T>(loop, places, static_cast<const T*>(rows.data_ptr()), AddTo<T>{}); });
}

}  // namespace

void index_tensor_cpu(const Tensor& input, TensorSpan indices, const Tensor& out) {
  const IndexPlan plan = plan_index(input, indices, "index");
  const Places places = places_of(input, indices, plan, "index");
  if (out.numel() == 0) return;
  const PlaceLoop loop(input, plan.indexed, plan.outer_dims);
  with_bits(out.itemsize(), [&]<class T>() { read_places<T>(loop, places, out); });
}

void index_put_cpu(const Tensor& input, TensorSpan indices, const Tensor& values, bool accumulate, const Tensor& out) {
  const IndexPlan plan = plan_index(out, indices, "index_put");
  const Places places = places_of(out, indices, plan, "index_put");
  const Tensor rows = separate(dense_broadcast(values, plan.sizes), out);
  start_from(input, out);
  if (rows.numel() == 0) return;
  const PlaceLoop loop(out, plan.indexed, plan.outer_dims);
  if (accumulate)
    add_rows(loop, places, rows);
  else
    write_rows(loop, places, rows);
}

void index_select_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& out) {
  const VectorIndex v(input, dim, index, "index_select");
  if (out.numel() == 0) return;
  with_bits(out.itemsize(), [&]<class T>() { read_places<T>(v.loop, v.places, out); });
}

void index_add_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha,
                   const Tensor& out) {
  const VectorIndex v(out, dim, index, "index_add");
  const Tensor rows = separate(source, out);
  start_from(input, out);
  if (alpha == Scalar(1)) return add_rows(v.loop, v.places, rows);
  dispatch_dtype(rows.dtype(), [&]<class T>() {
    const T a = alpha.to<T>();
    write_places<T>(v.loop, v.places, static_cast<const T*>(rows.data_ptr()),
                    [a](T& to, const T* from) { to = add_values(to, mul_values(a, *from)); });
  });
}

void index_copy_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source, const Tensor& out) {
  const VectorIndex v(out, dim, index, "index_copy");
  const Tensor rows = separate(source, out);
  start_from(input, out);
  write_rows(v.loop, v.places, rows);
}

void index_fill_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Operand& value, const Tensor& out) {
  const VectorIndex v(out, dim, index, "index_fill", true);
  alignas(16) char bytes[16];
  convert_row(out.dtype(), value.tensor().dtype())(bytes, value.tensor().data_ptr(), 1);
  start_from(input, out);
  with_bits(out.itemsize(), [&]<class T>() {
    T bits;
    std::memcpy(&bits, bytes, sizeof(T));
    write_places<T>(v.loop, v.places, nullptr, [bits](T& to, const T*) { to = bits; });
  });
}

void take_cpu(const Tensor& input, const Tensor& index, const Tensor& out) {
  const Tensor from = dense(input);
  const Tensor flat = alias_tensor(from, {from.numel()}, {1}, from.storage_offset());
  const VectorIndex v(flat, 0, index, "take", true);
  if (out.numel() == 0) return;
  with_bits(out.itemsize(), [&]<class T>() { read_places<T>(v.loop, v.places, out); });
}

void put_cpu(const Tensor& input, const Tensor& index, const Tensor& source, bool accumulate, const Tensor& out) {
  const Tensor flat = alias_tensor(out, {out.numel()}, {1}, out.storage_offset());
  const VectorIndex v(flat, 0, index, "put", true);
  const Tensor rows = separate(source, out);
  start_from(input, out);
  if (accumulate)
    add_rows(v.loop, v.places, rows);
  else
    write_rows(v.loop, v.places, rows);
}

void embedding_cpu(const Tensor& weight, const Tensor& indices, int64_t, bool, bool, const Tensor& out) {
  const Tensor flat = dense(indices);
  const VectorIndex v(weight, 0, flat, "embedding");
  if (out.numel() == 0) return;
  with_bits(out.itemsize(), [&]<class T>() { read_places<T>(v.loop, v.places, out); });
}

// Sums of rows in the order of the indices, shared out over columns. In 16-bit formats the sums are kept in float.
void embedding_backward_cpu(const Tensor& grad_output, const Tensor& indices, int64_t num_weights, int64_t padding_idx,
                            bool scale_grad_by_freq, const Tensor& out) {
  const bool half = is_half(out.dtype());
  Tensor sum = half ? empty_tensor(out.sizes(), DType::float32) : out;
  Tensor rows = dense(grad_output);
  if (half) {
    Tensor wide = empty_tensor(rows.sizes(), DType::float32);
    copy_cpu(wide, rows, false);
    rows = wide;
  }
  const Tensor flat = dense(indices);
  const VectorIndex v(sum, 0, flat, "embedding_backward");
  fill_cpu(sum, Operand(0));
  const int64_t width = out.size(1), row_bytes = std::max<int64_t>(1, width * static_cast<int64_t>(sum.itemsize()));
  if (rows.numel() == 0 || num_weights == 0) return half ? copy_cpu(out, sum, false) : void();
  add_rows(v.loop, v.places, rows);
  dispatch_dtype(sum.dtype(), [&]<class T>() {
    if constexpr (std::is_floating_point_v<T> || is_complex_type<T>) {
      T* p = static_cast<T*>(sum.data_ptr());
      if (scale_grad_by_freq) {
        std::unique_ptr<int64_t[]> seen(new int64_t[static_cast<size_t>(num_weights)]());
        const int64_t* at = v.places.all();
        for (int64_t k = 0; k < v.places.count(); ++k) ++seen[static_cast<size_t>(at[k] / row_bytes)];
        for (int64_t r = 0; r < num_weights; ++r)
          if (seen[r] > 1)
            for (int64_t j = 0; j < width; ++j) p[r * width + j] /= static_cast<compute_t<T>>(seen[r]);
      }
      if (padding_idx >= 0 && padding_idx < num_weights) std::fill_n(p + padding_idx * width, width, T(0));
    }
  });
  if (half) copy_cpu(out, sum, false);
}

}  // namespace tapegrad::cpu::TG_ISA
