// The memory source of the shared-memory allocator: arenas, files of a multiple of 64 MiB, from which pieces of 2 MiB
// are reserved. c10's block allocator divides these, so that size classes, slabs and the reuse of warm pages are the
// same as for other CPU memory. Thread rules: `reserve` and `release` are called under the allocator's lock; `find` and
// `duplicate` from any thread.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tapegrad/c10/memory/memory_source.h"
#include "tapegrad/c10/threads/fork.h"
#include "tapegrad/multiprocessing/ledger.h"
#include "tapegrad/multiprocessing/shared_file.h"

namespace tapegrad::shared {

inline constexpr size_t kArenaStep = size_t{64} << 20;

class TG_API ArenaSource final : public MemorySource {
 public:
  struct Place {
    uint32_t arena = kNone;
    uint32_t epoch = 0;
    uint64_t offset = 0;
  };

  // `read_only`: other processes can only read these arenas. `budget` returns how many bytes may be reserved now.
  ArenaSource(Ledger& ledger, bool read_only, uint64_t (*budget)() noexcept = shareable_memory);
  ~ArenaSource() override;

  void* reserve(size_t nbytes) noexcept override;
  void release(void* p, size_t nbytes) noexcept override;
  // Pages are kept: they were reserved up front, and a page reserved again on first touch could fail.
  void purge(void*, size_t) noexcept override {}
  uint64_t available() noexcept override { return budget_(); }

  // Where an address lies; kNone when it is not in an arena.
  Place find(const void* p) noexcept;
  // A descriptor of its own and the size of an arena, for sending.
  Descriptor duplicate(uint32_t arena, uint32_t epoch, uint64_t& nbytes) noexcept;
  bool read_only() const noexcept { return read_only_; }
  size_t num_arenas() const noexcept { return num_arenas_; }
  uint64_t reserved_bytes() const noexcept { return reserved_bytes_; }
  // Why the last reserve failed; empty if there was too little memory.
  std::string take_failure() noexcept { return std::exchange(failure_, {}); }

  // After fork, in the child: the memory belongs to the parent. Calls visit(arena, epoch, base, nbytes) for each arena
  // and drops it.
  template <class Visit>
  void abandon(Visit visit) {
    for (auto& [base, arena] : arenas_) visit(arena->number, arena->epoch, base, arena->nbytes);
    for (auto& [base, arena] : arenas_) arena->file.reset();
    arenas_.clear();
    abandoned_ = true;
  }

 private:
  struct Arena {
    Descriptor file;
    uint32_t number = kNone;
    uint32_t epoch = 0;
    uint64_t nbytes = 0;
    std::vector<bool> taken;  // per piece of kHugePage
    size_t num_taken = 0;
  };

  void* take(char* base, Arena& arena, size_t pieces) noexcept;
  void* grow(size_t nbytes);
  void close(char* base) noexcept;
  uint32_t free_number() noexcept;

  Ledger& ledger_;
  const bool read_only_;
  uint64_t (*const budget_)() noexcept;
  ForkSafeLock lock_;  // guards the shape of the map
  std::map<char*, std::unique_ptr<Arena>> arenas_;
  std::atomic<size_t> num_arenas_{0};
  std::atomic<uint64_t> reserved_bytes_{0};
  std::string failure_;
  bool abandoned_ = false;
};

}  // namespace tapegrad::shared
