// The caching allocator of one device. Freeing is cheap and never waits, because the memory is reused only by later
// work of the same stream; work of other streams on a block is recorded (note_use) and delays the block's reuse until
// that work is done. Rules:
//   sizes       multiples of 512 bytes; above 1 MiB 32 classes per doubling (at most 6.3 % slack)
//   pools       up to 1 MiB from small segments, the rest from large ones; captures of graphs have pools of their own
//               (a small request that does not fit uses a gap between large blocks); memory that other processes
//               open has a pool, too, whose segments are always fixed
//   search      best fit among the free blocks of the stream; the rest of a block is split off and merged when freed
//   growth      expandable segments: addresses for the whole device per stream and pool, memory mapped where it is
//               needed, in units of 2 MiB (small pool) or up to 20 MiB; where there is no virtual memory management,
//               segments of 2 or 20 MiB, or of the request itself from 10 MiB
//   shortage    old free memory above a threshold; free memory of every stream and pool, after waiting for the device;
//               garbage of the host language; then OutOfMemory with a report of who holds what
// Threads: all functions from any thread; one lock. Ownership: the caller owns an allocated block until `free`.
#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "tapegrad/cuda/memory/address_map.h"
#include "tapegrad/cuda/memory/block.h"

namespace tapegrad::cuda {

struct AllocatorOptions {
  bool caching = true;  // false: every call goes to the driver, to find misuse with other tools
  bool expandable_segments = true;
  double collect_above = 0;  // of the memory: free what was not used longest before growing beyond; 0: never
  double fraction = 1;       // of the device's memory that may be taken
};
// Reads TAPEGRAD_CUDA_ALLOC_CONF, "name:value,..." with backend:native|plain, expandable_segments:True|False and
// garbage_collection_threshold:0.8.
TG_API AllocatorOptions allocator_options_from_environment();
// Sets one of these options; Value for an unknown one.
TG_API void set_allocator_option(AllocatorOptions& options, std::string_view name, std::string_view value);

struct Counter {
  uint64_t current = 0, peak = 0, allocated = 0, freed = 0;
  void add(uint64_t n) noexcept {
    current += n;
    allocated += n;
    if (current > peak) peak = current;
  }
  void remove(uint64_t n) noexcept {
    current -= n;
    freed += n;
  }
};

struct AllocatorStats {
  enum Which { All, Small, Large };
  // Numbers of blocks and segments, and bytes; [All, Small, Large].
  std::array<Counter, 3> allocation, segment, active, inactive_split;
  std::array<Counter, 3> allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  uint64_t retries = 0, ooms = 0, syncs = 0, device_allocs = 0, device_frees = 0;
};

struct MemoryEvent {
  enum Kind : uint8_t { Alloc, Free, FreeCompleted, SegmentAlloc, SegmentFree, OutOfMemory } kind;
  uint32_t site;
  uint64_t address, size;
  StreamHandle stream;
  uint64_t time_us;
};

// A block and a segment in a snapshot.
struct BlockRecord {
  uint64_t address, size, requested;
  enum State : uint8_t { Allocated, Pending, Free, Unmapped } state;
  uint32_t site;
};
struct SegmentRecord {
  uint64_t address, size, mapped, pool;
  StreamHandle stream;
  bool small, expandable;
  std::vector<BlockRecord> blocks;
};

class TG_API DeviceAllocator {
 public:
  DeviceAllocator(Driver& driver, int device, AllocatorOptions options = {});
  ~DeviceAllocator();  // returns all memory to the driver; no block may be in use
  DeviceAllocator(const DeviceAllocator&) = delete;
  DeviceAllocator& operator=(const DeviceAllocator&) = delete;

  // nbytes > 0. `fixed`: in a segment that other processes can open (`segment_of`).
  Block* allocate(std::size_t nbytes, StreamHandle stream, uint32_t site = 0, bool fixed = false);
  void free(Block* block);
  void free_at(const void* address);       // nothing where no allocated block starts there
  Block* find(const void* address) const;  // the allocated block that starts there, or null
  void note_use(const void* address, Stream stream);
  void forget_use(const void* address, Stream stream);  // as if it had not been noted
  // Makes `stream` wait for what other streams do with the block, so that it may be used as if it had been freed and
  // allocated again.
  void await_uses(const void* address, Stream stream);
  // Where the fixed segment of an allocated block begins; null for other memory.
  void* segment_of(const void* address) const;
  bool in_capture_pool(const void* address) const;  // an allocated block's start

  void empty_cache();
  AllocatorStats stats() const;
  void reset_peak();
  void reset_accumulated();
  void set_fraction(double fraction);
  double fraction() const;
  void set_option(std::string_view name, std::string_view value);  // one of TAPEGRAD_CUDA_ALLOC_CONF, but backend
  void record_history(std::size_t most_events);                    // 0: off

  // Memory of captures. From begin_pool to end_pool, allocations for which `belongs` is true go to the pool; it is
  // called with the lock held, with the stream of the request.
  void begin_pool(uint64_t pool, std::function<bool(StreamHandle)> belongs);
  void end_pool(uint64_t pool);
  void retain_pool(uint64_t pool);
  void release_pool(uint64_t pool);

  std::vector<SegmentRecord> segments() const;
  std::vector<MemoryEvent> history() const;
  std::string out_of_memory_report(std::size_t nbytes) const;

  static std::size_t round(std::size_t nbytes) noexcept;
  // Verify everything, or what the last calls changed (with watch_changes on): Error(Internal). For tests.
  void check() const;
  void check_changed();
  void watch_changes(bool on);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Which = AllocatorStats::Which;
  struct Active {
    uint64_t pool;
    std::function<bool(StreamHandle)> belongs;
  };

  BlockPool& pool_for(std::size_t size, StreamHandle stream, bool fixed);
  Block* try_allocate(BlockPool& pool, std::size_t size, StreamHandle stream);
  Block* allocate_plain(std::size_t nbytes, StreamHandle stream, uint32_t site);
  Block* best_fit(BlockPool& pool, std::size_t size, StreamHandle stream, std::size_t most = SIZE_MAX);
  Block* borrow(BlockPool& pool, std::size_t size, StreamHandle stream, std::size_t most);
  Block* grow(BlockPool& pool, std::size_t size, StreamHandle stream);
  Block* grow_expandable(BlockPool& pool, std::size_t size, StreamHandle stream);
  Block* grow_segment(BlockPool& pool, std::size_t size, StreamHandle stream);
  Block* new_segment(void* p, std::size_t nbytes, StreamHandle stream, BlockPool& pool);
  std::size_t map_front(Block* block, std::size_t nbytes);
  void unmap_inside(Block* block);
  void take(Block* block, std::size_t size, std::size_t requested, uint32_t site);
  void release_block(Block* block);
  void put_free(Block* block);
  void remove_free(Block* block);
  Block* merge(Block* block);
  Block* split(Block* block, std::size_t size);
  void finish_free(Block* block);
  void process_events(bool wait);
  void record_uses(Block* block);
  void settle_deferred();
  std::size_t release_cached(bool including_private, std::size_t target);
  void collect_old(std::size_t size);
  bool release_free_block(Block* block);
  bool over_limit(std::size_t more) const;
  void drop_segment(Segment* segment);
  EventHandle take_event(int device);
  void count(std::array<Counter, 3> AllocatorStats::* which, const BlockPool& pool, bool add, uint64_t n);
  void note(MemoryEvent::Kind kind, const void* address, std::size_t size, StreamHandle stream, uint32_t site);
  void touched(Block* block);
  void check_block(const Block* block) const;
  Block* new_block();
  void delete_block(Block* block);
  PrivatePool& private_pool(uint64_t id);

  Driver& driver_;
  const int device_;
  AllocatorOptions options_;
  mutable std::mutex mutex_;
  std::size_t total_ = 0;
  std::size_t granularity_ = 0;
  std::size_t large_unit_ = 0;
  BlockPool small_, large_, fixed_small_, fixed_large_;
  std::map<uint64_t, std::unique_ptr<PrivatePool>> private_pools_;
  std::vector<Active> active_pools_;
  std::unordered_set<Segment*> segments_;
  AddressMap<Block> live_;
  std::map<std::pair<int, StreamHandle>, std::deque<std::pair<EventHandle, Block*>>> events_;
  std::map<int, std::vector<EventHandle>> spare_events_;
  std::vector<Block*> deferred_;
  std::vector<Block*> spare_blocks_;
  AllocatorStats stats_;
  uint64_t clock_ = 0;
  std::deque<MemoryEvent> history_;
  std::size_t most_events_ = 0;
  bool watching_ = false;
  std::vector<Block*> touched_;
};

// The allocator of a device; made on first use, never destroyed.
TG_API DeviceAllocator& device_allocator(int device);

}  // namespace tapegrad::cuda
