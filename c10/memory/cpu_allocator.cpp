#include <fmt/format.h>

#include <cstdlib>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/caching_allocator.h"

namespace tapegrad {

Allocator::~Allocator() = default;

std::string format_bytes(uint64_t nbytes) {
  static constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  if (nbytes < 1024) return fmt::format("{} {}", nbytes, nbytes == 1 ? "byte" : "bytes");
  double value = static_cast<double>(nbytes);
  int unit = 0;
  for (; value >= 1024 && unit < 6; ++unit) value /= 1024;
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

namespace {

// A quarter of the memory, or TAPEGRAD_CACHE_MB.
uint64_t cache_limit() {
  if (const char* setting = std::getenv("TAPEGRAD_CACHE_MB"); setting != nullptr && *setting != '\0') {
    char* end = nullptr;
    const uint64_t mb = std::strtoull(setting, &end, 10);
    TG_CHECK(*end == '\0' && mb <= (uint64_t{1} << 30), Value, "TAPEGRAD_CACHE_MB: expected a number of MiB: got '{}'",
             setting);
    return mb << 20;
  }
  return total_memory() / 4;
}

#if defined(__SANITIZE_ADDRESS__)

// Blocks from malloc, so that every overrun and late use is seen; only huge ones come from the pools, where
// running out of memory is an exception.
class CheckedAllocator final : public Allocator {
 public:
  explicit CheckedAllocator(Allocator& counts_and_huge) : inner_(counts_and_huge) {}
  void* allocate(size_t nbytes) override {
    if (nbytes == 0 || nbytes > kHuge) return inner_.allocate(nbytes);
    void* p = nullptr;
    TG_CHECK(posix_memalign(&p, 64, nbytes) == 0, OutOfMemory, "allocate: out of memory: asked for {} bytes", nbytes);
    const uint64_t live = live_.fetch_add(nbytes) + nbytes;
    for (uint64_t peak = peak_.load(); peak < live && !peak_.compare_exchange_weak(peak, live);) {
    }
    ++allocs_;
    return p;
  }
  void deallocate(void* p, size_t nbytes) noexcept override {
    if (nbytes == 0 || nbytes > kHuge) return inner_.deallocate(p, nbytes);
    std::free(p);
    live_ -= nbytes;
    ++frees_;
  }
  MemoryStats stats() const override {
    MemoryStats s = inner_.stats();
    s.allocated += live_;
    s.max_allocated += peak_;
    s.reserved += live_;
    s.max_reserved += peak_;
    s.num_allocs += allocs_;
    s.num_frees += frees_;
    return s;
  }
  void reset_peak() override {
    peak_.store(live_);
    inner_.reset_peak();
  }
  void empty_cache() override { inner_.empty_cache(); }
  int64_t thread_bytes() const noexcept override { return static_cast<int64_t>(live_.load()) + inner_.thread_bytes(); }
  std::string summary() const override { return inner_.summary(); }

 private:
  static constexpr size_t kHuge = size_t{64} << 20;
  Allocator& inner_;
  std::atomic<uint64_t> live_{0}, peak_{0}, allocs_{0}, frees_{0};
};

Allocator& make_cpu_allocator() {
  return *new CheckedAllocator(*new CachingAllocator(system_memory(), {cache_limit(), "cpu"}));
}

#else

Allocator& make_cpu_allocator() { return *new CachingAllocator(system_memory(), {cache_limit(), "cpu"}); }

#endif

}  // namespace

Allocator& cpu_allocator() {
  static Allocator& instance = make_cpu_allocator();
  return instance;
}

}  // namespace tapegrad
