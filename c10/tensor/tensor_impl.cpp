#include "tapegrad/c10/tensor/tensor_impl.h"

#include "tapegrad/c10/memory/object_pool.h"

namespace tapegrad {

void (*release_python_object)(void* object) noexcept = nullptr;

TensorImpl::TensorImpl(Storage storage, DType dtype, IntSpan sizes, IntSpan strides, int64_t offset)
    : storage_(std::move(storage)), offset_(offset), dtype_(dtype) {
  set_device(storage_->device());
  set_dims(sizes, strides);
}

TensorImpl::TensorImpl(Storage storage, DType dtype, IntSpan sizes) : storage_(std::move(storage)), dtype_(dtype) {
  set_device(storage_->device());
  set_contiguous_dims(sizes);
}

TensorImpl::~TensorImpl() {
  if (capacity_ != kInlineDims) delete[] heap_dims_;
}

void* TensorImpl::operator new(size_t n) { return pool_allocate(n); }
void TensorImpl::operator delete(void* p, size_t n) noexcept { pool_free(p, n); }

void TensorImpl::release_resources() noexcept {
  if (owns_python_ && release_python_object)
    if (void* object = python_.exchange(nullptr)) release_python_object(object);
  autograd_.reset();
  own_version_.reset();
  storage_.reset();
}

void TensorImpl::set_ndim(size_t n) {
  TG_CHECK(n <= kMaxDims, Runtime, "a tensor has at most {} dimensions: got {}", kMaxDims, n);
  if (n > capacity_) {
    auto* bigger = new int64_t[2 * n];
    if (capacity_ != kInlineDims) delete[] heap_dims_;
    heap_dims_ = bigger;
    capacity_ = static_cast<uint8_t>(n);
  }
  ndim_ = static_cast<uint8_t>(n);
}

void TensorImpl::set_contiguous_dims(IntSpan sizes) {
  set_ndim(sizes.size());
  int64_t* s = dims();
  int64_t* t = s + capacity_;
  int64_t stride = 1;
  int64_t n = 1;
  for (int d = ndim_ - 1; d >= 0; --d) {
    s[d] = sizes[d];
    t[d] = stride;
    n *= sizes[d];
    stride *= sizes[d] > 1 ? sizes[d] : 1;
  }
  numel_ = n;
  contiguous_ = true;
}

void TensorImpl::set_dims(IntSpan sizes, IntSpan strides) {
  TG_ASSERT(sizes.size() == strides.size());
  set_ndim(sizes.size());
  int64_t* s = dims();
  int64_t* t = s + capacity_;
  int64_t n = 1;
  int64_t expected = 1;
  bool contiguous = true;
  for (int d = ndim_ - 1; d >= 0; --d) {
    s[d] = sizes[d];
    t[d] = strides[d];
    n *= sizes[d];
    if (sizes[d] != 1) {
      contiguous &= strides[d] == expected;
      expected *= sizes[d];
    }
  }
  numel_ = n;
  contiguous_ = contiguous || n == 0;
}

void TensorImpl::set_geometry(IntSpan sizes, IntSpan strides, int64_t offset) {
  DimVector new_sizes(sizes), new_strides(strides);  // the spans may point into this object
  set_dims(new_sizes, new_strides);
  offset_ = offset;
}

void TensorImpl::set_storage(Storage storage, DType dtype) {
  storage_ = std::move(storage);
  set_device(storage_->device());
  dtype_ = dtype;
}

bool TensorImpl::is_contiguous(MemoryFormat format) const noexcept {
  if (format != MemoryFormat::ChannelsLast) return contiguous_;
  if (ndim_ != 4 && ndim_ != 5) return false;
  int64_t expected = 1;
  auto matches = [&](int d) {
    if (size(d) != 1 && stride(d) != expected) return false;
    expected *= size(d);
    return true;
  };
  if (!matches(1)) return false;
  for (int d = ndim_ - 1; d >= 2; --d)
    if (!matches(d)) return false;
  return matches(0);
}

bool TensorImpl::is_non_overlapping_and_dense() const noexcept {
  if (contiguous_) return true;
  int order[kMaxDims];
  int n = 0;
  for (int d = 0; d < ndim_; ++d)
    if (size(d) != 1) order[n++] = d;
  std::sort(order, order + n, [&](int a, int b) { return stride(a) < stride(b); });
  int64_t expected = 1;
  for (int i = 0; i < n; ++i) {
    if (stride(order[i]) != expected) return false;
    expected *= size(order[i]);
  }
  return true;
}

int64_t checked_numel(IntSpan sizes, const char* op) {
  int64_t n = 1;
  bool zero = false;
  bool overflow = false;
  for (int64_t s : sizes) {
    TG_CHECK(s >= 0, Runtime, "{}: sizes must not be negative: got {}", op, format_ints(sizes));
    zero |= s == 0;
    overflow |= __builtin_mul_overflow(n, s == 0 ? 1 : s, &n);
  }
  TG_CHECK(!overflow, Runtime,
           "{}: integer multiplication overflow: the number of elements does not fit into 63 bits: sizes {}", op,
           format_ints(sizes));
  return zero ? 0 : n;
}

int64_t checked_nbytes(IntSpan sizes, DType dtype, const char* op) {
  int64_t bytes;
  bool overflow = __builtin_mul_overflow(checked_numel(sizes, op), static_cast<int64_t>(element_size(dtype)), &bytes);
  TG_CHECK(!overflow, Runtime, "{}: Storage size calculation overflowed: sizes {}, dtype {}", op, format_ints(sizes),
           dtype);
  return bytes;
}

DimVector contiguous_strides(IntSpan sizes) {
  DimVector strides(sizes.size());
  int64_t stride = 1;
  for (int64_t d = static_cast<int64_t>(sizes.size()) - 1; d >= 0; --d) {
    strides[d] = stride;
    // What overflows would be the stride of no dimension, or of one of a tensor without elements.
    if (__builtin_mul_overflow(stride, std::max<int64_t>(sizes[d], 1), &stride) && d > 0)
      TG_THROW(Runtime, "integer multiplication overflow: the number of elements does not fit into 63 bits: sizes {}",
               format_ints(sizes));
  }
  return strides;
}

DimVector channels_last_strides(IntSpan sizes) {
  int64_t n = static_cast<int64_t>(sizes.size());
  TG_CHECK(n >= 3 && n <= 5, Runtime, "channels_last: needs 3 to 5 dimensions: got sizes {}", format_ints(sizes));
  DimVector strides(sizes.size());
  strides[1] = 1;
  int64_t stride = std::max<int64_t>(sizes[1], 1);
  for (int64_t d = n - 1; d >= 2; --d) {
    strides[d] = stride;
    stride *= std::max<int64_t>(sizes[d], 1);
  }
  strides[0] = stride;
  return strides;
}

void check_in_bounds(IntSpan sizes, IntSpan strides, int64_t offset, DType dtype, size_t nbytes, const char* op) {
  TG_CHECK(sizes.size() == strides.size(), Runtime, "{}: sizes and strides differ in length: {} and {}", op,
           format_ints(sizes), format_ints(strides));
  TG_CHECK(offset >= 0, Runtime, "{}: the storage offset must not be negative: got {}", op, offset);
  if (checked_numel(sizes, op) == 0) return;
  int64_t low = offset, high = offset;
  bool overflow = false;
  for (size_t d = 0; d < sizes.size(); ++d) {
    int64_t span;
    overflow |= __builtin_mul_overflow(sizes[d] - 1, strides[d], &span);
    int64_t& bound = span < 0 ? low : high;
    overflow |= __builtin_add_overflow(bound, span, &bound);
  }
  int64_t end;
  overflow |= __builtin_add_overflow(high, int64_t{1}, &end) ||
              __builtin_mul_overflow(end, static_cast<int64_t>(element_size(dtype)), &end);
  TG_CHECK(!overflow && low >= 0 && static_cast<uint64_t>(end) <= nbytes, Runtime,
           "{}: sizes {}, strides {}, storage offset {} and dtype {} reach outside a storage of {} bytes", op,
           format_ints(sizes), format_ints(strides), offset, dtype, nbytes);
}

}  // namespace tapegrad
