#include "tapegrad/bindings/exchange/numpy.h"

#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/bindings/interpreter/errors.h"
#include "tapegrad/bindings/interpreter/held.h"
#include "tapegrad/bindings/tensor/tensor_object.h"

#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define NPY_TARGET_VERSION NPY_1_23_API_VERSION
#include <numpy/arrayobject.h>

#include <memory>
#include <string>

namespace tapegrad::python {

namespace {

// Dtypes, NumPy's numbers of types, and the letters of `struct`. The usual ones first, as they are
// looked through; of several numbers for one dtype arrays get the first.
struct ElementType {
  int number;
  DType dtype;
  const char* format = nullptr;
};
// C's int, long and long long are distinct to NumPy whatever their sizes.
constexpr DType kLong = sizeof(long) == 4 ? DType::int32 : DType::int64;
constexpr DType kUnsignedLong = sizeof(long) == 4 ? DType::uint32 : DType::uint64;
// clang-format off
constexpr ElementType kElementTypes[] = {
    {NPY_FLOAT32, DType::float32, "f"}, {NPY_FLOAT64, DType::float64, "d"}, {NPY_INT64, DType::int64, "q"},
    {NPY_INT32, DType::int32, "i"}, {NPY_UINT8, DType::uint8, "B"}, {NPY_BOOL, DType::bool_, "?"},
    {NPY_FLOAT16, DType::float16, "e"}, {NPY_INT8, DType::int8, "b"}, {NPY_INT16, DType::int16, "h"},
    {NPY_UINT16, DType::uint16, "H"}, {NPY_UINT32, DType::uint32, "I"}, {NPY_UINT64, DType::uint64, "Q"},
    {NPY_COMPLEX64, DType::complex64, "Zf"}, {NPY_COMPLEX128, DType::complex128, "Zd"},
    {NPY_INT, DType::int32}, {NPY_LONG, kLong}, {NPY_LONGLONG, DType::int64},
    {NPY_UINT, DType::uint32}, {NPY_ULONG, kUnsignedLong}, {NPY_ULONGLONG, DType::uint64},
};
// clang-format on
static_assert(sizeof(int) == 4 && sizeof(long long) == 8);

std::optional<DType> from_type_number(int number) noexcept {
  for (const ElementType& e : kElementTypes)
    if (e.number == number) return e.dtype;
  return std::nullopt;
}

const ElementType* element_type(DType t) noexcept {
  for (const ElementType& e : kElementTypes)
    if (e.dtype == t) return &e;
  return nullptr;
}

int to_type_number(DType t) {
  const ElementType* e = element_type(t);
  TG_CHECK(e, Type, "numpy: NumPy has no type for {}: convert first, with .float()", t);
  return e->number;
}

struct HeldArray final : Held {
  explicit HeldArray(PyObject* o) : array(PyRef::borrow(o)), guard(resize_guard(o)) {}
  PyRef array;
  PyRef guard;
};

std::string type_text(PyArrayObject* array) {
  PyRef text(PyObject_Str(reinterpret_cast<PyObject*>(PyArray_DESCR(array))));
  const char* utf8 = text ? PyUnicode_AsUTF8(text.get()) : nullptr;
  if (!utf8) PyErr_Clear();
  return utf8 ? utf8 : "?";
}

}  // namespace

bool init_numpy() noexcept { return _import_array() == 0; }

const char* buffer_format(DType t) noexcept {
  const ElementType* e = element_type(t);
  return e ? e->format : nullptr;
}

bool is_numpy_scalar(PyObject* o) noexcept { return PyArray_IsScalar(o, Number) || PyArray_IsScalar(o, Bool); }
bool is_numpy_array(PyObject* o) noexcept { return PyArray_Check(o); }

std::optional<Scalar> numpy_scalar(PyObject* o) noexcept {
  if (PyArray_IsScalar(o, Bool)) return Scalar(PyObject_IsTrue(o) == 1);
  if (!PyArray_IsScalar(o, Number)) return std::nullopt;
  if (PyArray_IsScalar(o, Integer)) {
    PyRef index(PyNumber_Index(o));
    int overflow = 0;
    const long long value = index ? PyLong_AsLongLongAndOverflow(index.get(), &overflow) : 0;
    if (index && overflow > 0) return Scalar(PyLong_AsUnsignedLongLong(index.get()));  // numpy.uint64
    if (!index || overflow) {
      PyErr_Clear();
      return std::nullopt;
    }
    return Scalar(value);
  }
  if (PyArray_IsScalar(o, ComplexFloating)) {
    const Py_complex z = PyComplex_AsCComplex(o);
    if (PyErr_Occurred()) {
      PyErr_Clear();
      return std::nullopt;
    }
    return Scalar(complex128_t(z.real, z.imag));
  }
  const double value = PyFloat_AsDouble(o);
  if (value == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    return std::nullopt;
  }
  return Scalar(value);
}

std::optional<DType> array_dtype(PyObject* o) noexcept {
  if (PyArray_Check(o)) return from_type_number(PyArray_TYPE(reinterpret_cast<PyArrayObject*>(o)));
  if (!is_numpy_scalar(o)) return std::nullopt;
  PyRef descr(reinterpret_cast<PyObject*>(PyArray_DescrFromScalar(o)));
  if (!descr) {
    PyErr_Clear();
    return std::nullopt;
  }
  return from_type_number(reinterpret_cast<PyArray_Descr*>(descr.get())->type_num);
}

PyRef resize_guard(PyObject* o) {
  while (PyMemoryView_Check(o) && PyMemoryView_GET_BASE(o)) o = PyMemoryView_GET_BASE(o);
  if (!PyArray_Check(o)) return PyRef();
  auto* owner = reinterpret_cast<PyArrayObject*>(o);
  while (PyArray_BASE(owner) && PyArray_Check(PyArray_BASE(owner)))
    owner = reinterpret_cast<PyArrayObject*>(PyArray_BASE(owner));
  return own(PyWeakref_NewRef(reinterpret_cast<PyObject*>(owner), nullptr));
}

namespace {

Storage storage_over(PyArrayObject* array, size_t nbytes, bool read_only) {
  std::unique_ptr<Held> held = std::make_unique<HeldArray>(reinterpret_cast<PyObject*>(array));
  auto storage = make_intrusive<StorageImpl>(PyArray_DATA(array), nbytes, Device(), release_held, held.get());
  held.release();
  storage->set_resizable(false);
  storage->set_read_only(read_only);
  return storage;
}

}  // namespace

bool warns_always = false;

Tensor tensor_from_array(PyObject* o, bool warn) {
  TG_CHECK(PyArray_Check(o), Type, "from_numpy: expected a numpy.ndarray: got {}", Py_TYPE(o)->tp_name);
  auto* array = reinterpret_cast<PyArrayObject*>(o);
  const std::optional<DType> dtype = from_type_number(PyArray_TYPE(array));
  TG_CHECK(dtype, Type,
           "from_numpy: tensors have no type for numpy's {}: supported are float64, float32, float16, complex64, "
           "complex128, int64, int32, int16, int8, uint64, uint32, uint16, uint8 and bool",
           type_text(array));
  TG_CHECK(PyArray_ISNOTSWAPPED(array), Value,
           "from_numpy: the array is in foreign byte order ({})\nconvert it with "
           "array.astype(array.dtype.newbyteorder(\"=\"))",
           type_text(array));
  const auto itemsize = static_cast<int64_t>(element_size(*dtype));
  DimVector sizes;
  DimVector strides;
  int64_t last = 0;  // element with the highest address
  bool empty = false;
  for (int d = 0; d < PyArray_NDIM(array); ++d) {
    const int64_t size = PyArray_DIM(array, d);
    int64_t stride = PyArray_STRIDE(array, d);
    if (size > 1) {
      TG_CHECK(stride >= 0, Value, "from_numpy: strides must not be negative: got {}\nmake a copy with array.copy()",
               stride);
      TG_CHECK(stride % itemsize == 0, Value,
               "from_numpy: strides must be multiples of the element size {}: got {}\nmake a copy with array.copy()",
               itemsize, stride);
    } else if (stride < 0 || stride % itemsize) {
      stride = itemsize;
    }
    sizes.push_back(size);
    strides.push_back(stride / itemsize);
    if (size == 0)
      empty = true;
    else
      last += (size - 1) * (stride / itemsize);
  }
  TG_CHECK(reinterpret_cast<uintptr_t>(PyArray_DATA(array)) % std::min<size_t>(element_size(*dtype), 8) == 0 || empty,
           Value, "from_numpy: the array's memory is not aligned to its elements\nmake a copy with array.copy()");
  const bool writable = PyArray_ISWRITEABLE(array);
  static bool warned = false;
  if (!writable && warn && (!warned || warns_always)) {
    warned = true;
    warn_user(
        PyExc_UserWarning,
        "from_numpy: the array is non-writable: writing to the tensor raises an error. Copy the array, or make it "
        "writable, if the tensor is to be written to");
  }
  const size_t nbytes = empty ? 0 : static_cast<size_t>((last + 1) * itemsize);
  return Tensor(make_intrusive<TensorImpl>(storage_over(array, nbytes, !writable), *dtype, IntSpan(sizes),
                                           IntSpan(strides), int64_t{0}));
}

PyRef array_from_tensor(PyObject* o) {
  const Tensor& t = unwrap(o);
  npy_intp sizes[kMaxDims];
  npy_intp strides[kMaxDims];
  const auto itemsize = static_cast<int64_t>(t.itemsize());
  TG_CHECK(t.ndim() <= NPY_MAXDIMS, Runtime, "numpy: arrays have at most {} dimensions: got {}", NPY_MAXDIMS, t.ndim());
  for (int d = 0; d < t.ndim(); ++d) {
    sizes[d] = t.sizes()[static_cast<size_t>(d)];
    strides[d] = t.strides()[static_cast<size_t>(d)] * itemsize;
  }
  const int flags = NPY_ARRAY_ALIGNED | (t.impl()->storage()->read_only() ? 0 : NPY_ARRAY_WRITEABLE);
  static char nothing;  // NumPy allocates when it is given no address
  record::note_host_read("numpy");
  void* data = t.data_ptr() ? t.data_ptr() : &nothing;
  PyRef array = own(PyArray_New(&PyArray_Type, t.ndim(), sizes, to_type_number(t.dtype()), strides, data,
                                static_cast<int>(itemsize), flags, nullptr));
  Py_INCREF(o);
  check_status(PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.get()), o));
  t.impl()->storage()->set_resizable(false);  // the array would be left pointing into freed memory
  return array;
}

}  // namespace tapegrad::python
