#include "tapegrad/multiprocessing/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/allocator.h"
#include "tapegrad/c10/memory/memory_source.h"

namespace tapegrad::shared {

namespace {

// Kept for the rest of the system: running into the last page is not an error but the end of some process.
constexpr uint64_t kReserve = uint64_t{128} << 20;

int open_file(const char* what) {
  const char* folder = std::getenv("TAPEGRAD_SHARED_DIR");
  if (folder == nullptr || *folder == '\0') {
    const int fd = memfd_create("tapegrad", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 || errno != ENOSYS) return fd;
    folder = "/dev/shm";
  }
  const int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  TG_CHECK(fd >= 0 || errno == EMFILE || errno == ENFILE, Runtime, "{}: no unnamed file can be made in {}: {}", what,
           folder, std::strerror(errno));
  return fd;
}

}  // namespace

void Descriptor::reset() noexcept {
  if (fd_ >= 0) close(std::exchange(fd_, -1));
}

std::string explain_errno(int error) {
  if (error == EMFILE) {
    rlimit limit{};
    getrlimit(RLIMIT_NOFILE, &limit);
    return fmt::format("this process has no file descriptor left: the limit is {}\nraise it with `ulimit -n`",
                       limit.rlim_cur);
  }
  if (error == ENOSPC) {
    const char* folder = std::getenv("TAPEGRAD_SHARED_DIR");
    return folder != nullptr ? fmt::format("{} is full", folder) : std::string("the system has no memory to promise");
  }
  return std::strerror(error);
}

Descriptor create_shared_file(size_t nbytes, const char* what) {
  Descriptor file(open_file(what));
  TG_CHECK(file, Runtime, "{}: {}", what, explain_errno(errno));
  TG_CHECK(ftruncate(file.get(), static_cast<off_t>(nbytes)) == 0, Runtime, "{}: {}", what, explain_errno(errno));
  return file;
}

void seal_shared_file(const Descriptor& file, bool against_writers) noexcept {
#if !defined(F_SEAL_FUTURE_WRITE)
#define F_SEAL_FUTURE_WRITE 0x0010
#endif
  int seals = F_SEAL_SHRINK | F_SEAL_GROW | (against_writers ? F_SEAL_FUTURE_WRITE : 0);
  fcntl(file.get(), F_ADD_SEALS, seals | F_SEAL_SEAL);
}

bool commit_shared_file(const Descriptor& file, size_t offset, size_t nbytes) noexcept {
  int error = 0;
  do {
    error = posix_fallocate(file.get(), static_cast<off_t>(offset), static_cast<off_t>(nbytes));
  } while (error == EINTR);
  errno = error;
  return error == 0;
}

void punch_shared_file(const Descriptor& file, size_t offset, size_t nbytes) noexcept {
  fallocate(file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(nbytes));
}

void* map_shared_file(const Descriptor& file, size_t nbytes, bool writable, size_t align) {
  // A larger address range is reserved, and the file is mapped over its aligned part.
  const size_t padded = nbytes + (align > 4096 ? align : 0);
  void* raw = mmap(nullptr, padded, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  TG_CHECK(raw != MAP_FAILED, OutOfMemory, "shared memory: no address space for {}: {}", format_bytes(nbytes),
           std::strerror(errno));
  char* begin = static_cast<char*>(raw);
  char* aligned = reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(begin) + align - 1) & ~(align - 1));
  if (aligned != begin) munmap(begin, static_cast<size_t>(aligned - begin));
  if (const size_t tail = padded - nbytes - static_cast<size_t>(aligned - begin)) munmap(aligned + nbytes, tail);
  void* p = mmap(aligned, nbytes, PROT_READ | (writable ? PROT_WRITE : 0), MAP_SHARED | MAP_FIXED, file.get(), 0);
  if (p == MAP_FAILED) {
    const int error = errno;
    munmap(aligned, nbytes);
    TG_THROW(Runtime, "shared memory: cannot be mapped: {}", std::strerror(error));
  }
#if defined(MADV_HUGEPAGE)
  madvise(p, nbytes, MADV_HUGEPAGE);  // advice only: most systems keep huge pages from shared memory
#endif
  return p;
}

uint64_t shareable_memory() noexcept {
  const uint64_t available = system_memory().available();
  return available - std::min(available, kReserve);
}

}  // namespace tapegrad::shared
