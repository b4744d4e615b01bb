// Products of sparse and dense matrices, and the check of indices.
#include "tapegrad/cuda/sparse/coo.h"

#include "tapegrad/aten/typed.h"
#include "tapegrad/cuda/copy/copy.h"
#include "tapegrad/cuda/index/places.h"
#include "tapegrad/cuda/index/steps.h"
#include "tapegrad/cuda/kernels.h"

namespace tapegrad::cuda {
namespace {

// The row of each entry; entries outside of the matrices are recorded and left out.
struct RowPlaces {
  const int64_t* index;
  int64_t count, rows, inner;
  FaultRecord* fault;
  FaultText op;
  TG_DEVICE int64_t at(int64_t k) const {
    const int64_t row = checked_index(fault, Fault::Index, op, index[k], rows, 0);
    return checked_index(fault, Fault::Index, op, index[count + k], inner, 1) < 0 ? -1 : row;
  }
};

// Entries sorted by their rows, equal rows in their order; those outside of the matrix have no key.
template <class T>
struct Entries {
  const uint64_t* keys;
  const int64_t *order, *column;  // which entry has each key, and of each entry
  const T* values;
  int64_t count;
};
template <class T>
Entries<T> entries(const SortedPlaces& sorted, const Tensor& indices, const Tensor& values) {
  const int64_t n = values.size(0);
  return {sorted.key_data(), sorted.order_data(), data_of<int64_t>(indices) + n, data_of<T>(values), n};
}

template <class T>
struct AddRows {
  Entries<T> e;
  const T* dense;
  T* out;
  int64_t columns, height, width;  // of all blocks; those of an element are of one
  TG_DEVICE void operator()(int64_t i) const {
    const int64_t j = i % columns, first = i / columns / height, row = i / columns % height;
    if (!begins_place(e.keys, first)) return;
    const uint64_t key = e.keys[first];
    compute_t<T> sum = compute_t<T>(0);
    for (int64_t at = first; at < e.count && e.keys[at] == key; ++at) {
      const int64_t k = e.order[at];
      for (int64_t w = 0; w < width; ++w)
        sum = math::add(sum, math::mul(steps::widen<T>(e.values[(k * height + row) * width + w]),
                                       steps::widen<T>(dense[(e.column[k] * width + w) * columns + j])));
    }
    out[(static_cast<int64_t>(key) * height + row) * columns + j] = steps::narrow<T>(sum);
  }
};

// One column of X.
template <class T>
struct SolveColumn {
  Entries<T> e;
  int64_t rows, columns;
  const T* B;
  T* X;
  bool upper, unitriangular;
  TG_DEVICE void operator()(int64_t j) const {
    int64_t at = upper ? e.count - 1 : 0;
    for (int64_t step = 0; step < rows; ++step) {
      const int64_t row = upper ? rows - 1 - step : step;
      const auto key = static_cast<uint64_t>(row);
      compute_t<T> sum = steps::widen<T>(B[row * columns + j]), diagonal = compute_t<T>(unitriangular ? 1 : 0);
      while (upper && at >= 0 && e.keys[at] > key) --at;
      for (; at >= 0 && at < e.count && e.keys[at] == key; at += upper ? -1 : 1) {
        const int64_t k = e.order[at], other = e.column[k];
        if (other == row && !unitriangular) diagonal = math::add(diagonal, steps::widen<T>(e.values[k]));
        if (upper ? other <= row : other >= row) continue;
        sum = math::sub(sum, math::mul(steps::widen<T>(e.values[k]), steps::widen<T>(X[other * columns + j])));
      }
      X[row * columns + j] = steps::narrow<T>(unitriangular ? sum : math::div(sum, diagonal));
    }
  }
};

struct CheckRow {
  const int64_t* index;
  int64_t size, dim;
  FaultRecord* fault;
  FaultText op;
  TG_DEVICE void operator()(int64_t k) const { (void)checked_index(fault, Fault::Index, op, index[k], size, dim); }
};

}  // namespace

void record_out_of_bounds(const Tensor& indices, IntSpan sizes) {
  const int64_t n = indices.size(1);
  const Work work(indices.device(), {&indices});
  FaultRecord* fault = fault_record(indices.device().index);
  for (int64_t d = 0; d < indices.size(0); ++d)
    for_elements(
        work, n,
        CheckRow{data_of<int64_t>(indices) + d * n, sizes[static_cast<size_t>(d)], d, fault, "sparse_coo_tensor"});
}

void coo_mm_cuda(const Tensor& indices, const Tensor& values, const Tensor& dense, int64_t rows, const Tensor& out) {
  const int64_t n = values.size(0), columns = dense.size(1);
  zero_dense(out);
  if (n == 0) return;
  const bool blocks = values.ndim() == 3;  // (entries, height, width); an index counts blocks
  const int64_t height = blocks ? values.size(1) : 1, width = blocks ? values.size(2) : 1;
  const Work work(out.device(), {&indices, &values, &dense, &out});
  const RowPlaces places{data_of<int64_t>(indices),        n,          rows / height, dense.size(0) / width,
                         fault_record(out.device().index), "sparse mm"};
  const SortedPlaces sorted = sorted_places(work, out.device(), places, n, rows / height);
  dispatch_floating_complex(dense.dtype(), [&]<class T>() {
    for_elements(
        work, n * height * columns,
        AddRows<T>{entries<T>(sorted, indices, values), data_of<T>(dense), target_of<T>(out), columns, height, width});
  });
}

void coo_solve_cuda(const Tensor& indices, const Tensor& values, const Tensor& B, bool upper, bool unitriangular,
                    const Tensor& out) {
  const int64_t n = values.size(0), rows = B.size(0), columns = B.size(1);
  const Work work(out.device(), {&indices, &values, &B, &out});
  const RowPlaces places{data_of<int64_t>(indices), n, rows, rows, fault_record(out.device().index),
                         "sparse triangular_solve"};
  const SortedPlaces sorted = sorted_places(work, out.device(), places, n, rows);
  dispatch_floating_complex(B.dtype(), [&]<class T>() {
    for_elements(work, columns,
                 SolveColumn<T>{entries<T>(sorted, indices, values), rows, columns, data_of<T>(B), target_of<T>(out),
                                upper, unitriangular});
  });
}

}  // namespace tapegrad::cuda
