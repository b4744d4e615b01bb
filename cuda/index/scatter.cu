// gather and the scatters: an index per element along one dimension. Writing is deterministic, as in places.h: the
// elements are sorted by where they go.
#include "tapegrad/aten/copy/contiguous.h"
#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/index/places.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {
namespace {

// Where element i of the index points to in a tensor; strides in elements.
struct Targets {
  Places rest;  // of the dimensions but `dim`, walked in the index's shape
  const int64_t* index = nullptr;
  int64_t n = 0, size = 1, stride = 0, dim = 0;
  FaultText op;
  FaultRecord* fault = nullptr;

  TG_DEVICE int64_t at(int64_t i) const {
    const int64_t given = checked_index(fault, Fault::Index, op, index[i], size, dim);
    return given < 0 ? -1 : rest.at(i) + given * stride;
  }
};

struct TensorTargets {
  Tensor index;
  Targets targets;
  int64_t extent = 1;  // targets lie below it

  TensorTargets(const Tensor& t, int64_t given_dim, const Tensor& given, const char* op)
      : index(contiguous_apart(given, given.sizes(), DType::int64, t)) {
    const int64_t d = wrap_dim(given_dim, t.ndim(), op);
    int64_t shape[kMaxDims], strides[kMaxDims];
    int n = 0;
    for (int k = 0; k < index.ndim(); ++k) {
      const int64_t size = index.size(k), stride = k == d || k >= t.ndim() ? 0 : t.stride(k);
      if (size == 1) continue;
      if (n > 0 && strides[n - 1] == stride * size) {
        shape[n - 1] *= size;
        strides[n - 1] = stride;
      } else {
        shape[n] = size;
        strides[n++] = stride;
      }
    }
    targets.rest = Places(n, shape, strides);
    targets.index = static_cast<const int64_t*>(index.data_ptr());
    targets.n = index.numel();
    targets.size = t.ndim() ? t.size(d) : 1;
    targets.stride = t.ndim() ? t.stride(d) : 0;
    targets.dim = d;
    targets.op = op;
    targets.fault = fault_record(t.device().index);
    for (int k = 0; k < t.ndim(); ++k) extent += (std::max<int64_t>(t.size(k), 1) - 1) * t.stride(k);
  }
};

// V elements by a thread, so that their loads are in flight at once.
template <class T, int V>
struct Gather {
  const T* from;
  T* to;
  Targets targets;
  TG_DEVICE void operator()(int64_t i) const {
    int64_t at[V];
    TG_UNROLL
    for (int v = 0; v < V; ++v) at[v] = targets.at(i * V + v);
    T found[V];
    TG_UNROLL
    for (int v = 0; v < V; ++v) found[v] = at[v] < 0 ? T{} : from[at[v]];
    store_pieces<T, V>(to + i * V, found);
  }
};

// Each target by one thread: step over its elements in the order of the index. `rows` null: `value` for all.
template <class T, class F>
struct Write {
  PlaceWriter<F> places;
  T* to;
  const T* rows;
  T value;
  TG_DEVICE void operator()(int64_t first) const {
    if (!places.begins(first)) return;
    T target[1] = {to[places.keys[first]]};
    places.write(target, first, [&](int64_t k, T(&row)[1]) { row[0] = rows == nullptr ? value : rows[k]; });
    to[places.keys[first]] = target[0];
  }
};

Tensor source_rows(const Tensor& src, const TensorTargets& t, const Tensor& out) {
  const IntSpan sizes = t.index.sizes();
  return contiguous_apart(leading_part(src, sizes), sizes, out.dtype(), out);
}

void start_from(const Tensor& input, const Tensor& out) {
  if (!out.is_same(input)) copy_any(out, input, true);
}

template <class T, class F>
void write(const TensorTargets& t, const Tensor& rows, T value, const Tensor& out, const F& f) {
  const int64_t n = t.targets.n;
  if (n == 0) return;
  const Work work(out.device(), {&rows, &out});
  const SortedPlaces sorted = sorted_places(work, out.device(), t.targets, n, t.extent);
  for_elements(work, n,
               Write<T, F>{{sorted.key_data(), sorted.order_data(), n, f}, target_of<T>(out), data_of<T>(rows), value});
}

template <class T>
steps::Compute<T> identity(std::string_view reduce) {
  using C = steps::Compute<T>;
  if (reduce == "prod") return C(1);
  if constexpr (!is_complex_type<T>) {
    const bool max = reduce == "amax";
    if (max || reduce == "amin") {
      if constexpr (std::is_floating_point_v<C>)
        return max ? -std::numeric_limits<C>::infinity() : std::numeric_limits<C>::infinity();
      else
        return max ? std::numeric_limits<C>::lowest() : std::numeric_limits<C>::max();
    }
  }
  return C(0);
}

steps::Kind kind_of(std::string_view reduce) {
  return reduce == "prod" || reduce == "multiply" ? steps::Kind::Product
         : reduce == "amax"                       ? steps::Kind::Largest
         : reduce == "amin"                       ? steps::Kind::Smallest
         : reduce == "mean"                       ? steps::Kind::Mean
                                                  : steps::Kind::Sum;
}

void combine(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src, std::string_view reduce,
             bool include_self, const Tensor& out, const char* op) {
  const TensorTargets t(out, dim, index, op);
  const Tensor rows = t.targets.n == 0 ? Tensor() : source_rows(src, t, out);
  start_from(input, out);
  dispatch_dtype(out.dtype(), [&]<class T>() {
    write<T>(t, rows, T{}, out, steps::Reduce<T>{kind_of(reduce), !include_self, identity<T>(reduce)});
  });
}

}  // namespace

void gather_cuda(const Tensor& input, int64_t dim, const Tensor& index, bool, const Tensor& out) {
  const TensorTargets t(input, dim, index, "gather");
  if (t.targets.n == 0) return;
  const Work work(out.device(), {&input, &out});
  dispatch_bytes(out.dtype(), [&]<class T>() {
    constexpr int V = 4;
    if (t.targets.n % V == 0 && reinterpret_cast<uintptr_t>(out.data_ptr()) % 16 == 0)
      for_elements(work, t.targets.n / V, Gather<T, V>{data_of<T>(input), target_of<T>(out), t.targets});
    else
      for_elements(work, t.targets.n, Gather<T, 1>{data_of<T>(input), target_of<T>(out), t.targets});
  });
}

void scatter_src_cuda(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src, const Tensor& out) {
  const TensorTargets t(out, dim, index, "scatter");
  const Tensor rows = t.targets.n == 0 ? Tensor() : source_rows(src, t, out);
  start_from(input, out);
  dispatch_bytes(out.dtype(), [&]<class T>() { write<T>(t, rows, T{}, out, steps::Assign<T>{}); });
}
void scatter_value_cuda(const Tensor& input, int64_t dim, const Tensor& index, const Scalar& value, const Tensor& out) {
  const TensorTargets t(out, dim, index, "scatter");
  start_from(input, out);
  dispatch_dtype(out.dtype(), [&]<class T>() { write<T>(t, {}, value.to<T>(), out, steps::Assign<T>{}); });
}
void scatter_add_cuda(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src, const Tensor& out) {
  combine(input, dim, index, src, "sum", true, out, "scatter_add");
}
void scatter_src_reduce_cuda(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src,
                             std::string_view reduce, const Tensor& out) {
  combine(input, dim, index, src, reduce == "add" ? "sum" : "prod", true, out,
          reduce == "add" ? "scatter_add" : "scatter");
}
void scatter_value_reduce_cuda(const Tensor& input, int64_t dim, const Tensor& index, const Scalar& value,
                               std::string_view reduce, const Tensor& out) {
  const TensorTargets t(out, dim, index, "scatter");
  start_from(input, out);
  dispatch_dtype(out.dtype(),
                 [&]<class T>() { write<T>(t, {}, value.to<T>(), out, steps::Reduce<T>{kind_of(reduce), false, {}}); });
}
void scatter_reduce_cuda(const Tensor& input, int64_t dim, const Tensor& index, const Tensor& src,
                         std::string_view reduce, bool include_self, const Tensor& out) {
  combine(input, dim, index, src, reduce, include_self, out, "scatter_reduce");
}

}  // namespace tapegrad::cuda
