#include "tapegrad/c10/tensor/storage.h"

#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/device/device_names.h"
#include "tapegrad/c10/device/pinned_scope.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/memory/allocator.h"
#include "tapegrad/c10/memory/object_pool.h"
#include "tapegrad/c10/tensor/storage_recorder.h"

namespace tapegrad {

void (*storage_recorder)(const Storage& made) = nullptr;

namespace {

void free_cpu(void* context, void* data, size_t nbytes) noexcept {
  static_cast<Allocator*>(context)->deallocate(data, nbytes);
}

constinit thread_local bool pinned_now __attribute__((tls_model("initial-exec"))) = false;

Storage allocate_cpu(size_t nbytes, Device device) {
  if (TG_UNLIKELY(pinned_now)) return need_device(DeviceType::CUDA, "pin_memory").allocate_pinned(nbytes);
  static Allocator& allocator = cpu_allocator();
  void* data = nbytes == 0 ? nullptr : allocator.allocate(nbytes);
  return make_intrusive<StorageImpl>(data, nbytes, device, data ? free_cpu : nullptr, &allocator);
}

Storage allocate_meta(size_t nbytes, Device device) {
  return make_intrusive<StorageImpl>(nullptr, nbytes, device, nullptr, nullptr);
}

// Whatever allocates a result where a sparse tensor is has not been written for one.
Storage refuse_sparse(size_t, Device) {
  TG_THROW(NotImplemented, "this operator does not take sparse tensors\nuse to_dense(), or indices() and values()");
}

AllocateStorage allocators[kNumDeviceTypes] = {allocate_cpu, nullptr, allocate_meta, refuse_sparse};

}  // namespace

PinnedScope::PinnedScope(bool on) : on_(on), before_(pinned_now) {
  if (TG_LIKELY(!on)) return;
  need_device(DeviceType::CUDA, "pin_memory");
  pinned_now = true;
}
PinnedScope::~PinnedScope() { pinned_now = before_; }
void PinnedScope::refuse() {
  TG_THROW(Runtime, "pin_memory: only dense CPU tensors can be pinned\nleave out pin_memory, or the device");
}

void* StorageImpl::operator new(size_t n) { return pool_allocate(n); }
void StorageImpl::operator delete(void* p, size_t n) noexcept { pool_free(p, n); }

void StorageImpl::release_resources() noexcept {
  if (deleter_) deleter_(context_, data_, nbytes_);
  data_ = nullptr;
  deleter_ = nullptr;
}

void StorageImpl::replace(void* data, size_t nbytes, Deleter deleter, void* context) noexcept {
  release_resources();
  data_ = data;
  nbytes_ = nbytes;
  deleter_ = deleter;
  context_ = context;
}

void set_storage_allocator(DeviceType type, AllocateStorage allocate) { allocators[static_cast<int>(type)] = allocate; }

Storage allocate_storage(size_t nbytes, Device device) {
  TG_CHECK(!is_foreign(device.type), NotImplemented,
           "{}: nothing can be allocated there: tensors are on cpu, cuda or meta", device);
  auto allocate = allocators[static_cast<int>(device.type)];
  if (TG_UNLIKELY(allocate == nullptr)) {  // its library hangs the allocator in when it is loaded
    device_interface(device.type);
    allocate = allocators[static_cast<int>(device.type)];
    TG_CHECK(allocate != nullptr, Runtime, "{}: this device is not available: {}", device, device_why_not(device.type));
  }
  Storage made = allocate(nbytes, device);
  if (TG_UNLIKELY(modes() & kModeRecord) && storage_recorder) storage_recorder(made);
  return made;
}

}  // namespace tapegrad
