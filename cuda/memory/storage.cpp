#include "tapegrad/cuda/memory/storage.h"

#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/memory/device_allocator.h"
#include "tapegrad/cuda/memory/pinned_allocator.h"
#include "tapegrad/cuda/memory/shared.h"

namespace tapegrad::cuda {

namespace {

void free_storage(void* context, void* data, std::size_t) noexcept {
  try {
    static_cast<DeviceAllocator*>(context)->free_at(data);
  } catch (...) {  // the driver is gone at the end of the process
  }
}

uint32_t site() noexcept {
  auto* capture = host_hooks().site;
  return capture ? capture() : 0;
}

Storage allocate_storage_cuda(std::size_t nbytes, Device device) {
  check_device(device.index < 0 ? 0 : device.index);
  const int index = device.index < 0 ? driver().current_device() : device.index;
  device.index = static_cast<int8_t>(index);
  if (nbytes == 0) return make_intrusive<StorageImpl>(nullptr, 0, device, nullptr, nullptr);
  DeviceAllocator& allocator = device_allocator(index);
  Block* block = allocator.allocate(nbytes, current_stream(index).handle, site());
  return make_intrusive<StorageImpl>(block->address, nbytes, device, free_storage, &allocator);
}

void free_pinned_storage(void*, void* data, std::size_t) noexcept {
  try {
    pinned_allocator().free(data);
  } catch (...) {
  }
}

}  // namespace

void register_storage() { set_storage_allocator(DeviceType::CUDA, allocate_storage_cuda); }

Storage allocate_pinned_storage(std::size_t nbytes) {
  if (nbytes == 0) return make_intrusive<StorageImpl>(nullptr, 0, Device(), nullptr, nullptr);
  return make_intrusive<StorageImpl>(pinned_allocator().allocate(nbytes), nbytes, Device(), free_pinned_storage,
                                     nullptr);
}

void detail::note_use_slow(const StorageImpl& storage, Stream stream) {
  const Device device = storage.device();
  if (storage.data() == nullptr) return;
  if (device.is_cuda() && note_use_of_opened(storage.data(), stream)) return;
  if (device.is_cuda())
    device_allocator(device.index).note_use(storage.data(), stream);
  else if (device.is_cpu())
    pinned_allocator().note_use(storage.data(), stream);
}

Workspace::Workspace(std::size_t nbytes, Stream stream) : nbytes_(nbytes), device_(stream.device) {
  block_ = nbytes == 0 ? nullptr : device_allocator(device_).allocate(nbytes, stream.handle, site());
}

Workspace::~Workspace() {
  if (block_ == nullptr) return;
  try {
    device_allocator(device_).free(block_);
  } catch (...) {
  }
}

void* Workspace::data() const noexcept { return block_ ? block_->address : nullptr; }

}  // namespace tapegrad::cuda
