// Growth of the caching allocator, and what it does when memory runs out.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/memory/device_allocator.h"

namespace tapegrad::cuda {

namespace {

constexpr std::size_t kSmallSegment = std::size_t{2} << 20;
constexpr std::size_t kLargeSegment = std::size_t{20} << 20;
constexpr std::size_t kOwnSegment = std::size_t{10} << 20;  // requests from here on get a segment of their size

std::size_t up(std::size_t n, std::size_t step) { return (n + step - 1) / step * step; }

}  // namespace

bool DeviceAllocator::over_limit(std::size_t more) const {
  if (options_.fraction >= 1) return false;
  const auto limit = static_cast<std::size_t>(options_.fraction * static_cast<double>(total_));
  return stats_.reserved_bytes[AllocatorStats::All].current + more > limit;
}

Block* DeviceAllocator::grow(BlockPool& pool, std::size_t size, StreamHandle stream) {
  return options_.expandable_segments && granularity_ > 0 && !pool.fixed ? grow_expandable(pool, size, stream)
                                                                         : grow_segment(pool, size, stream);
}

// Memory of the driver as a segment of one block, which is in no list.
Block* DeviceAllocator::new_segment(void* p, std::size_t nbytes, StreamHandle stream, BlockPool& pool) {
  auto* segment = new Segment;
  segment->base = static_cast<char*>(p);
  segment->size = segment->mapped_bytes = nbytes;
  segment->stream = stream;
  segment->pool = &pool;
  segments_.insert(segment);
  Block* block = new_block();
  block->segment = segment;
  block->address = segment->base;
  block->size = nbytes;
  segment->first = block;
  ++stats_.device_allocs;
  count(&AllocatorStats::segment, pool, true, 1);
  count(&AllocatorStats::reserved_bytes, pool, true, nbytes);
  return block;
}

Block* DeviceAllocator::grow_segment(BlockPool& pool, std::size_t size, StreamHandle stream) {
  std::size_t nbytes = pool.small ? kSmallSegment : size < kOwnSegment ? kLargeSegment : up(size, kSmallSegment);
  void* p = nullptr;
  if (!over_limit(nbytes)) p = driver_.allocate(device_, nbytes);
  if (p == nullptr && nbytes > size && !pool.fixed) {  // the last piece of the device: only the requested size
    nbytes = size;
    if (!over_limit(nbytes)) p = driver_.allocate(device_, nbytes);
  }
  if (p == nullptr) return nullptr;
  Block* block = new_segment(p, nbytes, stream, pool);
  note(MemoryEvent::SegmentAlloc, p, nbytes, stream, 0);
  return block;
}

// Gives memory to the first `nbytes` (whole units) of an unmapped block, which is in its list; how many got some. Where
// that is not 0, `block` is mapped and in no list afterwards, and the rest of it is an unmapped block of its own.
std::size_t DeviceAllocator::map_front(Block* block, std::size_t nbytes) {
  Segment& s = *block->segment;
  BlockPool& pool = *s.pool;
  const std::size_t first = static_cast<std::size_t>(block->address - s.base) / s.unit;
  std::size_t done = 0;
  while (done < nbytes && !over_limit(done + s.unit)) {
    const PhysicalHandle memory = driver_.create_memory(device_, s.unit);
    if (memory == 0) break;
    try {
      driver_.map(device_, block->address + done, memory, s.unit);
    } catch (...) {
      driver_.release_memory(device_, memory, s.unit);
      if (done == 0) throw;
      break;
    }
    s.memory[first + done / s.unit] = memory;
    done += s.unit;
    ++stats_.device_allocs;
  }
  if (done > 0) {
    if (s.mapped_bytes == 0) count(&AllocatorStats::segment, pool, true, 1);
    s.mapped_bytes += done;
    count(&AllocatorStats::reserved_bytes, pool, true, done);
    note(MemoryEvent::SegmentAlloc, block->address, done, s.stream, 0);
    pool.unmapped.erase(block);
    if (done < block->size) pool.unmapped.insert(split(block, done));
    block->mapped = true;
  }
  return done;
}

// Looks for the place where the fewest new bytes make a block of `size`: unmapped addresses, with the free blocks
// before and after them.
Block* DeviceAllocator::grow_expandable(BlockPool& pool, std::size_t size, StreamHandle stream) {
  const std::size_t unit = pool.small ? std::max(granularity_, kSmallSegment) : large_unit_;
  Block* best = nullptr;  // the first of the chain
  std::size_t best_new = SIZE_MAX;
  int looked_at = 0;
  Segment key_segment;
  key_segment.stream = stream;
  Block key;
  key.segment = &key_segment;
  for (auto it = pool.unmapped.lower_bound(&key); it != pool.unmapped.end() && (*it)->segment->stream == stream; ++it) {
    Block* start = *it;
    if (start->prev && start->prev->is_free()) start = start->prev;
    std::size_t have = 0, fresh = 0;
    for (Block* b = start; b != nullptr && have < size && (!b->mapped || b->is_free()); b = b->next) {
      const std::size_t part = b->mapped ? b->size : std::min(b->size, up(size - have, unit));
      have += part;
      if (!b->mapped) fresh += part;
    }
    if (have >= size && fresh < best_new) {
      best = start;
      best_new = fresh;
    }
    if (++looked_at == 256) break;
  }
  // Half a block that can never become whole would be mapped and unmapped again, unit by unit.
  if (best == nullptr) best_new = up(size, unit);
  if (best_new > unit && (over_limit(best_new) || driver_.memory_info(device_).free < best_new)) return nullptr;
  if (best == nullptr) {
    auto* segment = new Segment;
    segment->size = up(std::max(total_ + total_ / 8, size), unit);
    segment->unit = unit;
    segment->stream = stream;
    segment->pool = &pool;
    try {
      segment->base = static_cast<char*>(driver_.reserve_addresses(device_, segment->size));
    } catch (...) {
      delete segment;
      return nullptr;
    }
    segment->memory.resize(segment->size / unit);
    segments_.insert(segment);
    best = new_block();
    best->segment = segment;
    best->address = segment->base;
    best->size = segment->size;
    best->mapped = false;
    segment->first = best;
    pool.unmapped.insert(best);
  }
  bool enough = true;
  if (best->mapped) {
    remove_free(best);
  } else {
    const std::size_t wanted = std::min(best->size, up(size, unit));
    const std::size_t done = map_front(best, wanted);
    if (done == 0) return nullptr;
    enough = done == wanted;
  }
  auto absorb_next = [&] {
    Block* next = best->next;
    best->size += next->size;
    best->next = next->next;
    if (next->next) next->next->prev = best;
    delete_block(next);
  };
  while (enough && best->size < size) {
    Block* next = best->next;
    TG_ASSERT(next != nullptr);
    if (next->mapped) {
      remove_free(next);
    } else {
      const std::size_t wanted = std::min(next->size, up(size - best->size, unit));
      const std::size_t done = map_front(next, wanted);
      enough = done == wanted;
      if (done == 0) break;
    }
    absorb_next();
  }
  // Merged with the next block if that is free, so that no two free blocks are adjacent.
  if (Block* next = best->next; next != nullptr && next->is_free()) {
    remove_free(next);
    absorb_next();
  }
  if (!enough) {  // what there was stays, free
    put_free(best);
    return nullptr;
  }
  return best;
}

// Gives the whole units inside a free block back. The block is in no list before; what is left of it is in its list
// after.
void DeviceAllocator::unmap_inside(Block* block) {
  Segment& s = *block->segment;
  BlockPool& pool = *s.pool;
  const auto offset = static_cast<std::size_t>(block->address - s.base);
  const std::size_t begin = up(offset, s.unit), end = (offset + block->size) / s.unit * s.unit;
  if (begin >= end) return put_free(block);
  Block* middle = block;
  if (begin > offset) {
    middle = split(block, begin - offset);
    put_free(block);
  }
  if (end - begin < middle->size) put_free(split(middle, end - begin));
  for (std::size_t at = begin; at < end; at += s.unit) {
    driver_.unmap(device_, s.base + at, s.unit);
    driver_.release_memory(device_, s.memory[at / s.unit], s.unit);
    s.memory[at / s.unit] = 0;
    ++stats_.device_frees;
  }
  s.mapped_bytes -= end - begin;
  if (s.mapped_bytes == 0) count(&AllocatorStats::segment, pool, false, 1);
  count(&AllocatorStats::reserved_bytes, pool, false, end - begin);
  note(MemoryEvent::SegmentFree, s.base + begin, end - begin, s.stream, 0);
  middle->mapped = false;
  middle = merge(middle);
  pool.unmapped.insert(middle);
  touched(middle);
}

void DeviceAllocator::drop_segment(Segment* segment) {
  if (segment->unit > 0) {
    if (segment->first) {
      segment->pool->unmapped.erase(segment->first);
      delete_block(segment->first);
    }
    driver_.release_addresses(device_, segment->base, segment->size);
  } else {
    driver_.free(device_, segment->base);
    ++stats_.device_frees;
    count(&AllocatorStats::segment, *segment->pool, false, 1);
    count(&AllocatorStats::reserved_bytes, *segment->pool, false, segment->size);
    note(MemoryEvent::SegmentFree, segment->base, segment->size, segment->stream, 0);
  }
  segments_.erase(segment);
  delete segment;
}

// Releases as much of a free block as possible; returns whether anything was released. The block's stream may still use
// it, so the caller must have waited for it.
bool DeviceAllocator::release_free_block(Block* block) {
  Segment* s = block->segment;
  if (s->unit == 0) {
    if (block->is_split()) return false;
    remove_free(block);
    delete_block(block);
    s->first = nullptr;
    drop_segment(s);
    return true;
  }
  const auto offset = static_cast<std::size_t>(block->address - s->base);
  if (up(offset, s->unit) >= (offset + block->size) / s->unit * s->unit) return false;
  remove_free(block);
  unmap_inside(block);
  return true;
}

// Returns free memory to the driver, the largest blocks first, until `target` bytes are released; returns their number.
// Pools of captures keep their memory while a graph needs it, and are considered only with `including_private`.
std::size_t DeviceAllocator::release_cached(bool including_private, std::size_t target) {
  if (!active_pools_.empty()) {
    // A stream that is captured cannot be waited for, nor may its device.
    if (!including_private) return 0;
  }
  std::vector<Block*> blocks;
  auto gather = [&](BlockPool& pool) { blocks.insert(blocks.end(), pool.free.begin(), pool.free.end()); };
  for (BlockPool* pool : {&large_, &small_, &fixed_large_, &fixed_small_}) gather(*pool);
  std::vector<PrivatePool*> unused;
  if (including_private)
    for (auto& [id, p] : private_pools_)
      if (p->users == 0 && !(p->large_blocks.free.empty() && p->small_blocks.free.empty())) unused.push_back(p.get());
  // Replays of a graph use its memory on any stream, and nothing notes them, so the device has to be waited for. During
  // a capture that is not possible.
  if (!unused.empty() && active_pools_.empty()) {
    driver_.synchronize_device(device_);
    for (PrivatePool* p : unused) {
      gather(p->large_blocks);
      gather(p->small_blocks);
    }
  }
  std::sort(blocks.begin(), blocks.end(), [](const Block* a, const Block* b) { return a->size > b->size; });
  std::set<StreamHandle> waited;
  std::size_t released = 0;
  for (Block* b : blocks) {
    if (released >= target) break;
    const StreamHandle stream = b->segment->stream;
    const std::size_t before = stats_.reserved_bytes[AllocatorStats::All].current;
    if (!waited.count(stream)) {
      DeviceGuard guard(device_);
      if (driver_.capture_state(stream) != CaptureState::None) continue;
      driver_.synchronize_stream(stream);
      waited.insert(stream);
    }
    release_free_block(b);
    released += before - stats_.reserved_bytes[AllocatorStats::All].current;
  }
  if (including_private) {
    std::erase_if(private_pools_, [&](auto& entry) {
      PrivatePool& p = *entry.second;
      if (p.users > 0 || p.live > 0 || !p.small_blocks.free.empty() || !p.large_blocks.free.empty()) return false;
      for (Segment* s : std::vector<Segment*>(segments_.begin(), segments_.end())) {
        if (s->pool->owner != &p) continue;
        if (s->mapped_bytes > 0) return false;  // blocks that other streams still use
        drop_segment(s);
      }
      return true;
    });
  }
  return released;
}

// Frees what has not been used for longest while more than the wished share of the device is taken.
void DeviceAllocator::collect_old(std::size_t size) {
  const auto most = static_cast<std::size_t>(options_.collect_above * options_.fraction * static_cast<double>(total_));
  auto reserved = [&] { return stats_.reserved_bytes[AllocatorStats::All].current; };
  if (reserved() + size <= most || !active_pools_.empty()) return;
  std::vector<Block*> blocks(large_.free.begin(), large_.free.end());
  std::sort(blocks.begin(), blocks.end(), [](const Block* a, const Block* b) { return a->freed_at < b->freed_at; });
  std::set<StreamHandle> waited;
  for (Block* b : blocks) {
    if (reserved() + size <= most) break;
    if (waited.insert(b->segment->stream).second) {
      DeviceGuard guard(device_);
      driver_.synchronize_stream(b->segment->stream);
    }
    release_free_block(b);
  }
}

void DeviceAllocator::empty_cache() {
  Lock lock(mutex_);
  process_events(true);
  release_cached(true, SIZE_MAX);
}

void set_allocator_option(AllocatorOptions& options, std::string_view name, std::string_view text) {
  const std::string value(text);
  char* end = nullptr;
  const double number = std::strtod(value.c_str(), &end);
  const bool is_number = !value.empty() && *end == '\0';
  if (name == "backend" && (value == "native" || value == "plain"))
    options.caching = value == "native";
  else if (name == "expandable_segments" && (value == "True" || value == "False"))
    options.expandable_segments = value == "True";
  else if (name == "garbage_collection_threshold" && is_number && number >= 0 && number < 1)
    options.collect_above = number;
  else
    TG_THROW(Value,
             "cuda: options of the allocator are backend:native|plain, expandable_segments:True|False and "
             "garbage_collection_threshold:0..1: got '{}:{}'",
             name, value);
}

AllocatorOptions allocator_options_from_environment() {
  AllocatorOptions options;
  const char* text = std::getenv("TAPEGRAD_CUDA_ALLOC_CONF");
  std::string_view rest = text == nullptr ? "" : text;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    const std::string_view item = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    const size_t colon = std::min(item.find(':'), item.size());
    set_allocator_option(options, item.substr(0, colon), item.substr(std::min(colon + 1, item.size())));
  }
  return options;
}

DeviceAllocator& device_allocator(int device) {
  static auto* mutex = new std::mutex;
  static auto* all = new std::array<std::atomic<DeviceAllocator*>, 64>{};
  TG_CHECK(device >= 0 && device < 64, Runtime, "cuda: device index out of range: {}", device);
  std::atomic<DeviceAllocator*>& slot = (*all)[static_cast<size_t>(device)];
  if (DeviceAllocator* have = slot.load(std::memory_order_acquire)) return *have;
  std::lock_guard lock(*mutex);
  if (slot.load(std::memory_order_relaxed) == nullptr) {
    check_device(device);
    slot.store(new DeviceAllocator(driver(), device, allocator_options_from_environment()), std::memory_order_release);
  }
  return *slot.load(std::memory_order_relaxed);
}

}  // namespace tapegrad::cuda
