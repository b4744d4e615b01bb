// Reports of the caching allocator: counters, snapshots, the out-of-memory report, and the checks of its invariants
// that tests run after each call.
#include <algorithm>

#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/allocator.h"
#include "tapegrad/cuda/memory/device_allocator.h"

namespace tapegrad::cuda {

namespace {

template <class F>
void each_counter(AllocatorStats& s, F f) {
  for (auto* counters : {&s.allocation, &s.segment, &s.active, &s.inactive_split, &s.allocated_bytes, &s.reserved_bytes,
                         &s.active_bytes, &s.inactive_split_bytes, &s.requested_bytes})
    for (Counter& c : *counters) f(c);
}

BlockRecord record(const Block& b) {
  const auto state = !b.mapped                     ? BlockRecord::Unmapped
                     : b.allocated                 ? BlockRecord::Allocated
                     : b.pending > 0 || b.deferred ? BlockRecord::Pending
                                                   : BlockRecord::Free;
  return {reinterpret_cast<uint64_t>(b.address), b.size, b.requested, state, b.allocated ? b.site : 0};
}

}  // namespace

AllocatorStats DeviceAllocator::stats() const {
  Lock lock(mutex_);
  return stats_;
}

void DeviceAllocator::reset_peak() {
  Lock lock(mutex_);
  each_counter(stats_, [](Counter& c) { c.peak = c.current; });
}

void DeviceAllocator::reset_accumulated() {
  Lock lock(mutex_);
  each_counter(stats_, [](Counter& c) { c.allocated = c.freed = 0; });
  stats_.retries = stats_.ooms = stats_.syncs = stats_.device_allocs = stats_.device_frees = 0;
}

void DeviceAllocator::set_fraction(double fraction) {
  TG_CHECK(fraction >= 0 && fraction <= 1, Value, "cuda: the fraction of memory must be from 0 to 1: got {}", fraction);
  Lock lock(mutex_);
  options_.fraction = fraction;
}

double DeviceAllocator::fraction() const {
  Lock lock(mutex_);
  return options_.fraction;
}

void DeviceAllocator::set_option(std::string_view name, std::string_view value) {
  Lock lock(mutex_);
  AllocatorOptions options = options_;
  set_allocator_option(options, name, value);
  TG_CHECK(options.caching == options_.caching, Value,
           "cuda: the backend of the allocator is chosen before the first use: set TAPEGRAD_CUDA_ALLOC_CONF");
  options_ = options;
}

void DeviceAllocator::record_history(std::size_t most_events) {
  Lock lock(mutex_);
  most_events_ = most_events;
  while (history_.size() > most_events) history_.pop_front();
}

std::vector<MemoryEvent> DeviceAllocator::history() const {
  Lock lock(mutex_);
  return {history_.begin(), history_.end()};
}

std::vector<SegmentRecord> DeviceAllocator::segments() const {
  Lock lock(mutex_);
  std::vector<SegmentRecord> all;
  for (const Segment* s : segments_) {
    if (s->mapped_bytes == 0) continue;
    SegmentRecord r{reinterpret_cast<uint64_t>(s->base),
                    s->size,
                    s->mapped_bytes,
                    s->pool->owner ? s->pool->owner->id : 0,
                    s->stream,
                    s->pool->small,
                    s->unit > 0,
                    {}};
    for (const Block* b = s->first; b != nullptr; b = b->next) r.blocks.push_back(record(*b));
    if (r.blocks.back().state == BlockRecord::Unmapped) {  // the rest of the addresses
      r.size -= r.blocks.back().size;
      r.blocks.pop_back();
    }
    all.push_back(std::move(r));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.address < b.address; });
  return all;
}

// The out-of-memory report: the memory held, by lines of the program.
std::string DeviceAllocator::out_of_memory_report(std::size_t nbytes) const {
  struct Group {
    uint64_t bytes = 0, blocks = 0;
  };
  std::map<uint32_t, Group> groups;
  uint64_t allocated, reserved, free_bytes = 0, largest = 0, pending = 0, private_bytes = 0;
  MemoryInfo info;
  {
    Lock lock(mutex_);
    live_.for_each([&](const Block* b) {
      Group& g = groups[b->site];
      g.bytes += b->size;
      ++g.blocks;
      if (b->segment->pool->owner) private_bytes += b->size;
    });
    for (const Segment* s : segments_)
      for (const Block* b = s->first; b != nullptr; b = b->next) {
        if (b->is_free()) {
          free_bytes += b->size;
          largest = std::max<uint64_t>(largest, b->size);
        } else if (b->mapped && !b->allocated) {
          pending += b->size;
        }
      }
    allocated = stats_.allocated_bytes[AllocatorStats::All].current;
    reserved = stats_.reserved_bytes[AllocatorStats::All].current;
    info = driver_.memory_info(device_);
  }
  const uint64_t outside = info.total - std::min<uint64_t>(info.total, info.free + reserved);
  std::string text = fmt::format(
      "cuda: out of memory: tried to allocate {} on cuda:{}: {} in all, {} free, {} held by tapegrad ({} in tensors, "
      "{} free in "
      "its cache), {} by others",
      format_bytes(nbytes), device_, format_bytes(info.total), format_bytes(info.free), format_bytes(reserved),
      format_bytes(allocated), format_bytes(free_bytes), format_bytes(outside));
  text += fmt::format(
      "\nlargest free block {}; fragmentation {:.0f} %", format_bytes(std::max<uint64_t>(largest, info.free)),
      free_bytes == 0 ? 0.0 : 100.0 * (1.0 - static_cast<double>(largest) / static_cast<double>(free_bytes)));
  if (pending > 0) text += fmt::format("; {} wait for other streams", format_bytes(pending));
  if (private_bytes > 0) text += fmt::format("; {} belong to graphs", format_bytes(private_bytes));
  if (options_.fraction < 1)
    text += fmt::format("; at most {:.0f} % of the device may be taken", 100 * options_.fraction);
  std::vector<std::pair<uint32_t, Group>> sorted(groups.begin(), groups.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  if (!sorted.empty()) text += "\nwho holds the memory, by the line that asked for it:";
  for (size_t i = 0; i < std::min<size_t>(sorted.size(), 10); ++i) {
    const auto& [site, g] = sorted[i];
    const HostHooks& hooks = host_hooks();
    const std::string where = site != 0 && hooks.describe_site ? hooks.describe_site(site) : "(not known)";
    text += fmt::format("\n  {:>12}  {:5.1f} %  in {} {}  {}", format_bytes(g.bytes),
                        100.0 * static_cast<double>(g.bytes) / static_cast<double>(std::max<uint64_t>(allocated, 1)),
                        g.blocks, g.blocks == 1 ? "block " : "blocks", where);
  }
  if (sorted.size() > 10) text += fmt::format("\n  and {} other lines", sorted.size() - 10);
  return text;
}

// --- checks ---

void DeviceAllocator::watch_changes(bool on) {
  Lock lock(mutex_);
  watching_ = on;
  touched_.clear();
}

// A block and its bonds to both neighbours, its segment and its list.
void DeviceAllocator::check_block(const Block* b) const {
  const Segment* s = b->segment;
  if (s == nullptr) return;  // merged into another since
  TG_ASSERT(b->size > 0 && b->address >= s->base && b->address + b->size <= s->base + s->size);
  TG_ASSERT(b->prev ? b->prev->next == b && b->prev->address + b->prev->size == b->address
                    : s->first == b && b->address == s->base);
  TG_ASSERT(b->next ? b->next->prev == b && b->address + b->size == b->next->address
                    : b->address + b->size == s->base + s->size);
  TG_ASSERT(s->pool->free.count(const_cast<Block*>(b)) == (b->is_free() ? 1u : 0u));
  TG_ASSERT(s->pool->unmapped.count(const_cast<Block*>(b)) == (b->mapped ? 0u : 1u));
  TG_ASSERT((live_.find(b->address) == b) == b->allocated);
  for (const Block* n : {b->prev, b->next}) TG_ASSERT(n == nullptr || !(n->is_free() && b->is_free()));
  for (const Block* n : {b->prev, b->next}) TG_ASSERT(n == nullptr || n->mapped || b->mapped);
  if (!b->mapped) TG_ASSERT(!b->allocated && b->pending == 0 && s->unit > 0);
  if (b->allocated) TG_ASSERT(b->requested > 0 && b->requested <= b->size && b->pending == 0);
  if (s->unit > 0) {
    const auto from = static_cast<std::size_t>(b->address - s->base), to = from + b->size;
    if (!b->mapped) TG_ASSERT(from % s->unit == 0 && to % s->unit == 0);
    // The units at both ends, which a wrong cut would show in.
    for (std::size_t u : {from / s->unit, (to - 1) / s->unit}) TG_ASSERT((s->memory[u] != 0) == b->mapped);
  }
}

void DeviceAllocator::check_changed() {
  Lock lock(mutex_);
  for (const Block* b : touched_) check_block(b);
  touched_.clear();
  const AllocatorStats& s = stats_;
  TG_ASSERT(s.allocation[0].current == live_.size());
  TG_ASSERT(s.active_bytes[0].current >= s.allocated_bytes[0].current);
  TG_ASSERT(s.reserved_bytes[0].current >= s.active_bytes[0].current);
  TG_ASSERT(s.allocated_bytes[0].current >= s.requested_bytes[0].current);
  for (const auto* counters : {&s.allocation, &s.allocated_bytes, &s.reserved_bytes, &s.active_bytes})
    TG_ASSERT((*counters)[0].current == (*counters)[1].current + (*counters)[2].current);
}

void DeviceAllocator::check() const {
  Lock lock(mutex_);
  uint64_t allocated = 0, active = 0, reserved = 0, split = 0, live = 0, free_blocks = 0, unmapped = 0, lists = 0,
           gaps = 0;
  std::unordered_set<const BlockPool*> pools;
  for (const Segment* s : segments_) {
    pools.insert(s->pool);
    uint64_t mapped = 0;
    for (const Block* b = s->first; b != nullptr; b = b->next) {
      TG_ASSERT(b->segment == s);
      check_block(b);
      if (!b->mapped) {
        ++unmapped;
        continue;
      }
      mapped += b->size;
      if (b->allocated) {
        allocated += b->size;
        ++live;
      }
      if (!b->is_free()) active += b->size;
      if (b->is_free()) ++free_blocks;
      if (b->is_free() && b->is_split()) split += b->size;
    }
    TG_ASSERT(mapped == s->mapped_bytes);
    reserved += mapped;
    for (size_t u = 0; u < s->memory.size(); ++u) gaps += s->memory[u] != 0 ? s->unit : 0;
    if (s->unit > 0) TG_ASSERT(gaps == s->mapped_bytes);
    gaps = 0;
  }
  for (const BlockPool* p : pools) lists += p->free.size() + p->unmapped.size();
  TG_ASSERT(lists == free_blocks + unmapped);
  TG_ASSERT(live == live_.size());
  const AllocatorStats& s = stats_;
  TG_ASSERT(s.allocated_bytes[0].current == allocated && s.allocation[0].current == live);
  TG_ASSERT(s.active_bytes[0].current == active);
  TG_ASSERT(s.reserved_bytes[0].current == reserved);
  TG_ASSERT(s.inactive_split_bytes[0].current == split);
}

}  // namespace tapegrad::cuda
