#include "tapegrad/cuda/memory/storage.h"

#include "tapegrad/c10/error.h"

namespace tapegrad::cuda {

namespace {

void* allocate(std::size_t nbytes, int device) {
  void* p = driver().allocate(device, nbytes);
  TG_CHECK(p != nullptr, OutOfMemory, "cuda: out of memory: tried to allocate {} bytes on cuda:{}", nbytes, device);
  return p;
}

void free_storage(void* context, void* data, std::size_t) noexcept {
  try {
    driver().free(static_cast<int>(reinterpret_cast<intptr_t>(context)), data);
  } catch (...) {  // the driver is gone at the end of the process
  }
}

Storage allocate_storage_cuda(std::size_t nbytes, Device device) {
  const int index = device.index < 0 ? driver().current_device() : device.index;
  check_device(index);
  device.index = static_cast<int8_t>(index);
  if (nbytes == 0) return make_intrusive<StorageImpl>(nullptr, 0, device, nullptr, nullptr);
  return make_intrusive<StorageImpl>(allocate(nbytes, index), nbytes, device, free_storage,
                                     reinterpret_cast<void*>(static_cast<intptr_t>(index)));
}

}  // namespace

void register_storage() { set_storage_allocator(DeviceType::CUDA, allocate_storage_cuda); }

void detail::note_use_slow(const void*, Stream) {}

Workspace::Workspace(std::size_t nbytes, Stream stream) : nbytes_(nbytes), device_(stream.device) {
  data_ = nbytes == 0 ? nullptr : allocate(nbytes, device_);
}

Workspace::~Workspace() {
  if (data_ != nullptr) free_storage(reinterpret_cast<void*>(static_cast<intptr_t>(device_)), data_, nbytes_);
}

}  // namespace tapegrad::cuda
