#include "tapegrad/bindings/exchange/dlpack.h"

#include <memory>

#include "tapegrad/aten/record/recorder.h"
#include "tapegrad/bindings/interpreter/errors.h"
#include "tapegrad/bindings/interpreter/held.h"
#include "tapegrad/c10/device/device_interface.h"

namespace tapegrad::python {

namespace {

// The binary interface of DLPack 1.0. Field order and widths are fixed by that standard.
struct DlDevice {
  int32_t type;
  int32_t id;
};
struct DlType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};
struct DlTensor {
  void* data;
  DlDevice device;
  int32_t ndim;
  DlType dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
struct Managed {
  DlTensor tensor;
  void* context;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  uint32_t major;
  uint32_t minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  DlTensor tensor;
};
constexpr int32_t kCpu = 1, kCuda = 2, kCudaHost = 3;
constexpr uint64_t kReadOnly = 1, kCopied = 2;
enum Code : uint8_t { kInt = 0, kUInt = 1, kFloat = 2, kBfloat = 4, kComplex = 5, kBool = 6 };
constexpr uint8_t kFloat8[] = {10, 12, 11, 13, 14};  // of DLPack 1.1, in the order of the dtypes
constexpr const char* kName = "dltensor";
constexpr const char* kNameVersioned = "dltensor_versioned";

DlType type_of(DType t) {
  const auto bits = static_cast<uint8_t>(8 * element_size(t));
  const uint8_t code = t == DType::bool_ ? kBool
                       : is_float8(t)    ? Code{kFloat8[static_cast<int>(t) - static_cast<int>(DType::float8_e4m3fn)]}
                       : is_integral(t)  ? (is_signed(t) ? kInt : kUInt)
                       : t == DType::bfloat16 ? kBfloat
                       : is_floating_point(t) ? kFloat
                                              : kComplex;
  return {code, bits, 1};
}

DType dtype_of_type(DlType type) {
  if (type.lanes == 1)
    for (DType t : kAllDTypes) {
      const DlType candidate = type_of(t);
      if (candidate.code == type.code && candidate.bits == type.bits) return t;
    }
  TG_THROW(Runtime, "from_dlpack: no dtype for type code {} with {} bits and {} lanes", static_cast<int>(type.code),
           static_cast<int>(type.bits), type.lanes);
}

// What an exported capsule keeps: the tensor and the arrays that the description points to.
template <class M>
struct Exported {
  M managed{};
  Tensor tensor;
  DimVector sizes;
  DimVector strides;
};

template <class M>
M* describe(const Tensor& t) {
  auto holder = std::make_unique<Exported<M>>();
  holder->tensor = t;
  holder->sizes = DimVector(t.sizes());
  holder->strides = DimVector(t.strides());
  const auto [type, id] = dlpack_device(t);
  record::note_host_read("DLPack");
  holder->managed.tensor = {t.data_ptr(),           {type, id}, t.ndim(), type_of(t.dtype()), holder->sizes.data(),
                            holder->strides.data(), 0};
  holder->managed.context = holder.get();
  holder->managed.deleter = [](M* m) { delete static_cast<Exported<M>*>(m->context); };
  return &holder.release()->managed;
}

template <class M>
void destroy_capsule(PyObject* capsule, const char* name) {
  if (!PyCapsule_IsValid(capsule, name)) return;  // consumed: renamed
  auto* managed = static_cast<M*>(PyCapsule_GetPointer(capsule, name));
  if (managed && managed->deleter) managed->deleter(managed);
}

// The producer may be a Python library. Its deleter is called when the memory is no longer used, not before.
template <class M>
struct Imported final : Held {
  Imported(M* m, PyRef g) : managed(m), guard(std::move(g)) {}
  ~Imported() override {
    if (taken && managed->deleter) managed->deleter(managed);
  }
  M* managed;
  PyRef guard;
  bool taken = false;
};

template <class M>
Tensor import(M* managed, bool read_only, PyRef guard) {
  const DlTensor& d = managed->tensor;
  TG_CHECK(d.device.type == kCpu || d.device.type == kCudaHost || d.device.type == kCuda, NotImplemented,
           "from_dlpack: only memory of the CPU and of CUDA devices can be taken: got device type {}", d.device.type);
  Device device;
  if (d.device.type == kCuda) {
    const int known = need_device(DeviceType::CUDA, "from_dlpack").count();
    TG_CHECK(d.device.id >= 0 && d.device.id < known, Runtime,
             "from_dlpack: there is no device cuda:{}: got {} of them", d.device.id, known);
    device = Device(DeviceType::CUDA, static_cast<int8_t>(d.device.id));
  }
  TG_CHECK(d.ndim >= 0 && d.ndim <= kMaxDims, Runtime, "from_dlpack: a tensor has at most {} dimensions: got {}",
           kMaxDims, d.ndim);
  const DType dtype = dtype_of_type(d.dtype);
  DimVector sizes(IntSpan(d.shape, static_cast<size_t>(d.ndim)));
  DimVector strides =
      d.strides ? DimVector(IntSpan(d.strides, static_cast<size_t>(d.ndim))) : contiguous_strides(sizes);
  checked_nbytes(sizes, dtype, "from_dlpack");
  int64_t last = 0;
  bool empty = false;
  for (size_t i = 0; i < sizes.size(); ++i) {
    TG_CHECK(strides[i] >= 0 || sizes[i] <= 1, Value, "from_dlpack: strides must not be negative: got {}",
             format_ints(strides));
    if (sizes[i] == 0)
      empty = true;
    else
      last += (sizes[i] - 1) * strides[i];
  }
  const size_t nbytes = empty ? 0 : static_cast<size_t>(last + 1) * element_size(dtype);
  auto held = std::make_unique<Imported<M>>(managed, std::move(guard));
  auto storage = make_intrusive<StorageImpl>(static_cast<char*>(d.data) + d.byte_offset, nbytes, device, release_held,
                                             static_cast<Held*>(held.get()));
  held.release()->taken = true;
  storage->set_resizable(false);
  storage->set_read_only(read_only);
  return Tensor(make_intrusive<TensorImpl>(std::move(storage), dtype, IntSpan(sizes), IntSpan(strides), int64_t{0}));
}

}  // namespace

std::pair<int, int> dlpack_device(const Tensor& t) {
  TG_CHECK(!t.is_meta(), Runtime, "__dlpack__: a meta tensor has no data");
  TG_CHECK(!t.is_sparse(), Runtime, "__dlpack__: a sparse tensor has no dense data\nuse to_dense()");
  if (t.is_cuda()) return {kCuda, t.device().index};
  return {kCpu, 0};
}

PyRef to_dlpack(const Tensor& t, bool versioned, bool copied) {
  const bool read_only = t.impl()->storage()->read_only();
  if (versioned) {
    auto* managed = describe<ManagedVersioned>(t);
    managed->major = 1;
    managed->minor = 0;
    managed->flags = (read_only ? kReadOnly : 0) | (copied ? kCopied : 0);
    PyRef capsule(PyCapsule_New(managed, kNameVersioned,
                                [](PyObject* c) { destroy_capsule<ManagedVersioned>(c, kNameVersioned); }));
    if (!capsule) managed->deleter(managed);
    check(capsule.get());
    return capsule;
  }
  TG_CHECK(!read_only, Runtime, "__dlpack__: a read-only tensor needs a consumer of DLPack 1.0 or newer");
  auto* managed = describe<Managed>(t);
  PyRef capsule(PyCapsule_New(managed, kName, [](PyObject* c) { destroy_capsule<Managed>(c, kName); }));
  if (!capsule) managed->deleter(managed);
  check(capsule.get());
  return capsule;
}

Tensor from_dlpack_capsule(PyObject* capsule, PyRef guard) {
  if (PyCapsule_IsValid(capsule, kNameVersioned)) {
    auto* managed = static_cast<ManagedVersioned*>(PyCapsule_GetPointer(capsule, kNameVersioned));
    TG_CHECK(managed->major == 1, Runtime, "from_dlpack: only version 1 of DLPack is known: got {}.{}", managed->major,
             managed->minor);
    Tensor t = import(managed, (managed->flags & kReadOnly) != 0, std::move(guard));
    check_status(PyCapsule_SetName(capsule, "used_dltensor_versioned"));
    return t;
  }
  TG_CHECK(PyCapsule_IsValid(capsule, kName), Runtime,
           "from_dlpack: expected an unused DLPack capsule: got {}\na capsule can be taken only once",
           PyCapsule_CheckExact(capsule) && PyCapsule_GetName(capsule) ? PyCapsule_GetName(capsule)
                                                                       : Py_TYPE(capsule)->tp_name);
  auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, kName));
  Tensor t = import(managed, false, std::move(guard));
  check_status(PyCapsule_SetName(capsule, "used_dltensor"));
  return t;
}

}  // namespace tapegrad::python
