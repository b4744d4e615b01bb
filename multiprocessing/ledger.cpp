#include "tapegrad/multiprocessing/ledger.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "tapegrad/c10/error.h"
#include "tapegrad/c10/memory/proc_file.h"

namespace tapegrad::shared {

namespace {

constexpr char kMagic[8] = {'t', 'g', 'l', 'e', 'd', 'g', 'e', '1'};
constexpr uint64_t kSweeping = 1, kExpected = 2;  // no process has these marks
constexpr uint64_t kArrivalSeconds = 30;
constexpr size_t kPage = 4096;

constexpr size_t round_up(size_t n) { return (n + kPage - 1) / kPage * kPage; }

uint64_t now_s() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec);
}

// "pid (name) state ppid ...": the name may hold blanks and brackets, so what is wanted is counted from its end.
bool read_stat(int pid, char& state, uint64_t& start) noexcept {
  char path[32];
  std::snprintf(path, sizeof(path), "/proc/%d/stat", pid);
  const detail::ProcFile file(path);
  const size_t name_end = file.text().rfind(')');
  if (!file.ok() || name_end == std::string::npos) return false;
  const char* p = file.text().c_str() + name_end + 1;
  unsigned long long ticks = 0;
  // After the name: state and 18 numbers, then the start in clock ticks.
  if (std::sscanf(p, " %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu", &state,
                  &ticks) != 2)
    return false;
  start = ticks;
  return true;
}

}  // namespace

ProcessMark mark_of(int pid) noexcept {
  char state = 0;
  uint64_t start = 0;
  if (!read_stat(pid, state, start)) return 0;
  return (start & 0xFFFFFFFFu) << 32 | static_cast<uint32_t>(pid);
}

bool is_alive(ProcessMark mark) noexcept {
  char state = 0;
  uint64_t start = 0;
  if (!read_stat(static_cast<int>(static_cast<uint32_t>(mark)), state, start)) return false;
  return (start & 0xFFFFFFFFu) == mark >> 32 && state != 'Z' && state != 'X';
}

LedgerEntry* Ledger::entries() const noexcept {
  return reinterpret_cast<LedgerEntry*>(base_ + round_up(sizeof(Header)));
}
std::atomic<uint64_t>* Ledger::tickets() const noexcept {
  return reinterpret_cast<std::atomic<uint64_t>*>(entries() + kMaxEntries);
}
size_t Ledger::total_bytes() noexcept {
  return round_up(sizeof(Header)) + kMaxEntries * (sizeof(LedgerEntry) + sizeof(uint64_t));
}

Ledger* Ledger::create(uint64_t id) {
  Descriptor file = create_shared_file(total_bytes(), "share_memory");
  TG_CHECK(commit_shared_file(file, 0, round_up(sizeof(Header))), OutOfMemory, "share_memory: {}",
           explain_errno(errno));
  void* base = map_shared_file(file, total_bytes(), true);
  seal_shared_file(file, false);
  auto* ledger = new Ledger(std::move(file), base);
  Header& h = ledger->header();
  h.id = id;
  h.slots[kOwnerSlot].store(mark_of(getpid()));
  h.slots[kPinSlot].store(kExpected);
  h.reserved_at[kPinSlot].store(UINT64_MAX / 2);
  std::memcpy(h.magic, kMagic, sizeof(kMagic));
  return ledger;
}

Ledger* Ledger::open(Descriptor file, uint64_t id) {
  struct stat info;
  TG_CHECK(fstat(file.get(), &info) == 0 && static_cast<size_t>(info.st_size) == total_bytes(), Runtime,
           "shared memory: what was received is not a ledger of this version");
  void* base = map_shared_file(file, total_bytes(), true);
  auto* ledger = new Ledger(Descriptor(), base);  // a mapping needs no descriptor
  if (std::memcmp(ledger->header().magic, kMagic, sizeof(kMagic)) != 0 || ledger->id() != id) {
    delete ledger;
    TG_THROW(Runtime, "shared memory: what was received is not the ledger of process {:#x}", id);
  }
  return ledger;
}

Ledger::~Ledger() { munmap(base_, total_bytes()); }

uint32_t Ledger::claim(uint64_t word) noexcept {
  for (uint32_t s = 1; s < kPinSlot; ++s) {
    uint64_t expected = 0;
    if (header().slots[s].load(std::memory_order_relaxed) == 0 &&
        header().slots[s].compare_exchange_strong(expected, word))
      return s;
  }
  return kNone;
}

uint32_t Ledger::claim_slot(ProcessMark mark) noexcept {
  uint32_t s = claim(mark);
  if (s == kNone && sweep_dead() > 0) s = claim(mark);
  return s;
}

uint32_t Ledger::reserve_slot() noexcept {
  // The time is written before the slot can be seen as expected, so that no sweeper takes it for an old one.
  const uint32_t s = claim_slot(kSweeping);
  if (s == kNone) return kNone;
  header().reserved_at[s].store(now_s());
  header().slots[s].store(kExpected);
  return s;
}

void Ledger::arrive(uint32_t slot, ProcessMark mark) noexcept { header().slots[slot].store(mark); }

int Ledger::sweep_dead() noexcept {
  int swept = 0;
  for (uint32_t s = 1; s < kPinSlot; ++s) {
    uint64_t word = header().slots[s].load();
    if (word == 0 || word == kSweeping) continue;
    const bool gone = word == kExpected ? now_s() > header().reserved_at[s].load() + kArrivalSeconds : !is_alive(word);
    if (!gone || !header().slots[s].compare_exchange_strong(word, kSweeping)) continue;
    sweep(s);
    ++swept;
  }
  return swept;
}

void Ledger::sweep(uint32_t slot) noexcept {
  const uint32_t n = header().num_entries.load();
  for (uint32_t i = 0; i < n; ++i)
    if (holds(i, slot)) drop(i, slot);
  header().slots[slot].store(0);
}

void Ledger::commit_entries(uint32_t count) {
  const uint32_t n = header().num_entries.load();
  TG_CHECK(count <= kMaxEntries - n, Runtime, "share_memory: more than {} tensors of one process are shared",
           kMaxEntries);
  const size_t offset = round_up(sizeof(Header)) + size_t{n} * sizeof(LedgerEntry);
  TG_CHECK(commit_shared_file(file_, offset, count * sizeof(LedgerEntry)), OutOfMemory, "share_memory: {}",
           explain_errno(errno));
  header().num_entries.store(n + count);
}

void Ledger::commit_tickets(uint32_t count) {
  const uint32_t n = header().num_tickets.load();
  TG_CHECK(count <= kMaxEntries - n, Runtime, "share_memory: more than {} tensors are on their way to other processes",
           kMaxEntries);
  const size_t offset = round_up(sizeof(Header)) + kMaxEntries * sizeof(LedgerEntry) + size_t{n} * sizeof(uint64_t);
  TG_CHECK(commit_shared_file(file_, offset, count * sizeof(uint64_t)), OutOfMemory, "share_memory: {}",
           explain_errno(errno));
  header().num_tickets.store(n + count);
}

bool Ledger::valid_entry(uint32_t i) const noexcept { return i < header().num_entries.load(); }

void Ledger::hold(uint32_t e, uint32_t slot) noexcept {
  entries()[e].holders[slot / 64].fetch_or(uint64_t{1} << slot % 64);
}

void Ledger::drop(uint32_t e, uint32_t slot) noexcept {
  entries()[e].holders[slot / 64].fetch_and(~(uint64_t{1} << slot % 64));
}

bool Ledger::holds(uint32_t e, uint32_t slot) const noexcept {
  return entries()[e].holders[slot / 64].load() >> slot % 64 & 1;
}

bool Ledger::held(uint32_t e) const noexcept {
  for (const auto& word : entries()[e].holders)
    if (word.load() != 0) return true;
  return false;
}

void Ledger::set_place(const Handle& h) noexcept {
  LedgerEntry& entry = entries()[h.entry];
  entry.kind = h.kind;
  entry.device = static_cast<uint8_t>(h.device);
  entry.read_only = static_cast<uint8_t>(h.read_only);
  entry.arena = h.arena;
  entry.epoch = h.epoch;
  entry.offset = h.offset;
  entry.nbytes = h.nbytes;
}

void Ledger::get_place(Handle& h) const noexcept {
  const LedgerEntry& entry = entries()[h.entry];
  h.kind = entry.kind;
  if (h.kind == HandleKind::Arena) h.has_event = 0;
  h.device = entry.device;
  h.read_only = entry.read_only;
  h.arena = entry.arena;
  h.epoch = entry.epoch;
  h.offset = entry.offset;
  h.nbytes = entry.nbytes;
}

bool Ledger::is_place(const Handle& h) const noexcept {
  Handle truth = h;
  get_place(truth);
  return truth == h;
}

namespace {
// A ticket's generation counts up: odd while it is live.
uint64_t ticket_word(uint32_t generation, uint32_t entry) noexcept { return uint64_t{entry} << 32 | generation; }
}  // namespace

uint32_t Ledger::open_ticket(uint32_t t, uint32_t e) noexcept {
  const uint32_t generation = static_cast<uint32_t>(tickets()[t].load()) + 1;
  tickets()[t].store(ticket_word(generation, e));
  return generation;
}

bool Ledger::take_ticket(uint32_t t, uint32_t generation, uint32_t e) noexcept {
  if (t >= header().num_tickets.load() || generation % 2 == 0) return false;
  uint64_t word = ticket_word(generation, e);
  return tickets()[t].compare_exchange_strong(word, ticket_word(generation + 1, e));
}

bool Ledger::ticket_live(uint32_t t, uint32_t generation, uint32_t e) const noexcept {
  return t < header().num_tickets.load() && tickets()[t].load() == ticket_word(generation, e);
}

}  // namespace tapegrad::shared
