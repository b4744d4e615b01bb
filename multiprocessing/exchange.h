// Storages that are shared between processes. The exchange of a process owns the arenas in which its shared memory
// lies, keeps the blocks that it received from others, and converts storages to handles and back.
//   share     moves the bytes of a storage into an arena; all views follow
//   give      creates a handle to be sent; the block stays until the handle is received or taken back
//   receive   the storage of a handle: the same object while an earlier one is alive
// A block returns to its owner's allocator when no process holds it and no handle is in transit. When a process dies,
// its holds end; when the owner dies, blocks that others hold stay valid for them. A child made by fork is a further
// holder of everything that its parent held, and owns nothing.
// Memory of a CUDA device is shared in the same way, with the same ledger: its bytes are moved to memory that the
// device's library can export (c10/device/device_interface.h), a receiver's stream waits for the sender's work, and a
// receiver releases a block when its own work is done. A child made by fork cannot use it. Thread rules: everything
// from any thread. Tests create several exchanges in one process; a program uses `exchange()`.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tapegrad/c10/memory/caching_allocator.h"
#include "tapegrad/c10/tensor/storage.h"
#include "tapegrad/multiprocessing/arena_source.h"
#include "tapegrad/multiprocessing/handle.h"
#include "tapegrad/multiprocessing/service.h"

namespace tapegrad::shared {

struct ExchangeStats {
  uint64_t id = 0;
  uint64_t arenas = 0, reserved_bytes = 0, allocated_bytes = 0;  // own arenas, and the bytes in them
  // Blocks of this process that are held by a process or in transit, and those of them that this process itself no
  // longer holds; handles in transit.
  uint64_t blocks = 0, pending = 0, tickets = 0;
  // Other processes whose memory this one holds; what came from them, and their arenas.
  uint64_t owners = 0, received = 0, mapped_arenas = 0;
};

class TG_API Exchange {
 public:
  explicit Exchange(uint64_t (*budget)() noexcept = shareable_memory);
  // No storage of the exchange may be alive.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  bool is_shared(const Storage& storage) const noexcept;
  // New memory with unspecified contents. `read_only`: other processes can only read it.
  Storage allocate(size_t nbytes, bool read_only = false);
  // The same storage with its bytes in an arena (of a device: in memory that can be opened elsewhere); another one
  // where foreign memory cannot be exchanged (NumPy, DLPack), the same one for the same foreign memory each time.
  Storage share(const Storage& storage);

  Handle give(const Storage& storage);
  Storage receive(const Handle& handle);
  // For handles that will not be received. False if it was already received or taken back.
  bool take_back(const Handle& handle) noexcept;
  // Whether a handle given by this process has not been received yet.
  bool on_its_way(const Handle& handle) noexcept;

  // Frees blocks that other processes have released. Also happens automatically.
  void collect(bool thorough = true);
  ExchangeStats stats();

 private:
  struct Source;
  struct Held;
  struct Block {
    void* data = nullptr;
    uint64_t nbytes = 0;
    uint32_t tickets = 0;
    bool read_only = false;
    bool pending = false;
    Device device;
    int64_t event = 0;  // of a device, when the block was sent
  };
  struct Key {
    uint64_t owner;
    uint32_t entry;
    bool operator==(const Key&) const = default;
  };
  struct KeyHash {
    size_t operator()(const Key& k) const noexcept { return k.owner * 0x9E3779B97F4A7C15u + k.entry; }
  };
  struct Local {  // the storages of this process on one block
    uint32_t count = 0;
    weak_intrusive_ptr<StorageImpl> newest;
  };
  struct Outgoing {
    Ticket ticket;
    uint32_t entry;
  };
  struct Pool {  // own memory: one pool for writable, one for read-only blocks
    std::unique_ptr<ArenaSource> source;
    std::unique_ptr<CachingAllocator> allocator;
  };

  static void released(void* held, void* data, size_t nbytes) noexcept;
  void become_owner();
  Pool& pool(bool read_only);
  void* allocate_bytes(size_t nbytes, bool read_only);
  uint32_t new_entry(void* data, size_t nbytes, bool read_only, Device device = {});
  Storage allocate_on(Device device, size_t nbytes);
  void free_block(Block& block) noexcept;
  void collect_if_due();
  std::unique_ptr<Held> hold_own(void* data, size_t nbytes, uint32_t entry, Device device = {});
  Storage publish(std::unique_ptr<Held> held, void* data, size_t nbytes);
  void forget(Held& held) noexcept;
  void retire(uint32_t entry) noexcept;
  Ticket open_ticket(uint32_t entry);
  void describe(Handle& handle, Block& block);
  void await_sender(const Handle& handle);
  void collect_locked(bool thorough) noexcept;
  Source& source_of(uint64_t owner);
  Ledger* ledger_of(const Handle& handle) noexcept;
  char* map_arena(Source& source, const Handle& handle);
  void reap_sources() noexcept;

  friend struct ForkHooks;
  void before_fork() noexcept;
  void after_fork_in_parent() noexcept;
  void after_fork_in_child() noexcept;

  uint64_t (*const budget_)() noexcept;
  mutable std::mutex mutex_;  // guards everything but the tickets
  std::unique_ptr<Ledger> ledger_;
  Pool pools_[2];
  std::unique_ptr<Service> service_;
  std::vector<Block> blocks_;  // by entry
  std::vector<uint32_t> free_entries_;
  std::vector<uint32_t> pending_;
  std::vector<uint32_t> looked_at_;  // of pending ones; as long, so that looking allocates nothing
  uint64_t calls_since_collect_ = 0;
  uint64_t swept_at_ = 0;  // seconds
  std::map<uint64_t, std::unique_ptr<Source>> sources_;
  std::unordered_map<Key, Local, KeyHash> local_;
  std::unordered_map<const void*, Held*> by_address_;
  std::unordered_map<const StorageImpl*, weak_intrusive_ptr<StorageImpl>> copies_;  // of foreign memory

  std::mutex tickets_mutex_;  // taken after mutex_; guards Block::tickets and these
  std::vector<Outgoing> outgoing_;
  std::atomic<uint64_t> num_outgoing_{0};  // its length, for a guess without the lock
  std::vector<uint32_t> free_tickets_;
  uint32_t num_tickets_ = 0;

  uint32_t child_slot_ = kNone;  // in the own ledger, while a child is being made
};

// The exchange of this process.
TG_API Exchange& exchange();

}  // namespace tapegrad::shared
