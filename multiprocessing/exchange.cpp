#include "tapegrad/multiprocessing/exchange.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/c10/random/generator.h"
#include "tapegrad/c10/threads/parallel.h"

namespace tapegrad::shared {

namespace {

constexpr uint32_t kEntryStep = 1024;

uint64_t now_s() noexcept {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec);
}

DeviceInterface& library(Device device) { return need_device(device.type, "multiprocessing"); }

// Free shared memory that is kept warm.
uint64_t cache_limit() noexcept { return std::min(total_memory() / 8, uint64_t{2} << 30); }

void copy_bytes(void* to, const void* from, size_t nbytes) {
  parallel_for(0, static_cast<int64_t>(nbytes), int64_t{2} << 20, [&](int64_t first, int64_t last) {
    std::memcpy(static_cast<char*>(to) + first, static_cast<const char*>(from) + first,
                static_cast<size_t>(last - first));
  });
}

}  // namespace

// Another process's memory.
struct Exchange::Source {
  struct Mapping {
    uint32_t epoch = 0;
    char* base = nullptr;
    uint64_t nbytes = 0;
    uint32_t held = 0;
  };
  uint64_t id = 0;
  std::unique_ptr<Ledger> ledger;
  uint32_t slot = kNone;
  uint32_t child_slot = kNone;  // while a child is being made
  Connection connection;
  std::map<uint32_t, Mapping> arenas;
  uint64_t held = 0;

  ~Source() {
    for (auto& [number, m] : arenas) munmap(m.base, m.nbytes);
  }
  Connection& connected() {
    if (!connection.connected()) {
      Ledger* received = nullptr;
      connection = Connection::open(id, slot, &received);
      if (received != nullptr) ledger.reset(received);
    }
    return connection;
  }
};

// The context of a shared storage's bytes.
struct Exchange::Held {
  Exchange* exchange;
  Source* source = nullptr;  // null: our own block
  void* data = nullptr;
  uint64_t nbytes = 0;
  uint32_t entry = 0;
  uint32_t arena = 0;  // of a source
  bool read_only = false;
  Storage keeps;  // foreign memory that others may still look into
  Device device;
  std::shared_ptr<const Handle> opened;  // of a device's memory of a source; null in a child that inherited it by fork

  bool on_device() const noexcept { return !device.is_cpu(); }
};

Exchange::Exchange(uint64_t (*budget)() noexcept) : budget_(budget) {}

Exchange::~Exchange() {
  service_.reset();
  for (Pool& p : pools_) p.allocator.reset();
}

void Exchange::become_owner() {
  if (ledger_) return;
  const uint64_t id = entropy64();
  std::unique_ptr<Ledger> ledger(Ledger::create(id));
  ServiceHandlers handlers;
  handlers.arena = [this](uint32_t arena, uint32_t epoch, uint64_t& nbytes) {
    for (Pool& p : pools_)
      if (Descriptor file = p.source->duplicate(arena, epoch, nbytes)) return file;
    return Descriptor();
  };
  handlers.ticket = [this](uint32_t entry, uint32_t slot) {
    if (!ledger_->valid_entry(entry) || !ledger_->holds(entry, slot)) return Ticket();
    return open_ticket(entry);
  };
  // The names that the service reads are in place before its thread starts.
  for (int k = 0; k < 2; ++k) {
    pools_[k].source = std::make_unique<ArenaSource>(*ledger, k == 1, budget_);
    pools_[k].allocator =
        std::make_unique<CachingAllocator>(*pools_[k].source, CachingAllocatorOptions{cache_limit(), "shared"});
  }
  ledger_ = std::move(ledger);
  try {
    service_ = std::make_unique<Service>(*ledger_, std::move(handlers));
  } catch (...) {
    for (Pool& p : pools_) {
      p.allocator.reset();
      p.source.reset();
    }
    ledger_.reset();
    throw;
  }
}

Exchange::Pool& Exchange::pool(bool read_only) { return pools_[read_only ? 1 : 0]; }

bool Exchange::is_shared(const Storage& storage) const noexcept {
  std::lock_guard lock(mutex_);
  return by_address_.count(storage->data()) != 0;
}

// Called with the lock held, like all functions below unless noted otherwise.
void Exchange::collect_if_due() {
  ++calls_since_collect_;
  // The cost is amortised: a sweep of n entries runs at most once per n / 4 calls.
  const uint64_t things = pending_.size() + num_outgoing_.load(std::memory_order_relaxed);
  if (things != 0 && calls_since_collect_ * 4 >= things) collect_locked(false);
}

void* Exchange::allocate_bytes(size_t nbytes, bool read_only) {
  Pool& p = pool(read_only);
  collect_if_due();
  if (nbytes >= kHugePage && !pending_.empty()) collect_locked(false);
  for (int attempt = 0;; ++attempt) {
    try {
      return p.allocator->allocate(std::max<size_t>(nbytes, 1));
    } catch (const Error& e) {
      const std::string why = p.source->take_failure();
      if (attempt == 0) {
        collect_locked(true);
        continue;
      }
      if (why.empty()) throw;
      TG_THROW(OutOfMemory, "share_memory: cannot allocate {} more ({} reserved, {} available): {}",
               format_bytes(nbytes), format_bytes(p.source->reserved_bytes()), format_bytes(p.source->available()),
               why);
    }
  }
}

uint32_t Exchange::new_entry(void* data, size_t nbytes, bool read_only, Device device) {
  if (free_entries_.empty()) {
    const auto n = static_cast<uint32_t>(blocks_.size());
    const uint32_t step = std::min(kMaxEntries - n, std::max(kEntryStep, n));
    ledger_->commit_entries(std::max(step, 1u));
    std::lock_guard tickets(tickets_mutex_);
    blocks_.resize(n + step);
    free_entries_.reserve(n + step);
    pending_.reserve(n + step);  // so that dropping never allocates
    looked_at_.reserve(n + step);
    for (uint32_t e = n + step; e-- > n;) free_entries_.push_back(e);
  }
  const uint32_t e = free_entries_.back();
  free_entries_.pop_back();
  if (device.is_cpu()) {  // of a device's memory the place is known when it is given
    const auto place = pool(read_only).source->find(data);
    Handle h;
    h.entry = e;
    h.arena = place.arena;
    h.epoch = place.epoch;
    h.offset = place.offset;
    h.nbytes = nbytes;
    h.read_only = read_only;
    ledger_->set_place(h);
  }
  std::lock_guard tickets(tickets_mutex_);
  blocks_[e] = Block{data, nbytes, 0, read_only, false, device, 0};
  return e;
}

// The storage of a block, entered into the tables. The lock is held.
Storage Exchange::publish(std::unique_ptr<Held> held, void* data, size_t nbytes) {
  auto storage = make_intrusive<StorageImpl>(data, nbytes, held->device, released, held.get());
  Held* h = held.release();
  storage->set_resizable(false);
  storage->set_read_only(h->read_only);
  Local& local = local_[{h->source ? h->source->id : ledger_->id(), h->entry}];
  ++local.count;
  local.newest = weak_intrusive_ptr<StorageImpl>(storage);
  by_address_[data] = h;
  return storage;
}

std::unique_ptr<Exchange::Held> Exchange::hold_own(void* data, size_t nbytes, uint32_t entry, Device device) {
  auto held = std::make_unique<Held>();
  held->exchange = this;
  held->data = data;
  held->nbytes = nbytes;
  held->entry = entry;
  held->device = device;
  ledger_->hold(entry, kOwnerSlot);
  return held;
}

Storage Exchange::allocate(size_t nbytes, bool read_only) {
  std::lock_guard lock(mutex_);
  become_owner();
  void* data = allocate_bytes(nbytes, read_only);
  uint32_t entry;
  try {
    entry = new_entry(data, nbytes, read_only);
  } catch (...) {
    pool(read_only).allocator->deallocate(data, std::max<size_t>(nbytes, 1));
    throw;
  }
  return publish(hold_own(data, nbytes, entry), data, nbytes);
}

// Without the lock: the device's allocator may call `collect`.
Storage Exchange::allocate_on(Device device, size_t nbytes) {
  DeviceSharing& lib = library(device).sharing();
  void* data = lib.allocate(device.index, nbytes);
  try {
    std::lock_guard lock(mutex_);
    become_owner();
    collect_if_due();
    return publish(hold_own(data, nbytes, new_entry(data, nbytes, false, device), device), data, nbytes);
  } catch (...) {
    lib.free(device.index, data, 0);
    throw;
  }
}

Storage Exchange::share(const Storage& storage) {
  const Device device = storage->device();
  TG_CHECK(device.is_cpu() || device.is_cuda(), Runtime, "share_memory: only CPU and CUDA memory can be shared: got {}",
           device);
  const size_t nbytes = storage->nbytes();
  {
    std::lock_guard lock(mutex_);
    if (by_address_.count(storage->data()) != 0) return storage;
    if (auto it = copies_.find(storage.get()); it != copies_.end())
      if (Storage copy = it->second.lock()) return copy;
  }
  Storage fresh = device.is_cpu() ? allocate(nbytes) : allocate_on(device, nbytes);
  // Without the lock: a long copy lets other threads run.
  if (device.is_cuda())
    library(device).sharing().copy_to(fresh->data(), *storage);
  else if (nbytes != 0)
    copy_bytes(fresh->data(), storage->data(), nbytes);
  std::lock_guard lock(mutex_);
  Held* held = by_address_.at(fresh->data());
  if (!storage->resizable()) {
    held->keeps = storage;
    copies_[storage.get()] = weak_intrusive_ptr<StorageImpl>(fresh);
    return fresh;
  }
  // The block moves over to the old storage; the new one goes without it.
  auto* moved = new Held(*held);
  local_[{ledger_->id(), held->entry}].newest = weak_intrusive_ptr<StorageImpl>(storage);
  by_address_[fresh->data()] = moved;
  void* data = fresh->data();
  held->exchange = nullptr;
  storage->replace(data, nbytes, released, moved);
  storage->set_resizable(false);
  return storage;
}

Ticket Exchange::open_ticket(uint32_t entry) {  // any thread
  std::lock_guard lock(tickets_mutex_);
  if (free_tickets_.empty()) {
    const uint32_t step = std::min(kMaxEntries - num_tickets_, std::max(kEntryStep, num_tickets_));
    ledger_->commit_tickets(std::max(step, 1u));
    for (uint32_t t = num_tickets_ + step; t-- > num_tickets_;) free_tickets_.push_back(t);
    num_tickets_ += step;
  }
  const uint32_t t = free_tickets_.back();
  outgoing_.push_back({{t, 0}, entry});
  free_tickets_.pop_back();
  outgoing_.back().ticket.generation = ledger_->open_ticket(t, entry);
  ++blocks_[entry].tickets;
  num_outgoing_ = outgoing_.size();
  return outgoing_.back().ticket;
}

// Where a block of ours lies.
void Exchange::describe(Handle& h, Block& block) {
  if (block.device.is_cpu()) return ledger_->get_place(h);
  DeviceSharing& lib = library(block.device).sharing();
  const int device = block.device.index;
  h.kind = HandleKind::CudaIpc;
  h.device = static_cast<uint16_t>(device);
  h.offset = lib.export_handle(device, block.data, h.ipc);
  block.event = lib.mark_sent(device, block.event, h.event);
  h.has_event = block.event != 0;
  ledger_->set_place(h);
}

Handle Exchange::give(const Storage& storage) {
  // Those who get it from a receiver wait for the owner's event; the receiver waits for its own work here.
  if (storage->device().is_cuda())
    TG_CHECK(library(storage->device()).sharing().settle(storage->data()), Runtime,
             "multiprocessing: a stream that works on the tensor cannot be waited for");
  std::unique_lock lock(mutex_);
  auto it = by_address_.find(storage->data());
  TG_CHECK(it != by_address_.end(), Runtime, "give: the storage is not shared");
  Held* held = it->second;
  Handle h;
  h.entry = held->entry;
  h.nbytes = storage->nbytes();
  if (held->source == nullptr) {
    collect_if_due();
    h.owner = ledger_->id();
    describe(h, blocks_[held->entry]);
    h.generation = ledger_->entry(held->entry).generation.load();
    const Ticket t = open_ticket(held->entry);
    h.ticket = t.number;
    h.ticket_generation = t.generation;
    h.seal();
    return h;
  }
  Source& source = *held->source;
  if (held->on_device()) {
    TG_CHECK(held->opened, Runtime,
             "multiprocessing: a CUDA tensor of the process that this one was forked from cannot be used here\n"
             "start processes with the method 'spawn'");
    h = *held->opened;
  } else {
    const Source::Mapping& m = source.arenas.at(held->arena);
    h.owner = source.id;
    h.arena = held->arena;
    h.epoch = m.epoch;
    h.offset = static_cast<uint64_t>(static_cast<char*>(held->data) - m.base);
    h.read_only = held->read_only;
  }
  h.generation = source.ledger->entry(held->entry).generation.load();
  const Ticket t = source.connected().ticket(held->entry);
  h.ticket = t.number;
  h.ticket_generation = t.generation;
  h.seal();
  return h;
}

Exchange::Source& Exchange::source_of(uint64_t owner) {
  auto it = sources_.find(owner);
  if (it != sources_.end()) return *it->second;
  reap_sources();
  auto source = std::make_unique<Source>();
  source->id = owner;
  source->connected();
  return *sources_.emplace(owner, std::move(source)).first->second;
}

// Lets go of the memory of owners that have ended.
void Exchange::reap_sources() noexcept {
  std::erase_if(sources_, [](const auto& item) { return item.second->held == 0 && item.second->connection.ended(); });
}

char* Exchange::map_arena(Source& source, const Handle& h) {
  auto it = source.arenas.find(h.arena);
  if (it != source.arenas.end() && it->second.epoch != h.epoch) {
    // The owner has given the arena up and used its number again.
    TG_CHECK(it->second.held == 0, Runtime, "shared memory: a stale handle: its arena is gone");
    munmap(it->second.base, it->second.nbytes);
    source.arenas.erase(it);
    it = source.arenas.end();
  }
  if (it == source.arenas.end()) {
    std::erase_if(source.arenas, [&](const auto& item) {
      const Source::Mapping& m = item.second;
      if (m.held != 0 || source.ledger->arena_epoch(item.first).load() == m.epoch) return false;
      munmap(m.base, m.nbytes);
      return true;
    });
    Source::Mapping m;
    m.epoch = h.epoch;
    const Descriptor file = source.connected().arena(h.arena, h.epoch, m.nbytes);
    m.base = static_cast<char*>(map_shared_file(file, m.nbytes, h.read_only == 0, kHugePage));
    it = source.arenas.emplace(h.arena, m).first;
  }
  TG_CHECK(h.nbytes <= it->second.nbytes && h.offset <= it->second.nbytes - h.nbytes, Runtime,
           "shared memory: a handle reaches beyond its arena: offset {}, {} bytes", h.offset, h.nbytes);
  return it->second.base + h.offset;
}

Storage Exchange::receive(const Handle& h) {
  TG_CHECK(h.magic == Handle::kMagic, Runtime, "shared memory: not a handle");
  TG_CHECK(h.intact(), Runtime, "shared memory: a damaged handle: its checksum does not fit");
  const bool on_device = h.kind == HandleKind::CudaIpc;
  TG_CHECK(on_device || h.kind == HandleKind::Arena, Runtime, "shared memory: not a handle: kind {}",
           static_cast<int>(h.kind));
  const Device device = on_device ? Device(DeviceType::CUDA, static_cast<int8_t>(h.device)) : Device();
  TG_CHECK(!on_device || h.device < library(device).count(), Runtime,
           "multiprocessing: the tensor lies on a device that this process does not see: cuda:{}", h.device);
  std::lock_guard lock(mutex_);
  const bool own = ledger_ && h.owner == ledger_->id();
  Source* source = own ? nullptr : &source_of(h.owner);
  Ledger& ledger = own ? *ledger_ : *source->ledger;
  TG_CHECK(ledger.valid_entry(h.entry) && (!own || h.entry < blocks_.size()), Runtime,
           "shared memory: not a handle: entry {}", h.entry);
  const uint32_t slot = own ? kOwnerSlot : source->slot;
  void* data = nullptr;
  // First the bit, then the ticket: there is no moment at which the block has neither. Memory of a device is opened in
  // between, so that a handle that cannot be opened is not used up.
  ledger.hold(h.entry, slot);
  auto found = local_.find({h.owner, h.entry});
  bool opened = false;
  try {
    constexpr const char* kStale = "shared memory: a stale handle: it was received before, or the tensor is gone";
    if (ledger.entry(h.entry).generation.load() != h.generation) TG_THROW(Runtime, "{}", kStale);
    TG_CHECK(ledger.is_place(h), Runtime,
             "shared memory: a damaged handle: it does not say where block {} of its owner lies", h.entry);
    if (own)
      data = blocks_[h.entry].data;
    else if (!on_device)
      data = map_arena(*source, h);
    const Storage known = found == local_.end() ? Storage() : found->second.newest.lock();
    if (on_device && !own && !known) {
      data = library(device).sharing().open(h.device, h.ipc, h.offset);
      opened = true;
    }
    if (!ledger.take_ticket(h.ticket, h.ticket_generation, h.entry)) TG_THROW(Runtime, "{}", kStale);
    if (on_device) await_sender(h);
    if (known) return known;
  } catch (...) {
    if (opened) library(device).sharing().close(data);
    if (found == local_.end() || found->second.count == 0) ledger.drop(h.entry, slot);
    throw;
  }
  auto held = std::make_unique<Held>();
  held->device = device;
  if (opened) held->opened = std::make_shared<Handle>(h);
  held->exchange = this;
  held->source = source;
  held->data = data;
  held->nbytes = h.nbytes;
  held->entry = h.entry;
  held->arena = h.arena;
  held->read_only = !own && h.read_only != 0;
  if (source != nullptr) {
    ++source->held;
    if (!on_device) ++source->arenas.at(h.arena).held;
  }
  return publish(std::move(held), data, h.nbytes);
}

// Makes the current stream wait for the sender's queued work.
void Exchange::await_sender(const Handle& h) {
  if (!h.has_event) return;
  DeviceSharing& lib = library(Device(DeviceType::CUDA, static_cast<int8_t>(h.device))).sharing();
  if (ledger_ && h.owner == ledger_->id())
    lib.await_sent(h.device, blocks_[h.entry].event);
  else
    lib.await_sent(h.device, h.event);
}

// The ledger of an owner that this process knows; null of others, and where the handle is damaged or stale.
Ledger* Exchange::ledger_of(const Handle& h) noexcept {
  if (h.magic != Handle::kMagic || !h.intact()) return nullptr;
  Ledger* ledger = ledger_.get();
  if (ledger == nullptr || h.owner != ledger->id()) {
    auto it = sources_.find(h.owner);
    if (it == sources_.end()) return nullptr;
    ledger = it->second->ledger.get();
  }
  const bool known = ledger->valid_entry(h.entry) && ledger->entry(h.entry).generation.load() == h.generation;
  return known && ledger->is_place(h) ? ledger : nullptr;
}

bool Exchange::take_back(const Handle& h) noexcept {
  std::lock_guard lock(mutex_);
  Ledger* ledger = ledger_of(h);
  return ledger != nullptr && ledger->take_ticket(h.ticket, h.ticket_generation, h.entry);
}

bool Exchange::on_its_way(const Handle& h) noexcept {
  std::lock_guard lock(mutex_);
  const Ledger* ledger = ledger_of(h);
  return ledger != nullptr && ledger->ticket_live(h.ticket, h.ticket_generation, h.entry);
}

void Exchange::released(void* context, void*, size_t) noexcept {
  std::unique_ptr<Held> held(static_cast<Held*>(context));
  DeviceInterface* lib = held->opened ? device_interface(held->device.type) : nullptr;
  // Where the device cannot be waited for, the owner must not use the memory again: this process keeps it to its end.
  if (lib != nullptr && !lib->sharing().settle(held->data)) return (void)held.release();
  if (Exchange* e = held->exchange) {
    std::lock_guard lock(e->mutex_);
    e->forget(*held);
  }
  if (lib != nullptr) lib->sharing().close(held->data);
  // What it kept goes now, without the lock.
}

void Exchange::forget(Held& held) noexcept {
  if (auto it = by_address_.find(held.data); it != by_address_.end() && it->second == &held) by_address_.erase(it);
  if (held.keeps) copies_.erase(held.keeps.get());
  Source* source = held.source;
  const auto local = local_.find({source ? source->id : ledger_->id(), held.entry});
  const bool last = --local->second.count == 0;
  if (last) local_.erase(local);
  if (source == nullptr) {
    if (last) retire(held.entry);
    return;
  }
  if (last) source->ledger->drop(held.entry, source->slot);
  if (!held.on_device()) --source->arenas.at(held.arena).held;
  if (--source->held == 0 && source->connection.connected() && source->connection.ended()) sources_.erase(source->id);
}

// This process has dropped a block of its own: it is free, or it waits for others.
void Exchange::retire(uint32_t e) noexcept {
  ledger_->drop(e, kOwnerSlot);
  Block& b = blocks_[e];
  {
    std::lock_guard tickets(tickets_mutex_);
    if (b.tickets != 0 || ledger_->held(e)) {
      if (!b.pending) {
        b.pending = true;
        pending_.push_back(e);
      }
      return;
    }
  }
  ledger_->entry(e).generation.fetch_add(1);
  free_block(b);
  free_entries_.push_back(e);
}

void Exchange::free_block(Block& b) noexcept {
  if (b.device.is_cpu()) return pool(b.read_only).allocator->deallocate(b.data, std::max<size_t>(b.nbytes, 1));
  if (DeviceInterface* lib = device_interface(b.device.type)) lib->sharing().free(b.device.index, b.data, b.event);
}

void Exchange::collect_locked(bool thorough) noexcept {
  if (!ledger_) return;
  calls_since_collect_ = 0;
  if (const uint64_t now = now_s(); thorough || now > swept_at_) {
    swept_at_ = now;
    ledger_->sweep_dead();
  }
  looked_at_.swap(pending_);
  {
    std::lock_guard tickets(tickets_mutex_);
    for (size_t i = 0; i < outgoing_.size();) {
      if (ledger_->ticket_live(outgoing_[i].ticket.number, outgoing_[i].ticket.generation, outgoing_[i].entry)) {
        ++i;
        continue;
      }
      --blocks_[outgoing_[i].entry].tickets;
      free_tickets_.push_back(outgoing_[i].ticket.number);
      outgoing_[i] = outgoing_.back();
      outgoing_.pop_back();
    }
    num_outgoing_ = outgoing_.size();
  }
  for (uint32_t e : looked_at_) {
    blocks_[e].pending = false;
    if (!ledger_->holds(e, kOwnerSlot)) retire(e);  // or it came back to us
  }
  looked_at_.clear();
}

void Exchange::collect(bool thorough) {
  std::lock_guard lock(mutex_);
  collect_locked(thorough);
  if (thorough) reap_sources();
}

ExchangeStats Exchange::stats() {
  std::lock_guard lock(mutex_);
  collect_locked(true);
  ExchangeStats s;
  if (ledger_) {
    s.id = ledger_->id();
    for (Pool& p : pools_) {
      s.arenas += p.source->num_arenas();
      s.reserved_bytes += p.source->reserved_bytes();
      s.allocated_bytes += p.allocator->stats().allocated;
    }
    s.blocks = blocks_.size() - free_entries_.size();
    s.pending = pending_.size();
    std::lock_guard tickets(tickets_mutex_);
    s.tickets = outgoing_.size();
  }
  s.owners = sources_.size();
  for (auto& [id, source] : sources_) {
    s.received += source->held;
    s.mapped_arenas += source->arenas.size();
  }
  return s;
}

// ---- fork

struct ForkHooks {
  static void before();
  static void parent();
  static void child();
};

namespace {
Exchange* process_exchange = nullptr;
}

void ForkHooks::before() { process_exchange->before_fork(); }
void ForkHooks::parent() { process_exchange->after_fork_in_parent(); }
void ForkHooks::child() { process_exchange->after_fork_in_child(); }

// The child gets its place in each ledger before it exists: the parent could drop what both hold at any moment after.
void Exchange::before_fork() noexcept {
  mutex_.lock();
  if (service_) service_->pause();
  tickets_mutex_.lock();
  // Nothing is allocated here: an allocation failure could not be reported.
  auto reserve = [](Ledger& ledger) {
    const uint32_t slot = ledger.reserve_slot();
    return slot == kNone ? kPinSlot : slot;
  };
  if (ledger_) child_slot_ = reserve(*ledger_);
  for (auto& [id, source] : sources_) source->child_slot = reserve(*source->ledger);
  for (auto& [key, local] : local_) {
    if (ledger_ && key.owner == ledger_->id()) {
      ledger_->hold(key.entry, child_slot_);
    } else {
      const Source& source = *sources_.at(key.owner);
      source.ledger->hold(key.entry, source.child_slot);
    }
  }
}

void Exchange::after_fork_in_parent() noexcept {
  tickets_mutex_.unlock();
  if (service_) service_->go_on();
  mutex_.unlock();
}

void Exchange::after_fork_in_child() noexcept {
  const ProcessMark me = mark_of(getpid());
  for (auto& [data, held] : by_address_) held->opened = nullptr;
  if (ledger_) {
    // The memory that was ours is the parent's from here on.
    auto source = std::make_unique<Source>();
    source->id = ledger_->id();
    source->child_slot = child_slot_;
    for (Pool& p : pools_)
      p.source->abandon([&](uint32_t arena, uint32_t epoch, char* base, uint64_t nbytes) {
        source->arenas[arena] = {epoch, base, nbytes, 0};
      });
    for (auto& [data, held] : by_address_) {
      if (held->source != nullptr) continue;
      held->source = source.get();
      for (auto& [number, m] : source->arenas) {
        if (data < m.base || data >= m.base + m.nbytes) continue;
        held->arena = number;
        ++m.held;
      }
      ++source->held;
    }
    service_->abandon();
    (void)service_.release();  // its thread is the parent's
    for (Pool& p : pools_) {
      p.allocator.reset();
      p.source.reset();
    }
    ledger_->close_file();
    source->ledger = std::move(ledger_);
    sources_[source->id] = std::move(source);
    blocks_.clear();
    free_entries_.clear();
    pending_.clear();
    outgoing_.clear();
    num_outgoing_ = 0;
    free_tickets_.clear();
    num_tickets_ = 0;
  }
  for (auto& [id, source] : sources_) {
    source->connection.close();  // the socket is the parent's; the child gets one of its own when it needs it
    source->slot = source->child_slot;
    if (source->slot != kPinSlot) source->ledger->arrive(source->slot, me);
  }
  tickets_mutex_.unlock();
  mutex_.unlock();
}

Exchange& exchange() {
  static Exchange& instance = [&]() -> Exchange& {
    process_exchange = new Exchange;
    // The allocator's own handlers come first, so that they run inside of ours.
    cpu_allocator();
    pthread_atfork(ForkHooks::before, ForkHooks::parent, ForkHooks::child);
    return *process_exchange;
  }();
  return instance;
}

}  // namespace tapegrad::shared
