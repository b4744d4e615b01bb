#include "tapegrad/c10/memory/memory_source.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "tapegrad/c10/environment.h"
#include "tapegrad/c10/memory/proc_file.h"

namespace tapegrad {

MemorySource::~MemorySource() = default;

namespace {

using detail::ProcFile;

// The least available memory among the control groups of this process.
uint64_t cgroup_available() noexcept {
  uint64_t available = UINT64_MAX;
  detail::for_each_cgroup("memory", [&](const detail::CgroupDir& dir) {
    uint64_t limit = dir.number(dir.v2 ? "memory.max" : "memory.limit_in_bytes", UINT64_MAX);
    if (limit >= (uint64_t{1} << 60)) return;  // v1 writes "unlimited" as a huge number
    uint64_t used = dir.number(dir.v2 ? "memory.current" : "memory.usage_in_bytes", 0);
    // Inactive file pages are counted as used but are reclaimed under pressure.
    uint64_t reclaimable = dir.field("memory.stat", dir.v2 ? "inactive_file" : "total_inactive_file", 0);
    used -= std::min(used, reclaimable);
    available = std::min(available, limit - std::min(limit, used));
  });
  return available;
}

uint64_t cgroup_limit() noexcept {
  uint64_t limit = UINT64_MAX;
  detail::for_each_cgroup("memory", [&](const detail::CgroupDir& dir) {
    limit = std::min(limit, dir.number(dir.v2 ? "memory.max" : "memory.limit_in_bytes", UINT64_MAX));
  });
  return limit;
}

// Advice only: failure is no error. Steps of large models are 2 to 10 % faster in huge pages. But in a guest whose host
// takes back what is free, each costs 512 faults of the host when it is first touched: 2.4 s for a GB, where small
// pages take 0.4 s. The first pages of a segment, which are in use at once anyway, tell which it is.
void ask_for_huge_pages(char* p, size_t nbytes) noexcept {
#if defined(MADV_HUGEPAGE)
  using Clock = std::chrono::steady_clock;
  constexpr auto kSlow = std::chrono::microseconds(1500);
  madvise(p, nbytes, MADV_HUGEPAGE);
  for (int slow = 0; slow < 2; ++slow, p += kHugePage, nbytes -= kHugePage) {  // one alone may have been interrupted
    if (nbytes < 2 * kHugePage) return;
    const auto begin = Clock::now();
    *static_cast<volatile char*>(p) = 0;
    if (Clock::now() - begin < kSlow) return;
  }
  madvise(p, nbytes, MADV_NOHUGEPAGE);
#endif
}

class SystemMemory final : public MemorySource {
 public:
  void* reserve(size_t nbytes) noexcept override {
    // The kernel aligns to small pages: ask for one huge page more and cut off both ends.
    const size_t padded = nbytes + kHugePage;
    if (padded < nbytes) return nullptr;
    void* raw = mmap(nullptr, padded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    char* begin = static_cast<char*>(raw);
    const size_t head = (kHugePage - reinterpret_cast<uintptr_t>(begin) % kHugePage) % kHugePage;
    if (head != 0) munmap(begin, head);
    if (head != kHugePage) munmap(begin + head + nbytes, kHugePage - head);
    if (huge_pages_) ask_for_huge_pages(begin + head, nbytes);
    return begin + head;
  }
  void release(void* p, size_t nbytes) noexcept override { munmap(p, nbytes); }
  void purge(void* p, size_t nbytes) noexcept override { madvise(p, nbytes, MADV_DONTNEED); }

  uint64_t available() noexcept override {
    ProcFile info("/proc/meminfo");
    if (!info.ok()) return cgroup_available();
    const uint64_t kib = info.field("MemAvailable:", UINT64_MAX / 1024 / 2) + info.field("SwapFree:", 0);
    return std::min(kib * 1024, cgroup_available());
  }
  uint64_t resident() noexcept override {
    // "size resident shared ..." in pages; file mappings are not ours.
    ProcFile statm("/proc/self/statm");
    if (!statm.ok()) return UINT64_MAX;
    const uint64_t pages = statm.nth(1, 0), shared = statm.nth(2, 0);
    return (pages - std::min(pages, shared)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  }

 private:
  const bool huge_pages_ = environment_flag("TAPEGRAD_HUGE_PAGES", true);
};

}  // namespace

MemorySource& system_memory() {
  static SystemMemory& instance = *new SystemMemory;
  return instance;
}

uint64_t total_memory() noexcept {
  const uint64_t machine =
      static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::min(machine, cgroup_limit());
}

}  // namespace tapegrad
