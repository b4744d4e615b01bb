// Anonymous shared memory: a memfd, or an unnamed file in a folder if the system has no memfd or a hard limit is wanted
// (TAPEGRAD_SHARED_DIR, such as /dev/shm). Its size is fixed at creation and sealed, so that no process can truncate it
// while another one reads it. Pages are reserved before they are touched: a full file system or an exhausted commit
// limit is an error here, never a later SIGBUS. A SharedFile owns its descriptor. No thread rules: one owner at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tapegrad/c10/macros.h"

namespace tapegrad::shared {

class Descriptor {
 public:
  explicit Descriptor(int fd = -1) noexcept : fd_(fd) {}
  ~Descriptor() { reset(); }
  Descriptor(Descriptor&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  Descriptor& operator=(Descriptor&& o) noexcept {
    std::swap(fd_, o.fd_);
    return *this;
  }
  int get() const noexcept { return fd_; }
  explicit operator bool() const noexcept { return fd_ >= 0; }
  void reset() noexcept;

 private:
  int fd_;
};

// A new file of `nbytes` zeros, none of them reserved yet. On failure Error(Runtime) or Error(OutOfMemory).
TG_API Descriptor create_shared_file(size_t nbytes, const char* what);
// Seals the size. With `against_writers`, existing mappings stay writable and later ones are read-only. Without memfd
// there are no seals, and a file is accessible only to processes that were given its descriptor.
TG_API void seal_shared_file(const Descriptor& file, bool against_writers) noexcept;
// Reserves the pages; false with errno when there are none left.
TG_API bool commit_shared_file(const Descriptor& file, size_t offset, size_t nbytes) noexcept;
// Gives the pages back, where the seals allow it.
TG_API void punch_shared_file(const Descriptor& file, size_t offset, size_t nbytes) noexcept;
// Maps the whole file; Error(Runtime) when that fails. `align` is a power of two.
TG_API void* map_shared_file(const Descriptor& file, size_t nbytes, bool writable, size_t align = 4096);

// Bytes that may be reserved now: the memory that the machine and the control groups have left, less a reserve for
// other processes.
TG_API uint64_t shareable_memory() noexcept;

// The last system error as text, with a remedy: "no descriptor is left: the limit is 64 ...".
TG_API std::string explain_errno(int error);

}  // namespace tapegrad::shared
