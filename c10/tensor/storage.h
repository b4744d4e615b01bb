// Storage: the bytes that tensors are views of. It owns them through a deleter, so the bytes may come from an
// allocator, from NumPy or from DLPack. The version counter lives here because all views of the same bytes share it; it
// also records the last writer, for the error that names reader and writer. Reference counted; the bytes may be read
// and written by any thread, resizing needs exclusive use.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tapegrad/c10/device/device.h"
#include "tapegrad/c10/tensor/intrusive_ptr.h"

namespace tapegrad {

// The writer: an interned operator name (static string) and a call-site id (see autograd/profiler/call_site.h).
struct Writer {
  const char* op = nullptr;
  uint32_t site = 0;
};

struct VersionCounter {
  std::atomic<uint32_t> version{0};
  Writer writer;  // of the newest version; written under the rules of the data itself
  void bump(Writer w) noexcept {
    version.fetch_add(1, std::memory_order_relaxed);
    writer = w;
  }
};

class TG_API StorageImpl final : public intrusive_ptr_target {
 public:
  using Deleter = void (*)(void* context, void* data, size_t nbytes) noexcept;

  // Takes over `data`; `deleter(context, data, nbytes)` runs once, at the end.
  StorageImpl(void* data, size_t nbytes, Device device, Deleter deleter, void* context)
      : data_(data), nbytes_(nbytes), deleter_(deleter), context_(context), device_(device) {}

  void* data() const noexcept { return data_; }
  size_t nbytes() const noexcept { return nbytes_; }
  Device device() const noexcept { return device_; }
  VersionCounter& version() noexcept { return version_; }
  // Memory owned by another library (NumPy, DLPack) cannot be resized.
  bool resizable() const noexcept { return resizable_; }
  void set_resizable(bool value) noexcept { resizable_ = value; }
  bool read_only() const noexcept { return read_only_; }
  void set_read_only(bool value) noexcept { read_only_ = value; }

  // Exchanges the bytes for others (resize_, set_data); the old ones are released.
  void replace(void* data, size_t nbytes, Deleter deleter, void* context) noexcept;

  static void* operator new(size_t n);
  static void operator delete(void* p, size_t n) noexcept;

 protected:
  void release_resources() noexcept override;

 private:
  void* data_;
  size_t nbytes_;
  Deleter deleter_;
  void* context_;
  VersionCounter version_;
  Device device_;
  bool resizable_ = true;
  bool read_only_ = false;
};

using Storage = intrusive_ptr<StorageImpl>;

// New bytes on a device from its allocator. Meta storage has a size and no bytes.
TG_API Storage allocate_storage(size_t nbytes, Device device);

// Registers the allocator of a device type (the CPU's at start-up, CUDA's when its library is loaded).
using AllocateStorage = Storage (*)(size_t nbytes, Device device);
TG_API void set_storage_allocator(DeviceType type, AllocateStorage allocate);

}  // namespace tapegrad
