#include <vector>

#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/copy/convert.h"
#include "tapegrad/aten/index/half_sums.h"
#include "tapegrad/aten/index/index_plan.h"
#include "tapegrad/aten/index/places.h"
#include "tapegrad/aten/iterate/blocks/blocks.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/iterate/outputs.h"
#include "tapegrad/aten/kernels_copy.h"

namespace tapegrad::cpu::TG_ISA {

namespace {

Places places_of(const Tensor& input, TensorSpan indices, const IndexPlan& plan, const char* op) {
  int64_t count = 1;
  for (int64_t s : plan.index_sizes) count *= s;
  Places places(count);
  for (size_t d = 0; d < indices.size(); ++d) {
    if (!indices[d].defined()) continue;
    const int64_t dim = static_cast<int64_t>(d);
    places.add(contiguous_as(indices[d], plan.index_sizes, indices[d].dtype(), input.device()), input.size(dim),
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
    places.add(contiguous_or_copy(index), size, stride * static_cast<int64_t>(t.itemsize()), wrap, d, op);
  }
};

// `out` starts as a copy of `input` unless it is the input itself (in-place).
void start_from(const Tensor& input, const Tensor& out) {
  if (out.is_same(input)) return;
  copy_cpu(out, input, false);
}

void write_rows(const PlaceLoop& loop, const Places& places, const Tensor& rows) {
  dispatch_bytes(rows.itemsize(),
                 [&]<class T>() { write_places<T>(loop, places, rows, [](T& to, const T* from) { to = *from; }); });
}

// Adds an element, and of the 16-bit formats a run of them.
template <class T>
struct AddTo {
  void operator()(T& to, const T* from) const { to = add_values(seen(to), seen(*from)); }
  void run(T* to, const T* from, int64_t n) const
    requires is_half_type<T>
  {
    blocks::map(n, to, [](float a, float b) { return a + b; }, to, from);
  }
};

void add_rows(const PlaceLoop& loop, const Places& places, const Tensor& rows) {
  dispatch_dtype(rows.dtype(), [&]<class T>() {
    using U = unsigned_t<T>;
    write_places<U>(loop, places, rows, AddTo<U>{});
  });
}

}  // namespace

void index_tensor_cpu(const Tensor& input, TensorSpan indices, const Tensor& out) {
  const IndexPlan plan = plan_index(input, indices, "index");
  const Places places = places_of(input, indices, plan, "index");
  if (out.numel() == 0) return;
  const PlaceLoop loop(input, plan.indexed, plan.outer_dims);
  dispatch_bytes(out.itemsize(), [&]<class T>() { read_places<T>(loop, places, out); });
}

void index_put_cpu(const Tensor& input, TensorSpan indices, const Tensor& values, bool accumulate, const Tensor& out) {
  const IndexPlan plan = plan_index(out, indices, "index_put");
  const HalfSums target(out, accumulate ? checked_numel(plan.sizes, "index_put") / 2 : -1);
  const Tensor& to = target.sums;
  const Places places = places_of(to, indices, plan, "index_put");
  const Tensor rows = contiguous_apart(values, plan.sizes, to.dtype(), out);
  start_from(input, to);
  if (rows.numel() > 0) {
    const PlaceLoop loop(to, plan.indexed, plan.outer_dims);
    if (accumulate)
      add_rows(loop, places, rows);
    else
      write_rows(loop, places, rows);
  }
  target.finish();
}

void index_select_cpu(const Tensor& input, int64_t dim, const Tensor& index, bool, const Tensor& out) {
  const VectorIndex v(input, dim, index, "index_select");
  if (out.numel() == 0) return;
  dispatch_bytes(out.itemsize(), [&]<class T>() { read_places<T>(v.loop, v.places, out); });
}

void index_add_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source, const Scalar& alpha,
                   const Tensor& out) {
  const HalfSums target(out, source.numel() / 2);  // the rows are converted, too
  const VectorIndex v(target.sums, dim, index, "index_add");
  const Tensor rows = contiguous_apart(source, source.sizes(), target.sums.dtype(), out);
  start_from(input, target.sums);
  if (alpha == Scalar(1)) {
    add_rows(v.loop, v.places, rows);
  } else {
    dispatch_dtype(rows.dtype(), [&]<class T>() {
      using U = unsigned_t<T>;
      const U a = static_cast<U>(alpha.to<T>());
      write_places<U>(v.loop, v.places, rows,
                      [a](U& to, const U* from) { to = add_values(seen(to), mul_values(a, seen(*from))); });
    });
  }
  target.finish();
}

void index_copy_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& source, const Tensor& out) {
  const VectorIndex v(out, dim, index, "index_copy");
  const Tensor rows = contiguous_apart(source, source.sizes(), source.dtype(), out);
  start_from(input, out);
  write_rows(v.loop, v.places, rows);
}

void index_fill_cpu(const Tensor& input, int64_t dim, const Tensor& index, const Operand& value, const Tensor& out) {
  const VectorIndex v(out, dim, index, "index_fill", true);
  alignas(16) char bytes[16];
  convert_row(out.dtype(), value.tensor().dtype())(bytes, value.tensor().data_ptr(), 1);
  start_from(input, out);
  dispatch_bytes(out.itemsize(), [&]<class T>() {
    T bits;
    std::memcpy(&bits, bytes, sizeof(T));
    write_places<T>(v.loop, v.places, Tensor(), [bits](T& to, const T*) { to = bits; });
  });
}

void take_cpu(const Tensor& input, const Tensor& index, const Tensor& out) {
  const Tensor from = contiguous_or_copy(input);
  const Tensor flat = alias_tensor(from, {from.numel()}, {1}, from.storage_offset());
  const VectorIndex v(flat, 0, index, "take", true);
  if (out.numel() == 0) return;
  dispatch_bytes(out.itemsize(), [&]<class T>() { read_places<T>(v.loop, v.places, out); });
}

void put_cpu(const Tensor& input, const Tensor& index, const Tensor& source, bool accumulate, const Tensor& out) {
  const HalfSums target(out, accumulate ? source.numel() / 2 : -1);
  const Tensor& to = target.sums;
  const Tensor flat = alias_tensor(to, {to.numel()}, {1}, to.storage_offset());
  const VectorIndex v(flat, 0, index, "put", true);
  const Tensor rows = contiguous_apart(source, source.sizes(), to.dtype(), out);
  start_from(input, to);
  if (accumulate)
    add_rows(v.loop, v.places, rows);
  else
    write_rows(v.loop, v.places, rows);
  target.finish();
}

void embedding_cpu(const Tensor& weight, const Tensor& indices, int64_t, bool, bool, const Tensor& out) {
  const Tensor flat = contiguous_or_copy(indices);
  const VectorIndex v(weight, 0, flat, "embedding");
  if (out.numel() == 0) return;
  dispatch_bytes(out.itemsize(), [&]<class T>() { read_places<T>(v.loop, v.places, out); });
}

namespace {

// How often each of n rows is meant, where the places are `bytes` apart.
std::vector<int64_t> times_seen(const Places& places, int64_t n, int64_t bytes) {
  std::vector<int64_t> seen(static_cast<size_t>(n));
  const int64_t* at = places.all();
  for (int64_t k = 0; k < places.count(); ++k) ++seen[static_cast<size_t>(at[k] / bytes)];
  return seen;
}

// Sums of rows in the order of the indices, in float, for a strip of columns at a time that stays in a cache; a row
// that is meant once is copied.
template <class T>
void embedding_backward_half(const T* rows, const Tensor& indices, int64_t num_weights, int64_t padding_idx,
                             bool scale_grad_by_freq, const Tensor& out) {
  constexpr int64_t kFloats = 131072, kNarrowest = blocks::kWidth, kWidest = 1024;
  const int64_t count = indices.numel(), width = out.size(1);
  const int64_t strip =
      std::clamp(kFloats / std::max<int64_t>(num_weights, 1), kNarrowest, kWidest) & ~(kNarrowest - 1);
  const int64_t strip_bytes = strip * static_cast<int64_t>(sizeof(float));
  Places places(count);
  places.add(indices, num_weights, strip_bytes, false, 0, "embedding_backward");
  if (out.numel() == 0) return;
  const std::vector<int64_t> seen = times_seen(places, num_weights, strip_bytes);
  const int64_t* at = places.all();
  T* result = static_cast<T*>(out.data_ptr());
  const int64_t grain = std::max<int64_t>(1, 16384 / (strip * (count + num_weights)));
  parallel_for(0, (width + strip - 1) / strip, grain, [&](int64_t begin, int64_t end) {
    const Tensor memory = empty_tensor({num_weights, strip}, DType::float32);
    float* sums = static_cast<float*>(memory.data_ptr());
    for (int64_t first = begin * strip; first < std::min(width, end * strip); first += strip) {
      const int64_t n = std::min(strip, width - first);
      for (int64_t r = 0; r < num_weights; ++r)
        if (seen[static_cast<size_t>(r)] > 1) std::fill_n(sums + r * strip, n, 0.0F);
      for (int64_t k = 0; k < count; ++k) {
        const T* from = rows + k * width + first;
        const int64_t row = at[k] / strip_bytes;
        float* sum = sums + row * strip;
        if (seen[static_cast<size_t>(row)] == 1)
          std::copy_n(from, n, result + row * width + first);
        else
          blocks::map(n, sum, [](float a, float b) { return a + b; }, sum, from);
      }
      for (int64_t r = 0; r < num_weights; ++r) {
        const int64_t times = seen[static_cast<size_t>(r)];
        const float* sum = sums + r * strip;
        T* to = result + r * width + first;
        if (r == padding_idx || times == 0)
          std::fill_n(to, n, T(0.0F));
        else if (scale_grad_by_freq && times > 1)
          blocks::map(n, to, [scale = static_cast<float>(times)](float x) { return x / scale; }, sum);
        else if (times > 1)
          blocks::copy(n, to, sum);
      }
    }
  });
}

}  // namespace

// Sums of rows in the order of the indices, shared out over columns.
void embedding_backward_cpu(const Tensor& grad_output, const Tensor& indices, int64_t num_weights, int64_t padding_idx,
                            bool scale_grad_by_freq, const Tensor& out) {
  const Tensor rows = contiguous_or_copy(grad_output), flat = contiguous_or_copy(indices);
  dispatch_dtype(out.dtype(), [&]<class T>() {
    if constexpr (is_half_type<T>) {
      const T* from = static_cast<const T*>(rows.data_ptr());
      embedding_backward_half(from, flat, num_weights, padding_idx, scale_grad_by_freq, out);
    } else if constexpr (is_differentiable(dtype_of_v<T>)) {
      const VectorIndex v(out, 0, flat, "embedding_backward");
      fill_cpu(out, Operand(0));
      if (rows.numel() == 0 || num_weights == 0) return;
      add_rows(v.loop, v.places, rows);
      const int64_t width = out.size(1);
      T* p = static_cast<T*>(out.data_ptr());
      if (scale_grad_by_freq) {
        const std::vector<int64_t> seen = times_seen(v.places, num_weights, width * static_cast<int64_t>(sizeof(T)));
        for (int64_t r = 0; r < num_weights; ++r)
          if (const int64_t times = seen[static_cast<size_t>(r)]; times > 1)
            for (int64_t j = 0; j < width; ++j) p[r * width + j] /= static_cast<T>(times);
      }
      if (padding_idx >= 0 && padding_idx < num_weights) std::fill_n(p + padding_idx * width, width, T(0));
    }
  });
}

}  // namespace tapegrad::cpu::TG_ISA
