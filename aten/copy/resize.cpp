#include "tapegrad/aten/copy/resize.h"

#include <sys/mman.h>

#include <cstring>
#include <mutex>
#include <unordered_map>

#include "tapegrad/aten/create/unset.h"
#include "tapegrad/aten/kernels_copy.h"

namespace tapegrad {

namespace {

// A storage that was made shorter has tensors that still look at what went. Its bytes lie at the start of address space
// of the old size: what went costs no memory, reads as zeros and may be written to, as no PyTorch program does.
struct ShortStorages {
  std::mutex mutex;
  std::unordered_map<const void*, size_t> sizes;  // of the address space, by its start
};
ShortStorages& short_storages() {
  static auto* all = new ShortStorages;  // outlives the tensors of other statics
  return *all;
}

// How many bytes tensors may look at.
size_t seen_bytes(const Storage& storage) {
  ShortStorages& all = short_storages();
  const std::lock_guard lock(all.mutex);
  const auto found = all.sizes.find(storage->data());
  return found == all.sizes.end() ? storage->nbytes() : found->second;
}

void free_short(void*, void* data, size_t) noexcept {
  ShortStorages& all = short_storages();
  const std::lock_guard lock(all.mutex);
  const auto found = all.sizes.find(data);
  munmap(data, found->second);
  all.sizes.erase(found);
}

void shorten(const Storage& storage, size_t nbytes, size_t seen) {
  TG_CHECK(storage->device().is_cpu(), NotImplemented, "resize_: a storage on {} cannot become shorter",
           storage->device());
  void* space = mmap(nullptr, seen, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TG_CHECK(space != MAP_FAILED, OutOfMemory, "resize_: out of memory: no address space for {} bytes", seen);
  if (const size_t kept = std::min(nbytes, storage->nbytes()); kept != 0) std::memcpy(space, storage->data(), kept);
  {
    ShortStorages& all = short_storages();
    const std::lock_guard lock(all.mutex);
    all.sizes.emplace(space, seen);
  }
  storage->replace(space, nbytes, free_short, nullptr);
}

}  // namespace

void resize_storage(const Storage& storage, size_t nbytes) {
  if (nbytes == storage->nbytes()) return;
  TG_CHECK(storage->resizable(), Runtime,
           "resize_: the storage cannot be resized: its memory belongs to another library");
  if (const size_t seen = seen_bytes(storage); nbytes < seen && !storage->device().is_meta()) {
    shorten(storage, nbytes, seen);
    return;
  }
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
  const int64_t before = static_cast<int64_t>(storage->nbytes() / self.itemsize());
  const bool grows = nbytes > 0 && static_cast<size_t>(needed) > storage->nbytes();
  if (grows) resize_storage(storage, static_cast<size_t>(needed));
  self.impl()->set_geometry(sizes, strides, self.storage_offset());
  if (grows && fills_unset()) {
    const int64_t fresh = needed / static_cast<int64_t>(self.itemsize()) - before;
    fill_unset(Tensor(make_intrusive<TensorImpl>(storage, self.dtype(), DimVector{fresh}, DimVector{1}, before)));
  }
}

}  // namespace tapegrad
