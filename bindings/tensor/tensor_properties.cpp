// Properties of tensors.
#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/record/native_step.h"
#include "tapegrad/aten/sparse/sparse_tensor.h"
#include "tapegrad/aten/tensor_kind.h"
#include "tapegrad/autograd/meta.h"
#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/record/followed.h"
#include "tapegrad/bindings/tensor/tensor_type.h"
#include "tapegrad/bindings/values/value_objects.h"
#include "tapegrad/c10/warning.h"

namespace tapegrad::python {

namespace {

using Getter = PyObject* (*)(const Tensor& t);

// A getter that raises nothing.
template <Getter kGet>
PyObject* get(PyObject* o, void*) {
  return kGet(unwrap(o));
}
// One that may.
template <Getter kGet>
PyObject* get_checked(PyObject* o, void*) {
  TG_PY_TRY
  return kGet(unwrap(o));
  TG_PY_CATCH
}

int refuse_delete(const char* name) {
  PyErr_Format(PyExc_RuntimeError, "%s: the attribute cannot be deleted", name);
  return -1;
}

// What of a tensor the tape knows: of a sparse one its values.
const Tensor& on_tape(const Tensor& t) noexcept { return t.is_sparse() ? kind_of(t)->values(t) : t; }

PyObject* get_grad(PyObject* o, void*) {
  const Tensor& t = unwrap(o);
  Tensor grad = t.grad();
  record::note_known_gradient(t, grad);
  if (!grad.defined() && !t.is_leaf() && !autograd::meta(on_tape(t))->retains_grad)
    warn(
        "The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute won't be "
        "populated during autograd.backward(): use .retain_grad() on it, or access the leaf Tensor that is meant");
  return wrap(std::move(grad));
}

int set_grad(PyObject* o, PyObject* value, void*) {
  const Tensor& t = unwrap(o);
  if (!value || value == Py_None) {
    if (on_tape(t).impl()->autograd()) t.set_grad({});
    return 0;
  }
  TG_CHECK(is_tensor(value), Type, "grad: assigned grad expected to be a Tensor or None but got grad of type {}",
           Py_TYPE(value)->tp_name);
  t.set_grad(unwrap(value));
  return 0;
}

int set_requires_grad(PyObject* o, PyObject* value, void*) {
  if (!value) return refuse_delete("requires_grad");
  unwrap(o).set_requires_grad(to_bool(value, {"requires_grad", "value"}));
  return 0;
}

int set_data(PyObject* o, PyObject* value, void*) {
  if (!value) return refuse_delete("data");
  const Tensor& t = unwrap(o);
  const Tensor& source = to_tensor(value, {"data", "value"});
  TG_CHECK(!t.is_sparse() && !source.is_sparse(), NotImplemented,
           "data: variable and tensor have incompatible tensor type: one of them is sparse");
  TG_CHECK(!t.requires_grad() || is_differentiable(source.dtype()), Runtime,
           "data: data set to a tensor that requires gradients must be floating point or complex dtype: got {}",
           source.dtype());
  TensorImpl* impl = t.impl();
  DimVector sizes(source.sizes());
  DimVector strides(source.strides());
  const int64_t offset = source.storage_offset();
  impl->set_storage(source.impl()->storage(), source.dtype());
  impl->set_geometry(sizes, strides, offset);
  return 0;
}

PyObject* read_sizes(const Tensor& t) {
  if (TG_UNLIKELY(record::active()))
    if (PyObject* followed = follow_sizes(t, "shape", record::kAskedSizes)) return followed;
  record::note_size(t, "shape", record::kAskedSizes);
  return wrap(t.sizes());
}

PyObject* base_of(const Tensor& t) {
  if (t.is_sparse()) return wrap(sparse::impl_of(t, "_base").base());
  const autograd::ViewMeta* view = autograd::view_meta(t);
  return wrap(view ? view->base : Tensor());
}

// Views that swap dimensions: the last two, or all of them.
PyObject* swapped(PyObject* o, const char* name, bool adjoint) {
  const Tensor& t = unwrap(o);
  record::note_size(t, name, record::kAskedNdim);
  const int n = t.ndim();
  if (n == 0) {
    warn(fmt::format("Tensor.{} is deprecated on 0-D tensors: {}", name,
                     adjoint ? "use x.conj()" : "this function is the identity in these cases"));
    return adjoint && t.is_complex() ? call_method(o, "conj").release() : return_self(o);
  }
  TG_CHECK(n >= 2, Runtime, "{}: only supported on matrices or batches of matrices: got shape {}", name,
           format_ints(t.sizes()));
  PyRef a = own(PyLong_FromLong(-2));
  PyRef b = own(PyLong_FromLong(-1));
  PyRef result = call_method(o, "transpose", a.get(), b.get());
  if (adjoint && t.is_complex()) return call_method(result.get(), "conj").release();
  return result.release();
}

PyObject* get_T(PyObject* o, void*) {
  record::note_size(unwrap(o), "T", record::kAskedNdim);
  const int n = unwrap(o).ndim();
  if (n == 2 || n == 0) return swapped(o, "T", false);
  if (n != 1)
    warn(
        "The use of `x.T` on tensors of dimension other than 2 to reverse their shape is deprecated and it will throw "
        "an "
        "error in a future release. Consider `x.mT` to transpose batches of matrices or "
        "`x.permute(*range(x.ndim - 1, -1, -1))` to reverse the dimensions of a tensor.");
  PyRef dims = own(PyTuple_New(n));
  for (int i = 0; i < n; ++i) PyTuple_SET_ITEM(dims.get(), i, check(PyLong_FromLong(n - 1 - i)));
  return call_method(o, "permute", dims.get()).release();
}

template <bool kAdjoint, bool kMatrix>
PyObject* get_transposed(PyObject* o, void*) {
  const char* name = kAdjoint ? (kMatrix ? "mH" : "H") : "mT";
  TG_CHECK(kMatrix || unwrap(o).ndim() == 2 || unwrap(o).ndim() == 0, Runtime,
           "{}: only supported on matrices: got shape {}", name, format_ints(unwrap(o).sizes()));
  return swapped(o, name, kAdjoint);
}

// The real or imaginary part: of a complex tensor a view of every other number.
template <int kPart>
PyObject* get_part(PyObject* o, void*) {
  const Tensor& t = unwrap(o);
  if (!t.is_complex()) {
    TG_CHECK(kPart == 0, Runtime, "imag: only complex tensors have an imaginary part: got {}", t.dtype());
    return return_self(o);
  }
  PyRef pairs = own(PyImport_ImportModule("tapegrad"));
  pairs = call_method(pairs.get(), "view_as_real", o);
  PyRef dim = own(PyLong_FromLong(-1));
  PyRef index = own(PyLong_FromLong(kPart));
  return call_method(pairs.get(), "select", dim.get(), index.get()).release();
}

template <int kPart>
int set_part(PyObject* o, PyObject* value, void*) {
  if (!value) return refuse_delete(kPart ? "imag" : "real");
  PyRef part = own(get_part<kPart>(o, nullptr));
  call_method(part.get(), "copy_", value);
  return 0;
}

PyObject* dims_names(const Tensor& t) {
  PyObject* names = PyTuple_New(t.ndim());
  for (int i = 0; names && i < t.ndim(); ++i) {
    Py_INCREF(Py_None);
    PyTuple_SET_ITEM(names, i, Py_None);
  }
  return names;
}

PyObject* get_none(PyObject*, void*) { Py_RETURN_NONE; }
PyObject* get_false(PyObject*, void*) { Py_RETURN_FALSE; }

PyObject* output_number(const Tensor& t) {
  const autograd::AutogradMeta* meta = t.impl()->autograd() ? autograd::meta(t) : nullptr;
  return PyLong_FromUnsignedLong(meta ? meta->output : 0);
}
PyObject* retains(const Tensor& t) { return wrap(t.impl()->autograd() != nullptr && autograd::meta(t)->retains_grad); }
Layout layout_of(const Tensor& t) {
  if (!t.is_sparse()) return Layout::Strided;
  const sparse::Form form = sparse::form_of(t);
  if (form.dim < 0) return Layout::SparseCoo;
  return static_cast<Layout>(static_cast<int>(Layout::SparseCsr) + form.dim + (form.in_blocks() ? 2 : 0));
}
// That sparse tensors and those of vmap have device types of their own is no business of programs.
Device device_of(const Tensor& t) { return batch::host_device(sparse::device(t)); }
PyObject* grad_fn_object(const Tensor& t) {
  intrusive_ptr<autograd::Node> node = on_tape(t).grad_fn();
  if (!node || !wrap_node) Py_RETURN_NONE;
  return wrap_node(std::move(node));
}

// What sizes decide.
#define TG_GET_SIZE(name, which, expression) TG_GET_CHECKED((record::note_size(t, name, record::which), (expression)))
#define TG_GET(expression) get<[](const Tensor& t) -> PyObject* { return (expression); }>
#define TG_GET_CHECKED(expression) get_checked<[](const Tensor& t) -> PyObject* { return (expression); }>

}  // namespace

PyObject* (*wrap_node)(intrusive_ptr<autograd::Node> node) = nullptr;

PyGetSetDef tensor_properties[] = {
    {"shape", TG_GET_CHECKED(read_sizes(t)), nullptr, "The sizes of the dimensions, as a tapegrad.Size.", nullptr},
    {"dtype", TG_GET(wrap(t.dtype())), nullptr, "The type of the elements.", nullptr},
    {"device", TG_GET(wrap(device_of(t))), nullptr, "Where the elements are.", nullptr},
    {"layout", TG_GET(Py_NewRef(layout_object(layout_of(t)))), nullptr, nullptr, nullptr},
    {"ndim", TG_GET_SIZE("ndim", kAskedNdim, PyLong_FromLong(t.ndim())), nullptr, "The number of dimensions.", nullptr},
    {"itemsize", TG_GET(PyLong_FromSize_t(t.itemsize())), nullptr, "Bytes per element.", nullptr},
    {"nbytes", TG_GET_SIZE("nbytes", kAskedNumel, PyLong_FromLongLong(t.nbytes())), nullptr,
     "Bytes of all elements together.", nullptr},
    {"grad", guarded<get_grad>, guarded<set_grad>, "The gradient accumulated by backward(), or None.", nullptr},
    {"_grad", guarded<get_grad>, guarded<set_grad>, "PyTorch's other name for grad.", nullptr},
    {"grad_fn", TG_GET_CHECKED(grad_fn_object(t)), nullptr, "The node that made this tensor, or None.", nullptr},
    {"requires_grad", TG_GET(wrap(on_tape(t).requires_grad())), guarded<set_requires_grad>,
     "Whether gradients flow here.", nullptr},
    {"is_leaf", TG_GET(wrap(t.is_leaf())), nullptr, "Whether no recorded operator made this tensor.", nullptr},
    {"retains_grad", TG_GET(retains(t)), nullptr, "Whether a tensor that is not a leaf keeps its .grad.", nullptr},
    {"output_nr", TG_GET(output_number(t)), nullptr, nullptr, nullptr},
    {"data", TG_GET_CHECKED(wrap(t.data_alias())), guarded<set_data>, "The same memory, unknown to the tape.", nullptr},
    {"_version", TG_GET(PyLong_FromUnsignedLong(t.version())), nullptr, nullptr, nullptr},
    {"_base", TG_GET(base_of(t)), nullptr, "Of a view, the tensor it looks into.", nullptr},
    {"T", guarded<get_T>, nullptr, "The view with its dimensions reversed.", nullptr},
    {"mT", guarded<get_transposed<false, true>>, nullptr, "The view with the last two dimensions swapped.", nullptr},
    {"H", guarded<get_transposed<true, false>>, nullptr, "A matrix, transposed and conjugated.", nullptr},
    {"mH", guarded<get_transposed<true, true>>, nullptr, "The last two dimensions swapped, and conjugated.", nullptr},
    {"real", guarded<get_part<0>>, guarded<set_part<0>>, "The real part; of a real tensor, itself.", nullptr},
    {"imag", guarded<get_part<1>>, guarded<set_part<1>>, "The imaginary part of a complex tensor.", nullptr},
    {"is_cpu", TG_GET(wrap(device_of(t).is_cpu())), nullptr, nullptr, nullptr},
    {"is_cuda", TG_GET(wrap(device_of(t).is_cuda())), nullptr, nullptr, nullptr},
    {"is_meta", TG_GET(wrap(t.is_meta())), nullptr, nullptr, nullptr},
    {"is_sparse", TG_GET(wrap(layout_of(t) == Layout::SparseCoo)), nullptr, "Of layout sparse_coo.", nullptr},
    {"is_sparse_csr", TG_GET(wrap(layout_of(t) == Layout::SparseCsr)), nullptr, nullptr, nullptr},
    {"_is_any_sparse", TG_GET(wrap(t.is_sparse())), nullptr, "Of any layout but strided.", nullptr},
    {"is_quantized", get_false, nullptr, nullptr, nullptr},
    {"is_mkldnn", get_false, nullptr, nullptr, nullptr},
    {"is_nested", get_false, nullptr, nullptr, nullptr},
    {"is_xla", get_false, nullptr, nullptr, nullptr},
    {"is_xpu", get_false, nullptr, nullptr, nullptr},
    {"is_ipu", get_false, nullptr, nullptr, nullptr},
    {"is_mtia", get_false, nullptr, nullptr, nullptr},
    {"is_maia", get_false, nullptr, nullptr, nullptr},
    {"is_vulkan", get_false, nullptr, nullptr, nullptr},
    {"is_mps", get_false, nullptr, nullptr, nullptr},
    {"names", TG_GET_SIZE("names", kAskedNdim, dims_names(t)), nullptr, nullptr, nullptr},
    {"name", get_none, nullptr, nullptr, nullptr},
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr, nullptr},
    {},
};

}  // namespace tapegrad::python
