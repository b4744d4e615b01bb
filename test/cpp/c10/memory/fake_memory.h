// A MemorySource with a budget, for tests of allocators: counts calls, checks that what is released was
// reserved with the same size, and fills purged ranges so that a wrong purge shows.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>

#include "tapegrad/c10/memory/memory_source.h"

class FakeMemory final : public tapegrad::MemorySource {
 public:
  explicit FakeMemory(uint64_t budget) : budget_(budget) {}
  ~FakeMemory() override {
    for (auto& [p, n] : live_) std::free(p);
  }
  void* reserve(size_t nbytes) noexcept override {
    if (nbytes % tapegrad::kHugePage != 0) ++mistakes;
    if (used + nbytes > budget_) return nullptr;
    void* p = nullptr;
    if (posix_memalign(&p, tapegrad::kHugePage, nbytes) != 0) return nullptr;
    used += nbytes;
    ++reserves;
    live_[p] = nbytes;
    return p;
  }
  void release(void* p, size_t nbytes) noexcept override {
    auto it = live_.find(p);
    if (it == live_.end() || it->second != nbytes) {
      ++mistakes;
      return;
    }
    live_.erase(it);
    used -= nbytes;
    ++releases;
    std::free(p);
  }
  void purge(void* p, size_t nbytes) noexcept override {
    std::memset(p, 0xdd, nbytes);
    purged += nbytes;
  }
  uint64_t available() noexcept override { return budget_ - used; }
  uint64_t resident() noexcept override { return resident_bytes; }

  uint64_t used = 0, purged = 0, resident_bytes = UINT64_MAX;
  int reserves = 0, releases = 0, mistakes = 0;

 private:
  uint64_t budget_;
  std::map<void*, size_t> live_;
};
