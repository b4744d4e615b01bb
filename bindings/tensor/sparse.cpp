// Sparse tensors as Python makes and reads them; _sparse.py gives these functions their public names.
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/autograd/node.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/functions.h"

namespace tapegrad::python {
namespace {

// _sparse_make(indices, values, size, coalesced)
PyObject* make(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  constexpr const char* kOp = "sparse_coo_tensor";
  expect_args(nargs, 4, kOp);
  const DimVector sizes = to_ints(args[2], {kOp, "size"});
  return wrap(sparse::make(to_tensor(args[0], {kOp, "indices"}), to_tensor(args[1], {kOp, "values"}), sizes,
                           to_bool(args[3], {kOp, "is_coalesced"})));
  TG_PY_CATCH
}

// _sparse_from_dense(tensor, sparse_dims)
PyObject* from_dense(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  constexpr const char* kOp = "to_sparse";
  expect_args(nargs, 2, kOp);
  return wrap(sparse::from_dense(to_tensor(args[0], {kOp, "input"}), to_int(args[1], {kOp, "sparse_dim"})));
  TG_PY_CATCH
}

// _sparse_with_values(sparse, values)
PyObject* with_values(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  constexpr const char* kOp = "sparse";
  expect_args(nargs, 2, kOp);
  return wrap(sparse::with_values(to_tensor(args[0], {kOp, "input"}), to_tensor(args[1], {kOp, "values"})));
  TG_PY_CATCH
}

// _sparse_compressed(dim, starts, others, values, size)
PyObject* compressed(PyObject*, PyObject* const* args, Py_ssize_t nargs) {
  TG_PY_TRY
  constexpr const char* kOp = "sparse_compressed_tensor";
  expect_args(nargs, 5, kOp);
  const int64_t dim = to_int(args[0], {kOp, "dim"});
  const DimVector sizes = to_ints(args[4], {kOp, "size"});
  return wrap(sparse::make_compressed(dim == 0 ? 0 : 1, to_tensor(args[1], {kOp, "compressed_indices"}),
                                      to_tensor(args[2], {kOp, "plain_indices"}), to_tensor(args[3], {kOp, "values"}),
                                      sizes));
  TG_PY_CATCH
}

template <class R, R (*kFunction)(const Tensor&)>
PyObject* of_tensor(PyObject*, PyObject* tensor) {
  TG_PY_TRY
  return wrap(kFunction(to_tensor(tensor, {"sparse", "input"})));
  TG_PY_CATCH
}

Tensor indices_of(const Tensor& t) { return sparse::indices(t); }
Tensor values_of(const Tensor& t) { return sparse::values(t); }
Tensor starts_of(const Tensor& t) {
  const Tensor starts = sparse::impl_of(t, "crow_indices").starts();
  TG_CHECK(starts.defined(), Runtime, "crow_indices: expected a compressed sparse tensor: got one in coordinate form");
  return starts;
}
template <int kDim>
Tensor compress(const Tensor& t) {
  return sparse::compress(t, kDim);
}
bool is_coalesced(const Tensor& t) { return sparse::impl_of(t, "is_coalesced").coalesced(); }

}  // namespace

PyMethodDef sparse_functions[] = {
    {"_sparse_make", as_c_function(&make), METH_FASTCALL, "_sparse_make(indices, values, size, coalesced)"},
    {"_sparse_from_dense", as_c_function(&from_dense), METH_FASTCALL, "_sparse_from_dense(tensor, sparse_dims)"},
    {"_sparse_with_values", as_c_function(&with_values), METH_FASTCALL,
     "_sparse_with_values(sparse, values): the same places with other values"},
    {"_sparse_compressed", as_c_function(&compressed), METH_FASTCALL,
     "_sparse_compressed(dim, starts, others, values, size)"},
    {"_sparse_to_csr", &of_tensor<Tensor, &compress<0>>, METH_O, "_sparse_to_csr(tensor)"},
    {"_sparse_to_csc", &of_tensor<Tensor, &compress<1>>, METH_O, "_sparse_to_csc(tensor)"},
    {"_sparse_to_coo", &of_tensor<Tensor, &sparse::in_coordinates>, METH_O, "_sparse_to_coo(tensor)"},
    {"_sparse_starts", &of_tensor<Tensor, &starts_of>, METH_O, "_sparse_starts(tensor)"},
    {"_sparse_indices", &of_tensor<Tensor, &indices_of>, METH_O, "_sparse_indices(tensor)"},
    {"_sparse_values", &of_tensor<Tensor, &values_of>, METH_O, "_sparse_values(tensor)"},
    {"_sparse_is_coalesced", &of_tensor<bool, &is_coalesced>, METH_O, "_sparse_is_coalesced(tensor)"},
    {"_sparse_coalesce", &of_tensor<Tensor, &sparse::coalesce>, METH_O, "_sparse_coalesce(tensor)"},
    {"_sparse_to_dense", &of_tensor<Tensor, &sparse::to_dense>, METH_O, "_sparse_to_dense(tensor)"},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace tapegrad::python
