#include "tapegrad/multiprocessing/arena_source.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "tapegrad/c10/error.h"

namespace tapegrad::shared {

ArenaSource::ArenaSource(Ledger& ledger, bool read_only, uint64_t (*budget)() noexcept)
    : ledger_(ledger), read_only_(read_only), budget_(budget) {}

ArenaSource::~ArenaSource() {
  if (!abandoned_)
    while (!arenas_.empty()) close(arenas_.begin()->first);
}

// Marks a free run of pieces and reserves its pages. Null when there is no such run, or no page.
void* ArenaSource::take(char* base, Arena& arena, size_t pieces) noexcept {
  for (size_t first = 0; first + pieces <= arena.taken.size();) {
    size_t n = 0;
    while (n < pieces && !arena.taken[first + n]) ++n;
    if (n < pieces) {
      first += n + 1;
      continue;
    }
    if (!commit_shared_file(arena.file, first * kHugePage, pieces * kHugePage)) return nullptr;
    for (size_t i = 0; i < pieces; ++i) arena.taken[first + i] = true;
    arena.num_taken += pieces;
    reserved_bytes_ += pieces * kHugePage;
    return base + first * kHugePage;
  }
  return nullptr;
}

void* ArenaSource::reserve(size_t nbytes) noexcept try {
  if (abandoned_) return nullptr;
  const size_t pieces = nbytes / kHugePage;
  for (auto& [base, arena] : arenas_)
    if (arena->taken.size() - arena->num_taken >= pieces)
      if (void* p = take(base, *arena, pieces)) return p;
  return grow(nbytes);
} catch (const std::exception& e) {
  try {
    failure_ = e.what();
  } catch (...) {
  }
  return nullptr;
}

uint32_t ArenaSource::free_number() noexcept {
  for (uint32_t i = 0; i < kMaxArenas; ++i) {
    uint32_t epoch = ledger_.arena_epoch(i).load();
    if (epoch % 2 == 0 && ledger_.arena_epoch(i).compare_exchange_strong(epoch, epoch + 1)) return i;
  }
  return kNone;
}

void* ArenaSource::grow(size_t nbytes) {
  auto arena = std::make_unique<Arena>();
  arena->nbytes = (nbytes + kArenaStep - 1) / kArenaStep * kArenaStep;
  arena->taken.resize(arena->nbytes / kHugePage);
  arena->file = create_shared_file(arena->nbytes, "share_memory");
  auto* base = static_cast<char*>(map_shared_file(arena->file, arena->nbytes, true, kHugePage));
  seal_shared_file(arena->file, read_only_);
  void* p = nullptr;
  // With a seal against writers only what is reserved now can ever be reserved.
  if (read_only_ && !commit_shared_file(arena->file, 0, arena->nbytes)) {
    failure_ = explain_errno(errno);
  } else if (p = take(base, *arena, nbytes / kHugePage); p == nullptr) {
    failure_ = explain_errno(errno);
  } else if (arena->number = free_number(); arena->number == kNone) {
    failure_ = fmt::format("this process has {} arenas of shared memory", kMaxArenas);
    p = nullptr;
  }
  if (p == nullptr) {
    munmap(base, arena->nbytes);
    return nullptr;
  }
  arena->epoch = ledger_.arena_epoch(arena->number).load();
  ++num_arenas_;
  std::lock_guard lock(lock_);
  arenas_.emplace(base, std::move(arena));
  return p;
}

void ArenaSource::release(void* p, size_t nbytes) noexcept {
  if (abandoned_) return;
  auto it = std::prev(arenas_.upper_bound(static_cast<char*>(p)));
  Arena& arena = *it->second;
  const auto offset = static_cast<size_t>(static_cast<char*>(p) - it->first);
  for (size_t i = 0; i < nbytes / kHugePage; ++i) arena.taken[offset / kHugePage + i] = false;
  arena.num_taken -= nbytes / kHugePage;
  reserved_bytes_ -= nbytes;
  if (!read_only_) punch_shared_file(arena.file, offset, nbytes);
  if (arena.num_taken == 0) close(it->first);
}

void ArenaSource::close(char* base) noexcept {
  std::unique_ptr<Arena> arena;
  {
    std::lock_guard lock(lock_);
    auto it = arenas_.find(base);
    arena = std::move(it->second);
    arenas_.erase(it);
  }
  ledger_.arena_epoch(arena->number).fetch_add(1);  // other processes then unmap the arena
  munmap(base, arena->nbytes);
  --num_arenas_;
}

ArenaSource::Place ArenaSource::find(const void* p) noexcept {
  std::lock_guard lock(lock_);
  auto it = arenas_.upper_bound(static_cast<char*>(const_cast<void*>(p)));
  if (it == arenas_.begin()) return {};
  --it;
  const auto offset = static_cast<uint64_t>(static_cast<const char*>(p) - it->first);
  if (offset >= it->second->nbytes) return {};
  return {it->second->number, it->second->epoch, offset};
}

Descriptor ArenaSource::duplicate(uint32_t number, uint32_t epoch, uint64_t& nbytes) noexcept {
  std::lock_guard lock(lock_);
  for (auto& [base, arena] : arenas_) {
    if (arena->number != number || arena->epoch != epoch) continue;
    nbytes = arena->nbytes;
    return Descriptor(fcntl(arena->file.get(), F_DUPFD_CLOEXEC, 0));
  }
  return Descriptor();
}

}  // namespace tapegrad::shared
