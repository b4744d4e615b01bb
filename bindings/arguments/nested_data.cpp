#include "tapegrad/bindings/arguments/nested_data.h"

#include <cmath>
#include <limits>
#include <string>

#include "tapegrad/bindings/arguments/args.h"
#include "tapegrad/bindings/arguments/fast_call.h"
#include "tapegrad/bindings/exchange/numpy.h"
#include "tapegrad/bindings/record/followed.h"
#include "tapegrad/c10/threads/serial_for.h"

namespace tapegrad::python {

namespace {

bool is_leaf_array(PyObject* o) {
  if (is_tensor(o)) return unwrap(o).ndim() == 0;
  return is_numpy_scalar(o);
}

bool is_nested(PyObject* o) {
  if (PyList_Check(o) || PyTuple_Check(o)) return true;
  if (PyFloat_Check(o) || PyLong_Check(o) || PyComplex_Check(o) || PyUnicode_Check(o) || is_leaf_array(o)) return false;
  if (is_numpy_array(o)) {
    PyRef ndim = own(PyObject_GetAttrString(o, "ndim"));
    return PyLong_AsLong(ndim.get()) > 0;
  }
  return PySequence_Check(o) != 0;
}

// The length reported by a user-defined sequence.
int64_t length_of(PyObject* o) {
  const Py_ssize_t n = PySequence_Length(o);
  check_status(n < 0 ? -1 : 0);
  return n;
}

}  // namespace

PyRef items_of(PyObject* o) {
  if (PyTuple_Check(o) || PyList_Check(o) || !PySequence_Check(o)) return own(PySequence_Tuple(o));
  const int64_t n = length_of(o);
  PyRef list = own(PyList_New(0));
  for (int64_t i = 0; i < n; ++i) {
    const PyRef item = own(PySequence_GetItem(o, i));
    check_status(PyList_Append(list.get(), item.get()));
  }
  return own(PyList_AsTuple(list.get()));
}

namespace {

// One level of the data, safe against lists that change while their elements are converted.
class Level {
 public:
  explicit Level(PyObject* o) : items_(PyList_Check(o) || PyTuple_Check(o) ? PyRef::borrow(o) : items_of(o)) {}
  int64_t size() const {
    return PyList_Check(items_.get()) ? PyList_GET_SIZE(items_.get()) : PyTuple_GET_SIZE(items_.get());
  }
  // Null when the list has become shorter.
  PyObject* borrowed(int64_t i) const {
    if (i >= size()) return nullptr;
    return PyList_Check(items_.get()) ? PyList_GET_ITEM(items_.get(), i) : PyTuple_GET_ITEM(items_.get(), i);
  }

 private:
  PyRef items_;
};

std::string path_text(const DimVector& path) {
  std::string text = "data";
  for (int64_t i : path) text += "[" + std::to_string(i) + "]";
  return text;
}

[[noreturn]] TG_COLD void ragged(const DimVector& path, int64_t expected, const std::string& got) {
  TG_THROW(Value, "tensor: ragged list: expected sequence of length {} at {} (dimension {}): got {}", expected,
           path_text(path), path.size(), got);
}

// A number where others are sequences.
[[noreturn]] TG_COLD void not_a_sequence(const DimVector& path, int64_t expected, PyObject* got) {
  TG_THROW(Type, "tensor: not a sequence: expected one of length {} at {} (dimension {}): got {}", expected,
           path_text(path), path.size(), Py_TYPE(got)->tp_name);
}

DimVector infer_sizes(PyObject* data) {
  DimVector sizes;
  PyRef current = PyRef::borrow(data);
  while (is_nested(current.get())) {
    TG_CHECK(sizes.size() < kMaxDims, Value,
             "tensor: too many dimensions: {} is nested deeper than {} levels\ndoes it contain itself?",
             Py_TYPE(data)->tp_name, kMaxDims);
    sizes.push_back(length_of(current.get()));
    if (sizes.back() == 0) break;
    current = own(PySequence_GetItem(current.get(), 0));
  }
  return sizes;
}

[[noreturn]] TG_COLD void not_a_number(PyObject* o, const DimVector& path) {
  TG_THROW(Type, "tensor: invalid data type at {}: expected a number, got {}", path_text(path), Py_TYPE(o)->tp_name);
}

DType leaf_dtype(PyObject* o, const DimVector& path) {
  if (PyFloat_CheckExact(o)) return default_dtype();
  if (PyBool_Check(o)) return DType::bool_;
  if (PyLong_CheckExact(o)) return DType::int64;
  if (is_tensor(o)) {
    TG_CHECK(unwrap(o).numel() == 1, Value,
             "tensor: only tensors with one element can stand for a number: got shape {} at {}",
             format_ints(unwrap(o).sizes()), path_text(path));
    return unwrap(o).dtype();
  }
  if (is_numpy_scalar(o) || is_numpy_array(o)) {
    const std::optional<DType> dtype = array_dtype(o);
    if (!dtype) not_a_number(o, path);
    return *dtype;
  }
  if (PyFloat_Check(o)) return default_dtype();
  if (PyLong_Check(o)) {
    note_followed(o, false);
    return DType::int64;
  }
  if (PyComplex_Check(o)) return to_complex(default_dtype());
  if (PyIndex_Check(o)) return DType::int64;
  not_a_number(o, path);
}

struct DTypeScan {
  const DimVector& sizes;
  DimVector path;
  std::optional<DType> found;
  WorkCount done{};

  void leaf(PyObject* o) {
    const DType t = leaf_dtype(o, path);
    found = found && *found != t ? promote_types(*found, t) : t;
  }
  void visit(PyObject* o, size_t depth) {
    if (depth == sizes.size()) return leaf(o);
    if (!is_nested(o)) not_a_sequence(path, sizes[depth], o);
    const Level level(o);
    for (int64_t i = 0; i < level.size(); ++i) {
      done();
      PyObject* item = level.borrowed(i);
      if (!item) break;  // shortened meanwhile
      // Runs of plain floats and ints, the usual case, need only a type check.
      if (depth + 1 == sizes.size() && found &&
          ((PyFloat_CheckExact(item) && *found == default_dtype()) ||
           (PyLong_CheckExact(item) && *found == DType::int64)))
        continue;
      const PyRef keep = PyRef::borrow(item);
      path.push_back(i);
      visit(item, depth + 1);
      path.erase(path.size() - 1);
    }
  }
};

Scalar leaf_value(PyObject* o, const DimVector& path) {
  if (PyFloat_CheckExact(o)) return Scalar(PyFloat_AS_DOUBLE(o));
  if (is_tensor(o)) {
    TG_CHECK(unwrap(o).numel() == 1, Value,
             "tensor: only tensors with one element can stand for a number: got shape {} at {}",
             format_ints(unwrap(o).sizes()), path_text(path));
    return unwrap(o).item();
  }
  if (is_numpy_array(o)) {  // of no dimensions
    PyRef number = call_method(o, "item");
    return to_scalar(number.get(), {"tensor", "data"});
  }
  if (is_number(o) || PyIndex_Check(o)) return to_scalar(o, {"tensor", "data"});
  not_a_number(o, path);
}

template <class T>
T convert(const Scalar& value, const DimVector& path) {
  if constexpr (!is_complex_type<compute_t<T>> && !std::is_same_v<T, bool>)
    TG_CHECK(!value.is_complex(), Type, "tensor: a complex number at {} does not fit into {}", path_text(path),
             dtype_of_v<T>);
  if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
    using Limits = std::numeric_limits<T>;
    if (value.is_floating_point()) {
      const double v = value.to<double>();
      TG_CHECK(std::isfinite(v), Value, "tensor: {} at {} cannot be converted to {}", v, path_text(path),
               dtype_of_v<T>);
      TG_CHECK(v > static_cast<double>(Limits::min()) - 1.0 && v < static_cast<double>(Limits::max()) + 1.0, Runtime,
               "tensor: {} at {} does not fit into {}", v, path_text(path), dtype_of_v<T>);
    } else if constexpr (std::is_same_v<T, uint64_t>) {
      TG_CHECK(value.kind() == Scalar::Kind::UInt || value.to<int64_t>() >= 0, Overflow,
               "tensor: {} at {} does not fit into {}", to_string(value), path_text(path), dtype_of_v<T>);
      return value.to<uint64_t>();
    } else {
      TG_CHECK(value.kind() != Scalar::Kind::UInt, Overflow, "tensor: {} at {} does not fit into {}", to_string(value),
               path_text(path), dtype_of_v<T>);
      const auto v = value.to<int64_t>();
      // As PyTorch: -1 becomes the largest uint8.
      const int64_t lowest = std::is_unsigned_v<T> ? -static_cast<int64_t>(Limits::max()) : Limits::min();
      TG_CHECK(v >= lowest && v <= static_cast<int64_t>(Limits::max()), Runtime,
               "tensor: {} at {} does not fit into {}", v, path_text(path), dtype_of_v<T>);
      return static_cast<T>(v);
    }
  }
  return value.to<T>();
}

template <class T>
struct Fill {
  const DimVector& sizes;
  T* out;
  DimVector path;
  WorkCount done{};

  void store(PyObject* o) {
    if constexpr (!std::is_integral_v<T> || std::is_same_v<T, bool>) {  // a number of any length has a nearest double
      int overflow = 0;
      if (PyLong_Check(o)) PyLong_AsLongLongAndOverflow(o, &overflow);
      if (TG_UNLIKELY(overflow != 0)) {
        *out++ = convert<T>(Scalar(to_double(o, {"tensor", "data"})), path);
        return;
      }
    }
    *out++ = convert<T>(leaf_value(o, path), path);
  }
  void visit(PyObject* o, size_t depth) {
    if (depth == sizes.size()) {
      if (is_nested(o))
        TG_THROW(Value, "tensor: ragged list: expected a number at {}: got {}", path_text(path), Py_TYPE(o)->tp_name);
      return store(o);
    }
    if (!is_nested(o)) not_a_sequence(path, sizes[depth], o);
    const Level level(o);
    if (level.size() != sizes[depth]) ragged(path, sizes[depth], std::to_string(level.size()));
    const bool last = depth + 1 == sizes.size();
    for (int64_t i = 0; i < sizes[depth]; ++i) {
      done();
      PyObject* item = level.borrowed(i);
      if (!item) ragged(path, sizes[depth], std::to_string(level.size()));  // shortened meanwhile
      if constexpr (std::is_floating_point_v<T>) {
        if (last && PyFloat_CheckExact(item)) {
          *out++ = static_cast<T>(PyFloat_AS_DOUBLE(item));
          continue;
        }
      }
      PyRef keep = PyRef::borrow(item);
      path.push_back(i);
      visit(item, depth + 1);
      path.erase(path.size() - 1);
    }
    if (level.size() != sizes[depth]) ragged(path, sizes[depth], std::to_string(level.size()));
  }
};

}  // namespace

Tensor tensor_from_nested(PyObject* data, std::optional<DType> dtype) {
  TG_CHECK(!PyUnicode_Check(data), Type, "tensor: expected numbers: got str");
  TG_CHECK(data != Py_None, Type, "tensor: expected numbers: got None");
  const DimVector sizes = infer_sizes(data);
  if (!dtype) {
    DTypeScan scan{sizes, {}, std::nullopt};
    scan.visit(data, 0);
    dtype = scan.found.value_or(default_dtype());
  }
  Tensor result = empty_tensor(sizes, *dtype);
  dispatch_stored(*dtype, [&]<class T>() { Fill<T>{sizes, static_cast<T*>(result.data_ptr()), {}}.visit(data, 0); });
  return result;
}

}  // namespace tapegrad::python
