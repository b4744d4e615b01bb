// Allocating and freeing, without the rare cases. Growth and shortage are in device_allocator_segments.cpp, reports in
// device_allocator_report.cpp.
#include "tapegrad/cuda/memory/device_allocator.h"

#include <algorithm>
#include <bit>
#include <chrono>

#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/error.h"

namespace tapegrad::cuda {

namespace {

constexpr std::size_t kSmallest = 512;
constexpr std::size_t kSmallMost = std::size_t{1} << 20;
constexpr std::size_t kLargeStep = std::size_t{64} << 10;  // no less is split off in the large pool

}  // namespace

std::size_t DeviceAllocator::round(std::size_t nbytes) noexcept {
  std::size_t step = kSmallest;
  if (nbytes > kSmallMost) step = std::bit_ceil(nbytes) / 32;
  return (nbytes + step - 1) / step * step;
}

DeviceAllocator::DeviceAllocator(Driver& driver, int device, AllocatorOptions options)
    : driver_(driver), device_(device), options_(options) {
  total_ = driver_.memory_info(device_).total;
  granularity_ = driver_.granularity(device_);
  constexpr std::size_t kUnit = std::size_t{2} << 20;
  const std::size_t unit = std::max(granularity_, kUnit);
  large_unit_ = std::clamp(total_ / 4096 / unit * unit, unit, std::max(unit, std::size_t{20} << 20));
  small_.small = fixed_small_.small = true;
  fixed_small_.fixed = fixed_large_.fixed = true;
}

DeviceAllocator::~DeviceAllocator() {
  try {
    Lock lock(mutex_);
    process_events(true);
    release_cached(true, SIZE_MAX);
    for (Segment* s : std::vector<Segment*>(segments_.begin(), segments_.end()))
      if (s->mapped_bytes == 0) drop_segment(s);
    for (auto& [device, events] : spare_events_)
      for (EventHandle e : events) driver_.destroy_event(e);
    for (Block* b : spare_blocks_) delete b;
  } catch (...) {  // a driver that fails at the end of the process has nothing left to free
  }
}

Block* DeviceAllocator::new_block() {
  if (spare_blocks_.empty()) return new Block;
  Block* b = spare_blocks_.back();
  spare_blocks_.pop_back();
  return b;
}

void DeviceAllocator::delete_block(Block* block) {
  *block = Block();
  spare_blocks_.push_back(block);
}

void DeviceAllocator::count(std::array<Counter, 3> AllocatorStats::* which, const BlockPool& pool, bool add,
                            uint64_t n) {
  std::array<Counter, 3>& counters = stats_.*which;
  for (Counter* c :
       {&counters[AllocatorStats::All], &counters[pool.small ? AllocatorStats::Small : AllocatorStats::Large]})
    add ? c->add(n) : c->remove(n);
}

void DeviceAllocator::note(MemoryEvent::Kind kind, const void* address, std::size_t size, StreamHandle stream,
                           uint32_t site) {
  if (TG_LIKELY(most_events_ == 0)) return;
  using namespace std::chrono;
  const auto now = duration_cast<microseconds>(system_clock::now().time_since_epoch()).count();
  history_.push_back({kind, site, reinterpret_cast<uint64_t>(address), size, stream, static_cast<uint64_t>(now)});
  if (history_.size() > most_events_) history_.pop_front();
}

void DeviceAllocator::touched(Block* block) {
  if (watching_) touched_.push_back(block);
}

// --- the lists of free blocks ---

void DeviceAllocator::put_free(Block* block) {
  BlockPool& pool = *block->segment->pool;
  pool.free.insert(block);
  if (block->is_split()) {
    count(&AllocatorStats::inactive_split, pool, true, 1);
    count(&AllocatorStats::inactive_split_bytes, pool, true, block->size);
  }
  touched(block);
}

void DeviceAllocator::remove_free(Block* block) {
  BlockPool& pool = *block->segment->pool;
  pool.free.erase(block);
  if (block->is_split()) {
    count(&AllocatorStats::inactive_split, pool, false, 1);
    count(&AllocatorStats::inactive_split_bytes, pool, false, block->size);
  }
}

// Takes in the free neighbours of a block that is in no list; it is in none afterwards.
Block* DeviceAllocator::merge(Block* block) {
  auto same = [&](const Block* other) {
    return other != nullptr && other->mapped == block->mapped && (block->mapped ? other->is_free() : true);
  };
  auto take_out = [&](Block* other) {
    if (other->mapped)
      remove_free(other);
    else
      block->segment->pool->unmapped.erase(other);
  };
  if (Block* p = block->prev; same(p)) {
    take_out(p);
    block->address = p->address;
    block->size += p->size;
    block->prev = p->prev;
    (p->prev ? p->prev->next : block->segment->first) = block;
    block->freed_at = std::max(block->freed_at, p->freed_at);
    delete_block(p);
  }
  if (Block* n = block->next; same(n)) {
    take_out(n);
    block->size += n->size;
    block->next = n->next;
    if (n->next) n->next->prev = block;
    block->freed_at = std::max(block->freed_at, n->freed_at);
    delete_block(n);
  }
  return block;
}

// Cuts a block that is in no list; the result is what follows the first `size` bytes, in no list either.
Block* DeviceAllocator::split(Block* block, std::size_t size) {
  Block* rest = new_block();
  rest->segment = block->segment;
  rest->mapped = block->mapped;
  rest->freed_at = block->freed_at;
  rest->address = block->address + size;
  rest->size = block->size - size;
  block->size = size;
  rest->prev = block;
  rest->next = block->next;
  if (rest->next) rest->next->prev = rest;
  block->next = rest;
  touched(block);
  return rest;
}

// --- allocate ---

BlockPool& DeviceAllocator::pool_for(std::size_t size, StreamHandle stream, bool fixed) {
  const bool is_small = size <= kSmallMost;
  if (fixed) return is_small ? fixed_small_ : fixed_large_;
  for (const Active& a : active_pools_)
    if (a.belongs(stream)) {
      PrivatePool& p = private_pool(a.pool);
      return is_small ? p.small_blocks : p.large_blocks;
    }
  return is_small ? small_ : large_;
}

Block* DeviceAllocator::best_fit(BlockPool& pool, std::size_t size, StreamHandle stream, std::size_t most) {
  Segment wanted_segment;
  wanted_segment.stream = stream;
  Block wanted;
  wanted.segment = &wanted_segment;
  wanted.size = size;
  auto it = pool.free.lower_bound(&wanted);
  if (it == pool.free.end() || (*it)->segment->stream != stream || (*it)->size > most) return nullptr;
  Block* block = *it;
  remove_free(block);
  return block;
}

// For small requests when their own pool cannot grow: what lies between large blocks.
Block* DeviceAllocator::borrow(BlockPool& pool, std::size_t size, StreamHandle stream, std::size_t most) {
  if (!pool.small) return nullptr;
  return best_fit(pool.owner ? pool.owner->large_blocks : pool.fixed ? fixed_large_ : large_, size, stream, most);
}

// A block of at least `size` bytes that is in no list, or null.
Block* DeviceAllocator::try_allocate(BlockPool& pool, std::size_t size, StreamHandle stream) {
  if (Block* block = best_fit(pool, size, stream)) return block;
  if (options_.collect_above > 0) {
    collect_old(size);
    // Nothing that fits came from that: free blocks only went.
  }
  return grow(pool, size, stream);
}

void DeviceAllocator::take(Block* block, std::size_t size, std::size_t requested, uint32_t site) {
  BlockPool& pool = *block->segment->pool;
  const std::size_t least = size <= kSmallMost ? kSmallest : kLargeStep;
  if (block->size - size >= least) put_free(split(block, size));
  block->allocated = true;
  block->requested = requested;
  block->site = site;
  live_.insert(block->address, block);
  if (pool.owner) ++pool.owner->live;
  count(&AllocatorStats::allocation, pool, true, 1);
  count(&AllocatorStats::allocated_bytes, pool, true, block->size);
  count(&AllocatorStats::active, pool, true, 1);
  count(&AllocatorStats::active_bytes, pool, true, block->size);
  count(&AllocatorStats::requested_bytes, pool, true, requested);
  note(MemoryEvent::Alloc, block->address, block->size, block->segment->stream, site);
  touched(block);
}

Block* DeviceAllocator::allocate(std::size_t nbytes, StreamHandle stream, uint32_t site, bool fixed) {
  Lock lock(mutex_);
  ++clock_;
  const std::size_t size = round(nbytes);
  TG_CHECK(size >= nbytes && nbytes > 0, OutOfMemory, "cuda: out of memory: tried to allocate {} bytes", nbytes);
  if (!events_.empty()) process_events(false);
  for (bool collected = false;;) {
    Block* block = nullptr;
    if (options_.caching) {
      BlockPool* pool = &pool_for(size, stream, fixed);
      block = try_allocate(*pool, size, stream);
      if (block == nullptr) block = borrow(*pool, size, stream, kSmallMost);  // a gap that no large request fits into
      if (block == nullptr) {
        // Enough of what is free elsewhere, if that does; then everything, after the streams that still use it.
        if (release_cached(false, size) > 0) block = try_allocate(*pool, size, stream);
        if (block == nullptr) {
          process_events(true);
          release_cached(true, SIZE_MAX);
          ++stats_.retries;
          block = try_allocate(*pool, size, stream);
          if (block == nullptr) block = borrow(*pool, size, stream, SIZE_MAX);
        }
      }
      if (block != nullptr) {
        take(block, size, nbytes, site);
        return block;
      }
    } else {
      block = allocate_plain(nbytes, stream, site);
      if (block == nullptr) {
        process_events(true);
        ++stats_.retries;
        block = allocate_plain(nbytes, stream, site);
      }
      if (block != nullptr) return block;
    }
    if (collected || host_hooks().collect == nullptr) break;
    // Objects in reference cycles may hold tensors. Freeing them calls back into this allocator.
    collected = true;
    lock.unlock();
    host_hooks().collect();
    lock.lock();
  }
  ++stats_.ooms;
  note(MemoryEvent::OutOfMemory, nullptr, size, stream, site);
  lock.unlock();
  throw Error(ErrorKind::OutOfMemory, out_of_memory_report(nbytes));
}

Block* DeviceAllocator::allocate_plain(std::size_t nbytes, StreamHandle stream, uint32_t site) {
  void* p = over_limit(nbytes) ? nullptr : driver_.allocate(device_, nbytes);
  if (p == nullptr) return nullptr;
  Block* block = new_segment(p, nbytes, stream, nbytes <= kSmallMost ? small_ : large_);
  take(block, nbytes, nbytes, site);
  return block;
}

// --- free ---

Block* DeviceAllocator::find(const void* address) const {
  Lock lock(mutex_);
  return live_.find(address);
}

void* DeviceAllocator::segment_of(const void* address) const {
  Lock lock(mutex_);
  const Block* block = live_.find(address);
  return block != nullptr && block->segment->unit == 0 ? block->segment->base : nullptr;
}

bool DeviceAllocator::in_capture_pool(const void* address) const {
  Lock lock(mutex_);
  const Block* block = live_.find(address);
  return block != nullptr && block->segment->pool->owner != nullptr;
}

void DeviceAllocator::note_use(const void* address, Stream stream) {
  Lock lock(mutex_);
  Block* block = live_.find(address);
  if (block == nullptr || (stream.device == device_ && stream.handle == block->segment->stream)) return;
  if (std::find(block->uses.begin(), block->uses.end(), stream) == block->uses.end()) block->uses.push_back(stream);
}

void DeviceAllocator::forget_use(const void* address, Stream stream) {
  Lock lock(mutex_);
  if (Block* block = live_.find(address)) std::erase(block->uses, stream);
}

void DeviceAllocator::await_uses(const void* address, Stream stream) {
  Lock lock(mutex_);
  Block* block = live_.find(address);
  if (block == nullptr) return;
  const Stream owner{block->segment->stream, device_};
  std::vector<Stream> others = block->uses;
  if (!(owner == stream)) others.push_back(owner);
  std::erase(others, stream);
  if (others.empty()) return;
  for (const Stream& other : others) {
    DeviceGuard guard(other.device);
    if (other.handle != nullptr && driver_.capture_state(other.handle) != CaptureState::None)
      continue;  // it runs later
    EventHandle event = take_event(other.device);
    driver_.record_event(event, other.handle);
    {
      DeviceGuard waits(stream.device);
      driver_.stream_wait_event(stream.handle, event);
    }
    spare_events_[other.device].push_back(event);  // one that is recorded anew does not change what was waited for
  }
  // The stream is behind all of them now.
  block->uses.clear();
  if (!(owner == stream)) block->uses.push_back(stream);
}

void DeviceAllocator::free(Block* block) {
  Lock lock(mutex_);
  ++clock_;
  release_block(block);
}

void DeviceAllocator::free_at(const void* address) {
  Lock lock(mutex_);
  ++clock_;
  if (Block* block = live_.find(address)) release_block(block);
}

void DeviceAllocator::release_block(Block* block) {
  BlockPool& pool = *block->segment->pool;
  live_.erase(block->address);
  block->allocated = false;
  if (pool.owner) --pool.owner->live;
  count(&AllocatorStats::allocation, pool, false, 1);
  count(&AllocatorStats::allocated_bytes, pool, false, block->size);
  count(&AllocatorStats::requested_bytes, pool, false, block->requested);
  note(MemoryEvent::Free, block->address, block->size, block->segment->stream, block->site);
  if (block->uses.empty()) return finish_free(block);
  // During a capture events cannot be queried.
  if (!active_pools_.empty()) {
    block->deferred = true;
    deferred_.push_back(block);
    return;
  }
  record_uses(block);
}

// The block is free when an event of each stream that used it has passed.
void DeviceAllocator::record_uses(Block* block) {
  for (const Stream& s : block->uses) {
    DeviceGuard guard(s.device);
    EventHandle event = take_event(s.device);
    driver_.record_event(event, s.handle);
    events_[{s.device, s.handle}].emplace_back(event, block);
    ++block->pending;
  }
  block->uses.clear();
}

void DeviceAllocator::finish_free(Block* block) {
  BlockPool& pool = *block->segment->pool;
  count(&AllocatorStats::active, pool, false, 1);
  count(&AllocatorStats::active_bytes, pool, false, block->size);
  note(MemoryEvent::FreeCompleted, block->address, block->size, block->segment->stream, block->site);
  block->requested = 0;
  block->freed_at = clock_;
  if (!options_.caching && !block->is_split() && block->segment->unit == 0) {
    Segment* segment = block->segment;
    delete_block(block);
    segment->first = nullptr;
    drop_segment(segment);
    return;
  }
  put_free(merge(block));
}

EventHandle DeviceAllocator::take_event(int device) {
  std::vector<EventHandle>& spare = spare_events_[device];
  if (spare.empty()) return driver_.create_event(device, kEventPlain);
  EventHandle event = spare.back();
  spare.pop_back();
  return event;
}

// Frees the blocks whose other streams are done; with `wait`, after waiting for them.
void DeviceAllocator::process_events(bool wait) {
  if (!active_pools_.empty()) return;  // while a stream is captured, events must not be queried
  if (wait && !events_.empty()) ++stats_.syncs;
  for (auto it = events_.begin(); it != events_.end();) {
    auto& queue = it->second;
    while (!queue.empty()) {
      auto [event, block] = queue.front();
      if (!driver_.has_passed(event, wait)) break;
      queue.pop_front();
      spare_events_[it->first.first].push_back(event);
      if (--block->pending == 0) finish_free(block);
    }
    it = queue.empty() ? events_.erase(it) : std::next(it);
  }
}

void DeviceAllocator::settle_deferred() {
  if (!active_pools_.empty()) return;
  std::vector<Block*> blocks;
  blocks.swap(deferred_);
  for (Block* block : blocks) {
    block->deferred = false;
    record_uses(block);
  }
}

// --- pools of captures ---

PrivatePool& DeviceAllocator::private_pool(uint64_t id) {
  std::unique_ptr<PrivatePool>& pool = private_pools_[id];
  if (!pool) {
    pool = std::make_unique<PrivatePool>();
    pool->id = id;
    pool->small_blocks.small = true;
    pool->small_blocks.owner = pool->large_blocks.owner = pool.get();
  }
  return *pool;
}

void DeviceAllocator::begin_pool(uint64_t pool, std::function<bool(StreamHandle)> belongs) {
  Lock lock(mutex_);
  for (const Active& a : active_pools_) TG_CHECK(a.pool != pool, Runtime, "cuda: memory goes to pool {} already", pool);
  ++private_pool(pool).users;
  active_pools_.push_back({pool, std::move(belongs)});
}

void DeviceAllocator::end_pool(uint64_t pool) {
  Lock lock(mutex_);
  auto it = std::find_if(active_pools_.begin(), active_pools_.end(), [&](const Active& a) { return a.pool == pool; });
  TG_CHECK(it != active_pools_.end(), Runtime, "cuda: no memory goes to pool {}", pool);
  active_pools_.erase(it);
  --private_pool(pool).users;
  settle_deferred();
}

void DeviceAllocator::retain_pool(uint64_t pool) {
  Lock lock(mutex_);
  ++private_pool(pool).users;
}

void DeviceAllocator::release_pool(uint64_t pool) {
  Lock lock(mutex_);
  auto it = private_pools_.find(pool);
  TG_CHECK(it != private_pools_.end() && it->second->users > 0, Runtime, "cuda: nobody uses pool {}", pool);
  --it->second->users;  // its free memory goes with the next release_cached
}

}  // namespace tapegrad::cuda
