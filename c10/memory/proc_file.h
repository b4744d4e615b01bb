// Reads the small text files in which Linux reports memory, limits and quotas. Does not throw: a value that cannot be
// read yields the caller's fallback. Stateless, any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

namespace tapegrad::detail {

// The first 16 KiB of a file, read at once.
class ProcFile {
 public:
  explicit ProcFile(const char* path) noexcept;
  bool ok() const noexcept { return ok_; }
  const std::string& text() const noexcept { return text_; }
  // The number after a word at the start of a line ("MemAvailable:").
  uint64_t field(const char* name, uint64_t fallback) const noexcept;
  // The n-th (from 0) blank-separated word as a number; "max" and other words yield the fallback.
  uint64_t nth(size_t n, uint64_t fallback) const noexcept;

 private:
  std::string text_;
  bool ok_ = false;
};

struct CgroupDir {
  std::string path;
  bool v2;
  uint64_t number(const char* file, uint64_t fallback) const { return nth(file, 0, fallback); }
  uint64_t nth(const char* file, size_t n, uint64_t fallback) const;
  uint64_t field(const char* file, const char* name, uint64_t fallback) const;
};

// Visits the control groups of this process that govern `controller` ("memory", "cpu"), from its own up to
// the root, in the unified and in the old hierarchy. Inside a container the path that the kernel reports may
// not exist below the mount point; then the mount point itself is the container's group.
void for_each_cgroup(const char* controller, const std::function<void(const CgroupDir&)>& visit) noexcept;

}  // namespace tapegrad::detail
