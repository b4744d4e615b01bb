#include "tapegrad/aten/tensor.h"

#include <atomic>
#include <bit>
#include <memory>
#include <numeric>

#include "tapegrad/aten/autograd_interface.h"
#include "tapegrad/aten/batch/batched_tensor.h"
#include "tapegrad/aten/functions_copy.h"
#include "tapegrad/aten/iterate/convert/stored.h"
#include "tapegrad/aten/record/recording.h"
#include "tapegrad/aten/tensor_kind.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/memory/available_memory.h"
#include "tapegrad/c10/memory/object_pool.h"
#include "tapegrad/c10/tensor/checked_int.h"

namespace tapegrad {

int64_t Tensor::size(int64_t d) const {
  TG_CHECK(impl_->ndim() > 0, Index, "size: a tensor without dimensions has no sizes: got dimension {}", d);
  return impl_->size(static_cast<int>(wrap_dim(d, impl_->ndim(), "size")));
}

int64_t Tensor::stride(int64_t d) const {
  TG_CHECK(impl_->ndim() > 0, Index, "stride: a tensor without dimensions has no strides: got dimension {}", d);
  return impl_->stride(static_cast<int>(wrap_dim(d, impl_->ndim(), "stride")));
}

Scalar Tensor::item() const {
  TG_CHECK(defined(), Runtime, "item: the tensor is undefined");
  if (TG_UNLIKELY(is_batched())) batch::throw_needs_values("item");
  TG_CHECK(numel() == 1, Runtime, "item: a tensor with {} elements cannot be converted to a number: its sizes are {}",
           numel(), format_ints(sizes()));
  if (!is_wrapped_number()) record::note_read("item", *this);
  if (TG_UNLIKELY(is_cuda())) return raw::_to_copy(*this, dtype(), Device(), false, std::nullopt).item();
  TG_CHECK(device().is_cpu(), Runtime, "item: a tensor on {} has no value in the memory of the host", device());
  const void* p = data_ptr();
  return dispatch_stored(dtype(), [&]<class T>() {
    const T value = seen(*static_cast<const T*>(p));
    const auto wide = static_cast<compute_t<T>>(value);
    if constexpr (is_complex_type<compute_t<T>>)
      return Scalar(complex128_t(wide));
    else
      return Scalar(wide);
  });
}

namespace {
constinit const AutogradInterface* tape = nullptr;  // written while the library is loaded
}

void set_autograd_interface(const AutogradInterface* interface) noexcept { tape = interface; }

const Tensor& Tensor::set_requires_grad(bool value) const {
  tape->set_requires_grad(*this, value);
  return *this;
}
// The tape knows a sparse tensor by its values.
bool Tensor::is_leaf() const noexcept { return (impl_->autograd() == nullptr && !is_sparse()) || tape->is_leaf(*this); }
Tensor Tensor::grad() const { return impl_->autograd() == nullptr && !is_sparse() ? Tensor() : tape->grad(*this); }
void Tensor::set_grad(const Tensor& grad) const { tape->set_grad(*this, grad); }
void Tensor::retain_grad() const { tape->retain_grad(*this); }
void Tensor::backward(const Tensor& gradient, bool retain_graph, bool create_graph) const {
  tape->backward(*this, gradient, retain_graph, create_graph);
}

Tensor Tensor::detach() const {
  if (const TensorKind* kind = kind_of(*this)) return kind->detach(*this);
  return alias_tensor(*this, sizes(), strides(), storage_offset());
}

Tensor Tensor::data_alias() const {
  Tensor t = detach();
  t.impl()->detach_version();
  return t;
}

namespace {

// Wrapped numbers are immutable and programs use few of them again and again, so each thread keeps the last one of
// every slot. A slot is reused only if its tensor was not written to.
struct NumberCache {
  static constexpr size_t kSlots = 64;
  struct Slot {
    TensorImpl* tensor;
    uint64_t bits;
    uint64_t imaginary;
    Scalar::Kind kind;
  };
  Slot slots[kSlots];
};
// What a thread starts with, never written to. The caches are on the heap: space for thread-local variables that
// are reached without a call is small in a library that is loaded late.
constinit NumberCache no_numbers{};
constinit thread_local NumberCache* number_cache = &no_numbers;
constinit thread_local bool numbers_closed = false;

// Its destructor, at the end of the thread, drops what the cache holds. A separate object, because a
// thread-local one with a destructor costs a check at each use.
struct NumberCacheOwner {
  std::unique_ptr<NumberCache> cache = std::make_unique<NumberCache>();
  NumberCacheOwner() { number_cache = cache.get(); }
  ~NumberCacheOwner() {
    numbers_closed = true;
    number_cache = &no_numbers;
    for (auto& slot : cache->slots) intrusive_ptr<TensorImpl>::reclaim(std::exchange(slot.tensor, nullptr)).reset();
  }
};

void free_number(void*, void* data, size_t) noexcept { pool_free(data, sizeof(complex128_t)); }

Tensor make_number(const Scalar& s) {
  DType dtype = s.exact_dtype();
  void* data = pool_allocate(sizeof(complex128_t));
  dispatch_stored(dtype, [&]<class T>() { *static_cast<T*>(data) = s.to<T>(); });
  auto storage = make_intrusive<StorageImpl>(data, element_size(dtype), Device(), free_number, nullptr);
  storage->set_resizable(false);
  auto impl = make_intrusive<TensorImpl>(std::move(storage), dtype, IntSpan());
  impl->set_wrapped_number(true);
  return Tensor(std::move(impl));
}

TG_NOINLINE Tensor fill_slot(size_t index, const Scalar& s, uint64_t bits, uint64_t imaginary) {
  Tensor number = make_number(s);
  if (numbers_closed) return number;
  require_thread_memory<NumberCacheOwner>();
  static thread_local NumberCacheOwner owner;
  auto& slot = owner.cache->slots[index];
  intrusive_ptr<TensorImpl>::reclaim(slot.tensor).reset();
  slot = {intrusive_ptr<TensorImpl>(number.ptr()).release(), bits, imaginary, s.kind()};
  return number;
}

}  // namespace

Tensor wrapped_number(const Scalar& s) {
  uint64_t bits, imaginary = 0;
  if (s.is_integral()) {
    bits = s.to<uint64_t>();
  } else {
    bits = std::bit_cast<uint64_t>(s.to<double>());
    if (s.is_complex()) imaginary = std::bit_cast<uint64_t>(s.to<complex128_t>().imag());
  }
  uint64_t hash = (bits ^ imaginary ^ (static_cast<uint64_t>(s.kind()) << 32)) * 0x9e3779b97f4a7c15u;
  const size_t index = hash >> 58;
  const auto& slot = number_cache->slots[index];
  static_assert(NumberCache::kSlots == 1u << 6);
  TensorImpl* t = slot.tensor;
  if (TG_LIKELY(t != nullptr && slot.bits == bits && slot.kind == s.kind() && slot.imaginary == imaginary &&
                t->is_wrapped_number() && t->version() == 0 && t->autograd() == nullptr))
    return Tensor(intrusive_ptr<TensorImpl>(t));
  return fill_slot(index, s, bits, imaginary);
}

Tensor Operand::wrap(const Scalar& s) { return wrapped_number(s); }

namespace {
// Memory for something on the device of a batched tensor; without a vmap going on, that device has none.
Device memory_device(Device d) {
  return TG_UNLIKELY(d.is_batched() && (modes() & kModeBatch)) ? batch::level_device(d) : d;
}
}  // namespace

Tensor empty_tensor(IntSpan sizes, DType dtype, Device device) {
  device = memory_device(device);
  int64_t nbytes = static_cast<int64_t>(element_size(dtype));
  bool small = true;  // neither negative nor near overflow
  for (const int64_t s : sizes) {
    small &= static_cast<uint64_t>(s) < (1u << 24) && nbytes < (int64_t{1} << 38);
    nbytes = static_cast<int64_t>(static_cast<uint64_t>(nbytes) * static_cast<uint64_t>(s));
  }
  if (TG_UNLIKELY(!small)) nbytes = checked_nbytes(sizes, dtype, "empty");
  auto impl = make_intrusive<TensorImpl>(allocate_storage(static_cast<size_t>(nbytes), device), dtype, sizes);
  if (TG_UNLIKELY(modes() & kModeInference)) impl->set_inference(true);
  return Tensor(std::move(impl));
}

Tensor empty_tensor(const TensorSpec& spec) {
  if (spec.strides.empty()) return empty_tensor(spec.sizes, spec.dtype, spec.device);
  TG_CHECK(spec.sizes.size() == spec.strides.size(), Runtime,
           "empty_strided: sizes and strides differ in length: {} and {}", format_ints(spec.sizes),
           format_ints(spec.strides));
  CheckedInt last = -1;  // offset of the last element
  if (checked_numel(spec.sizes, "empty_strided") > 0) {
    last = 0;
    for (size_t d = 0; d < spec.sizes.size(); ++d) {
      TG_CHECK(spec.strides[d] >= 0, Runtime, "empty_strided: strides must not be negative: got {}",
               format_ints(spec.strides));
      last += CheckedInt(spec.sizes[d] - 1) * spec.strides[d];
    }
  }
  const CheckedInt nbytes = (last + 1) * static_cast<int64_t>(element_size(spec.dtype));
  TG_CHECK(nbytes.fits(), Runtime, "empty_strided: the number of bytes does not fit into 63 bits: sizes {}, strides {}",
           format_ints(spec.sizes), format_ints(spec.strides));
  auto impl =
      make_intrusive<TensorImpl>(allocate_storage(static_cast<size_t>(nbytes.value()), memory_device(spec.device)),
                                 spec.dtype, spec.sizes, spec.strides, 0);
  if (TG_UNLIKELY(modes() & kModeInference)) impl->set_inference(true);
  return Tensor(std::move(impl));
}

Tensor alias_tensor(const Tensor& base, IntSpan sizes, IntSpan strides, int64_t offset) {
  TG_CHECK(!base.is_sparse(), NotImplemented, "a sparse tensor has no views\nuse to_dense()");
  if (TG_UNLIKELY(base.is_batched())) return batch::alias(base, {sizes, strides, offset});
  const TensorImpl& from = *base.impl();
  auto impl = make_intrusive<TensorImpl>(from.storage(), from.dtype(), sizes, strides, offset);
  impl->share_version(from);
  if (TG_UNLIKELY(from.is_inference())) impl->set_inference(true);
  return Tensor(std::move(impl));
}

Tensor alias_tensor(const Tensor& base, const ViewSpec& view) {
  if (TG_UNLIKELY(base.is_batched())) return batch::alias(base, view);
  Tensor alias = alias_tensor(base, view.sizes, view.strides, view.offset);
  if (view.dtype) alias.impl()->set_storage(Storage(base.impl()->storage()), *view.dtype);
  return alias;
}

int64_t wrap_dim(int64_t d, int64_t ndim, const char* op) {
  int64_t n = std::max<int64_t>(ndim, 1);
  TG_CHECK(d >= -n && d < n, Index, "{}: Dimension out of range (expected to be in range of [{}, {}], but got {})", op,
           -n, n - 1, d);
  return d < 0 ? d + n : d;
}

uint64_t dim_mask(OptionalInts dims, int64_t ndim, const char* op) {
  if (!dims || dims->empty()) return ndim >= 64 ? ~uint64_t{0} : (uint64_t{1} << ndim) - 1;
  uint64_t mask = 0;
  for (int64_t d : *dims) {
    uint64_t bit = uint64_t{1} << wrap_dim(d, ndim, op);
    TG_CHECK((mask & bit) == 0, Runtime, "{}: dimension {} appears multiple times in the list of dims: {}", op, d,
             format_ints(*dims));
    mask |= bit;
  }
  return mask;
}

namespace {
[[noreturn]] TG_COLD void throw_no_broadcast(IntSpan a, IntSpan b, size_t from_end, const char* op) {
  int64_t x = a[a.size() - from_end], y = b[b.size() - from_end];
  if (from_end == 1)
    TG_THROW(Runtime, "{}: shapes {} and {} do not broadcast: last sizes are {} and {}", op, format_ints(a),
             format_ints(b), x, y);
  TG_THROW(Runtime, "{}: shapes {} and {} do not broadcast: sizes at dimension -{} are {} and {}", op, format_ints(a),
           format_ints(b), from_end, x, y);
}
}  // namespace

DimVector broadcast_sizes(IntSpan a, IntSpan b, const char* op) {
  const bool b_is_longer = a.size() < b.size();
  const IntSpan longer = b_is_longer ? b : a, shorter = b_is_longer ? a : b;
  DimVector r(longer);
  for (size_t i = 1; i <= shorter.size(); ++i) {
    const int64_t x = longer[longer.size() - i], y = shorter[shorter.size() - i];
    if (x != y && x != 1 && y != 1) throw_no_broadcast(a, b, i, op);
    if (x == 1) r[longer.size() - i] = y;
  }
  return r;
}

// Exact for pairs of dimensions: elements (i, 0) and (0, j) coincide for some i, j in range. Overlaps that
// need three dimensions at once are not seen; no view operator makes one.
bool has_internal_overlap(const Tensor& t) {
  const TensorImpl& impl = *t.impl();
  if (impl.is_contiguous() || impl.numel() <= 1) return false;
  int n = impl.ndim();
  for (int i = 0; i < n; ++i) {
    if (impl.size(i) == 1) continue;
    int64_t si = std::abs(impl.stride(i));
    if (si == 0) return true;
    for (int j = 0; j < i; ++j) {
      if (impl.size(j) == 1) continue;
      int64_t sj = std::abs(impl.stride(j));
      if (sj == 0) return true;
      int64_t g = std::gcd(si, sj);
      if (sj / g < impl.size(i) && si / g < impl.size(j)) return true;
    }
  }
  return false;
}

namespace {
std::atomic<DType> the_default_dtype{DType::float32};
std::atomic<Device> the_default_device{Device()};
static_assert(std::atomic<Device>::is_always_lock_free);
}  // namespace

DType default_dtype() noexcept { return the_default_dtype.load(std::memory_order_relaxed); }

void set_default_dtype(DType t) {
  TG_CHECK(is_floating_point(t), Type, "set_default_dtype: only floating-point types can be the default: got {}", t);
  the_default_dtype.store(t, std::memory_order_relaxed);
}

Device default_device() noexcept { return the_default_device.load(std::memory_order_relaxed); }
void set_default_device(Device d) { the_default_device.store(d, std::memory_order_relaxed); }

}  // namespace tapegrad
