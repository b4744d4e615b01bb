// Sparse tensors as Python makes and reads them; _sparse.py gives these functions their public names.
#include "tapegrad/aten/sparse/products.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/autograd/engine/node.h"
#include "tapegrad/bindings/arguments/method.h"
#include "tapegrad/bindings/functions.h"
#include "tapegrad/bindings/values/value_objects.h"

namespace tapegrad::python {
namespace {

Tensor make(PyObject* indices, PyObject* values, PyObject* size, PyObject* coalesced) {
  constexpr const char* kOp = "sparse_coo_tensor";
  const DimVector sizes = to_ints(size, {kOp, "size"});
  return sparse::make(to_tensor(indices, {kOp, "indices"}), to_tensor(values, {kOp, "values"}), sizes,
                      to_bool(coalesced, {kOp, "is_coalesced"}));
}

Tensor from_dense(PyObject* tensor, PyObject* dims) {
  return sparse::from_dense(to_tensor(tensor, {"to_sparse", "input"}), to_int(dims, {"to_sparse", "sparse_dim"}));
}

Tensor with_values(PyObject* tensor, PyObject* values) {
  return sparse::with_values(to_tensor(tensor, {"sparse", "input"}), to_tensor(values, {"sparse", "values"}));
}

// Of the number that a layout is (value_objects.h).
sparse::Form form_of_layout(PyObject* layout, const char* op) {
  const int which = static_cast<int>(to_int(layout, {op, "layout"})) - static_cast<int>(Layout::SparseCsr);
  const int64_t side = which / 2;
  return {which % 2, {side, side}};
}

Tensor compressed(PyObject* layout, PyObject* starts, PyObject* others, PyObject* values, PyObject* size,
                  PyObject* whole) {
  constexpr const char* kOp = "sparse_compressed_tensor";
  const sparse::Form form = form_of_layout(layout, kOp);
  const DimVector sizes = to_ints(size, {kOp, "size"});
  return sparse::make_compressed(form.dim, form.in_blocks(), to_tensor(starts, {kOp, "compressed_indices"}),
                                 to_tensor(others, {kOp, "plain_indices"}), to_tensor(values, {kOp, "values"}), sizes,
                                 to_bool(whole, {kOp, "check_invariants"}));
}

// A tensor in another form; of a dense one that many dimensions at its end belong to the values.
Tensor compress(PyObject* tensor, PyObject* layout, PyObject* blocksize, PyObject* dense_dims) {
  constexpr const char* kOp = "to_sparse";
  const Tensor t = to_tensor(tensor, {kOp, "input"});
  sparse::Form form = form_of_layout(layout, kOp);
  if (form.in_blocks()) {
    const DimVector block = to_ints(blocksize, {kOp, "blocksize"});
    TG_CHECK(block.size() == 2, Runtime, "to_sparse_{}: blocksize needs to be a tuple of size 2, but got {}",
             form.name(), block.size());
    TG_CHECK(block[0] > 0 && block[1] > 0, Runtime, "to_sparse_{}: blocksize needs to be positive, but got {}",
             form.name(), format_ints(block));
    form.block = {block[0], block[1]};
  }
  return t.is_sparse() ? sparse::compress(t, form)
                       : sparse::compress_dense(t, form, to_int(dense_dims, {kOp, "dense_dim"}));
}

// Of functions written in Python: their result in the form of `out`.
Tensor write(PyObject* out, PyObject* result) {
  const Tensor to = to_tensor(out, {"sparse", "out"});
  sparse::write_to("sparse", to, to_tensor(result, {"sparse", "result"}));
  return to;
}

Tensor mask(PyObject* tensor, PyObject* of) {
  const Tensor like = to_tensor(of, {"sparse_mask", "mask"});
  return sparse::with_values(like, sparse::values_at(to_tensor(tensor, {"sparse_mask", "input"}), like));
}

// Of functions of one sparse tensor.
template <auto kFunction>
auto of_tensor(PyObject* tensor) {
  return kFunction(to_tensor(tensor, {"sparse", "input"}));
}

Tensor indices_of(const Tensor& t) { return sparse::indices(t); }
Tensor values_of(const Tensor& t) { return sparse::values(t); }
Tensor starts_of(const Tensor& t) {
  const Tensor starts = sparse::impl_of(t, "crow_indices").starts();
  TG_CHECK(starts.defined(), Runtime, "crow_indices: expected a compressed sparse tensor: got one in coordinate form");
  return starts;
}
bool is_coalesced(const Tensor& t) { return sparse::impl_of(t, "is_coalesced").coalesced(); }

Tensor set_coalesced(PyObject* tensor, PyObject* coalesced) {
  const Tensor t = to_tensor(tensor, {"_coalesced_", "self"});
  sparse::impl_of(t, "_coalesced_");
  static_cast<sparse::SparseImpl*>(t.impl())->set_coalesced(to_bool(coalesced, {"_coalesced_", "coalesced"}));
  return t;
}

}  // namespace

PyMethodDef sparse_functions[] = {
    method<"_sparse_make", make>("_sparse_make(indices, values, size, coalesced)"),
    method<"_sparse_from_dense", from_dense>("_sparse_from_dense(tensor, sparse_dims)"),
    method<"_sparse_with_values", with_values>(
        "_sparse_with_values(sparse, values): the same places with other values"),
    method<"_sparse_compressed", compressed>(
        "_sparse_compressed(layout, starts, others, values, size, check_invariants)"),
    method<"_sparse_compress", compress>("_sparse_compress(tensor, layout, blocksize, dense_dims)"),
    method<"_sparse_write", write>("_sparse_write(out, result): out, which is the result then"),
    method<"_sparse_mask", mask>("_sparse_mask(tensor, mask)"),
    method<"_sparse_to_coo", of_tensor<sparse::in_coordinates>>("_sparse_to_coo(tensor)"),
    method<"_sparse_starts", of_tensor<starts_of>>("_sparse_starts(tensor)"),
    method<"_sparse_indices", of_tensor<indices_of>>("_sparse_indices(tensor)"),
    method<"_sparse_values", of_tensor<values_of>>("_sparse_values(tensor)"),
    method<"_sparse_is_coalesced", of_tensor<is_coalesced>>("_sparse_is_coalesced(tensor)"),
    method<"_sparse_set_coalesced", set_coalesced>("_sparse_set_coalesced(tensor, coalesced)"),
    method<"_sparse_coalesce", of_tensor<sparse::coalesce>>("_sparse_coalesce(tensor)"),
    method<"_sparse_to_dense", of_tensor<sparse::to_dense>>("_sparse_to_dense(tensor)"),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace tapegrad::python
