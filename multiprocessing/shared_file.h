// Memory without a name: a memfd, or an unnamed file in a folder where the system has no memfd or where a hard bound is
// wanted (TAPEGRAD_SHARED_DIR, such as /dev/shm). Its size is fixed at once and sealed, so that nobody can cut it short
// under a reader, and its pages are reserved before they are touched: a full file system or a spent commit limit is an
// error here and never a SIGBUS later. A SharedFile owns its descriptor. No thread rules: one owner at a time.
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

// `nbytes` of zeros behind a new descriptor, none of them reserved yet. On failure Error(Runtime) or
// Error(OutOfMemory).
TG_API Descriptor create_shared_file(size_t nbytes, const char* what);
// Nobody can change the size any more. Memory that was mapped before stays writable after `against_writers`, later
// mappings are read-only. Without memfd there are no seals, and files are private to those who were given them.
TG_API void seal_shared_file(const Descriptor& file, bool against_writers) noexcept;
// Reserves the pages; false with errno when there are none left.
TG_API bool commit_shared_file(const Descriptor& file, size_t offset, size_t nbytes) noexcept;
// Gives the pages back, where the seals allow it.
TG_API void punch_shared_file(const Descriptor& file, size_t offset, size_t nbytes) noexcept;
// Maps the whole file; Error(Runtime) when that fails. `align` is a power of two.
TG_API void* map_shared_file(const Descriptor& file, size_t nbytes, bool writable, size_t align = 4096);

// Bytes that may be reserved now: the memory that the machine and the control groups have left, less a reserve for
// everybody else.
TG_API uint64_t shareable_memory() noexcept;

// The last system error as text with what can be done about it: "no descriptor is left: the limit is 64 ...".
TG_API std::string explain_errno(int error);

}  // namespace tapegrad::shared
