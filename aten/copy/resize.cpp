#include "tapegrad/aten/copy/resize.h"

#include <cstring>

#include "tapegrad/aten/kernels_copy.h"

namespace tapegrad {

void resize_storage(const Storage& storage, size_t nbytes) {
  if (nbytes == storage->nbytes()) return;
  TG_CHECK(storage->resizable(), Runtime,
           "resize_: the storage cannot be resized: its memory belongs to another library");
  TG_CHECK(nbytes > storage->nbytes() || storage->use_count() <= 1, Runtime,
           "resize_: a storage cannot shrink while tensors see it: from {} to {} bytes", storage->nbytes(), nbytes);
  Storage bigger = allocate_storage(nbytes, storage->device());
  if (storage->device().is_cpu() && storage->nbytes() != 0 && nbytes != 0)
    std::memcpy(bigger->data(), storage->data(), std::min(nbytes, storage->nbytes()));
  TG_CHECK(!storage->device().is_cuda() || storage->nbytes() == 0, NotImplemented,
           "resize_: growing a storage on {} is not supported", storage->device());
  // The new bytes keep their own storage alive through the deleter's context.
  void* data = bigger->data();
  StorageImpl* owner = bigger.release();
  storage->replace(
      data, nbytes,
      [](void* context, void*, size_t) noexcept { Storage::reclaim(static_cast<StorageImpl*>(context)).reset(); },
      owner);
}

void resize_tensor(const Tensor& self, IntSpan sizes, std::optional<MemoryFormat> format, const char* op) {
  int64_t nbytes = checked_nbytes(sizes, self.dtype(), op);
  MemoryFormat wanted = format.value_or(MemoryFormat::Contiguous);
  TG_CHECK(wanted != MemoryFormat::Preserve, Runtime, "{}: memory format preserve is not a layout", op);
  if (self.sizes() == sizes && !format) return;
  bool channels_last = wanted == MemoryFormat::ChannelsLast;
  TG_CHECK(!channels_last || sizes.size() == 4 || sizes.size() == 5, Runtime,
           "{}: memory format channels_last needs 4 or 5 dimensions: got {}", op, format_ints(sizes));
  DimVector strides = channels_last ? channels_last_strides(sizes) : contiguous_strides(sizes);
  int64_t needed;
  bool overflow = __builtin_mul_overflow(self.storage_offset(), static_cast<int64_t>(self.itemsize()), &needed) ||
                  __builtin_add_overflow(needed, nbytes, &needed);
  TG_CHECK(!overflow, Runtime, "{}: Storage size calculation overflowed: sizes {}", op, format_ints(sizes));
  const Storage& storage = self.impl()->storage();
  if (nbytes > 0 && static_cast<size_t>(needed) > storage->nbytes())
    resize_storage(storage, static_cast<size_t>(needed));
  self.impl()->set_geometry(sizes, strides, self.storage_offset());
}

}  // namespace tapegrad
