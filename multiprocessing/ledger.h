// The ledger: the table of block ownership that a process shares with the receivers of its memory. One ledger per
// owner.
//   slots     one per process that holds anything: slot 0 is the owner, the last one pins for ever
//   entries   one per block of memory: which slots hold it, where it lies, and a generation that tells a stale handle
//   tickets   one per handle in transit, for one entry: live until the receiver is a holder
//   arenas    the epoch of each arena number, so that numbers can be reused
// Every process sets and clears its own bits only, so no lock is needed; the bits of a dead process are cleared by any
// process that notices its death. A block is free when it has no holder and no live ticket. This is safe because a
// receiver first sets its bit and then takes the ticket, whereas the owner reads tickets first and then bits. Thread
// rules: everything from any thread and process, but for `create` and the members marked "owner".
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tapegrad/multiprocessing/handle.h"
#include "tapegrad/multiprocessing/shared_file.h"

namespace tapegrad::shared {

inline constexpr uint32_t kSlots = 256;
inline constexpr uint32_t kOwnerSlot = 0;
inline constexpr uint32_t kPinSlot = kSlots - 1;
inline constexpr uint32_t kMaxArenas = 4096;
inline constexpr uint32_t kMaxEntries = 1u << 20;
inline constexpr uint32_t kNone = UINT32_MAX;

struct LedgerEntry {
  std::atomic<uint64_t> holders[kSlots / 64];
  std::atomic<uint32_t> generation;
  // The part of a handle that describes the block, written by the owner.
  std::atomic<HandleKind> kind;
  std::atomic<uint8_t> device, read_only;
  std::atomic<uint32_t> arena, epoch;
  std::atomic<uint64_t> offset, nbytes;
};
static_assert(sizeof(LedgerEntry) == 64);

// Identifies a process by its number and start time, since numbers are reused.
using ProcessMark = uint64_t;
TG_API ProcessMark mark_of(int pid) noexcept;  // 0 where there is no such process
TG_API bool is_alive(ProcessMark mark) noexcept;

class TG_API Ledger {
 public:
  // Makes a ledger, with this process in slot 0.
  static Ledger* create(uint64_t id);
  // Maps a received ledger. Error(Runtime) if it is not a ledger or not the expected one.
  static Ledger* open(Descriptor file, uint64_t id);
  ~Ledger();
  Ledger(const Ledger&) = delete;
  Ledger& operator=(const Ledger&) = delete;

  uint64_t id() const noexcept { return header().id; }
  const Descriptor& file() const noexcept { return file_; }
  void close_file() noexcept { file_.reset(); }

  // A free slot for a process, kNone when all are taken.
  uint32_t claim_slot(ProcessMark mark) noexcept;
  // Reserves a slot for a child that is about to be forked, which identifies itself with `arrive`; otherwise the slot
  // is cleared after half a minute.
  uint32_t reserve_slot() noexcept;
  void arrive(uint32_t slot, ProcessMark mark) noexcept;
  // Clears what dead processes held. Returns how many there were.
  int sweep_dead() noexcept;
  void sweep(uint32_t slot) noexcept;

  // Owner: makes `count` more entries or tickets usable; Error(Runtime) when the table is full, Error(OutOfMemory)
  // without memory.
  void commit_entries(uint32_t count);
  void commit_tickets(uint32_t count);

  LedgerEntry& entry(uint32_t i) noexcept { return entries()[i]; }
  bool valid_entry(uint32_t i) const noexcept;
  void hold(uint32_t entry, uint32_t slot) noexcept;
  void drop(uint32_t entry, uint32_t slot) noexcept;
  bool holds(uint32_t entry, uint32_t slot) const noexcept;
  bool held(uint32_t entry) const noexcept;
  // The block's description in its entry: written (owner), copied into a handle, and compared with a handle.
  void set_place(const Handle& handle) noexcept;
  void get_place(Handle& handle) const noexcept;
  bool is_place(const Handle& handle) const noexcept;

  // A ticket is live from `open_ticket` (owner) until one `take_ticket` succeeds, which names the same entry.
  uint32_t open_ticket(uint32_t ticket, uint32_t entry) noexcept;  // returns its generation
  bool take_ticket(uint32_t ticket, uint32_t generation, uint32_t entry) noexcept;
  bool ticket_live(uint32_t ticket, uint32_t generation, uint32_t entry) const noexcept;

  std::atomic<uint32_t>& arena_epoch(uint32_t arena) noexcept { return header().arena_epochs[arena]; }

 private:
  struct Header {
    char magic[8];
    uint64_t id;
    std::atomic<uint32_t> num_entries;  // usable ones
    std::atomic<uint32_t> num_tickets;
    std::atomic<uint64_t> slots[kSlots];        // 0: free; a ProcessMark; kSweeping; kExpected
    std::atomic<uint64_t> reserved_at[kSlots];  // seconds, of expected ones
    std::atomic<uint32_t> arena_epochs[kMaxArenas];
  };
  Ledger(Descriptor file, void* base) noexcept : file_(std::move(file)), base_(static_cast<char*>(base)) {}
  Header& header() const noexcept { return *reinterpret_cast<Header*>(base_); }
  LedgerEntry* entries() const noexcept;
  std::atomic<uint64_t>* tickets() const noexcept;  // the entry above, the generation below
  uint32_t claim(uint64_t word) noexcept;
  static size_t total_bytes() noexcept;

  Descriptor file_;
  char* base_;
};

}  // namespace tapegrad::shared
