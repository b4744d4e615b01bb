// The memory of the simulated machine, and copies.
#include <sys/mman.h>

#include <cstring>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/simulated/simulated_state.h"

namespace tapegrad::cuda::simulated {

namespace {

constexpr std::size_t kPage = 4096, kHugePage = std::size_t{2} << 20;
// Protecting 512 MB took 11 ms in pages of 4 KB and 40 us in huge ones (zen5, 2026-11-27): more than this of small ones
// is left open.
constexpr std::size_t kMostSmallPages = std::size_t{64} << 20;
std::size_t whole_pages(std::size_t nbytes) { return (nbytes + kPage - 1) / kPage * kPage; }

char* map_pages(std::size_t nbytes, int protection) {
  void* p = mmap(nullptr, nbytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return p == MAP_FAILED ? nullptr : static_cast<char*>(p);
}

// At a boundary of huge pages, in which memory is protected fast; `huge` becomes false where there are none.
char* map_addresses(std::size_t nbytes, bool& huge) {
  char* const all = map_pages(nbytes + kHugePage, PROT_NONE);
  if (all == nullptr) return nullptr;
  const std::size_t before = (kHugePage - reinterpret_cast<uintptr_t>(all) % kHugePage) % kHugePage;
  if (before > 0) munmap(all, before);
  munmap(all + before + nbytes, kHugePage - before);
  huge = madvise(all + before, nbytes, MADV_HUGEPAGE) == 0 && huge;
  return all + before;
}

// The entry of a map by start address that holds p, or end().
template <class Map>
auto containing(Map& ranges, const void* p) {
  auto* c = const_cast<char*>(static_cast<const char*>(p));
  auto it = ranges.upper_bound(c);
  return it == ranges.begin() ? ranges.end() : std::prev(it);
}

}  // namespace

// Neighbours of the same kind are one call.
void SimulatedDriver::protect_memory(int protection) {
  for (const auto* map : {&allocations_, &mapped_})
    for (auto it = map->begin(); it != map->end();) {
      char* const start = it->first;
      char* end = start;
      for (; it != map->end() && it->first == end; ++it) end += it->second.nbytes;
      TG_CHECK(mprotect(start, static_cast<std::size_t>(end - start), protection) == 0, Runtime,
               "cuda: the memory of the simulated device cannot be protected");
    }
}

void SimulatedDriver::count_open(int change) {
  open_ += change;
  if (protected_ == (open_ == 0)) return;
  std::size_t small = 0;
  for (const auto* map : {&allocations_, &mapped_})
    if (map == &allocations_ || !huge_)
      for (const auto& [p, range] : *map) small += range.nbytes;
  if (!protected_ && small > kMostSmallPages) return;
  protected_ = !protected_;
  protect_memory(protected_ ? PROT_NONE : PROT_READ | PROT_WRITE);
}

void SimulatedDriver::open_memory_to_host(bool open) {
  Lock lock(mutex_);
  count_open(open ? 1 : -1);
}

MemoryInfo SimulatedDriver::memory_info_relaxed(int device) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("memory_info");
  const DeviceState& d = devices_[device];
  return {d.limit > d.used ? d.limit - d.used : 0, d.limit};
}

std::size_t SimulatedDriver::bytes_in_use(int device) const {
  Lock lock(mutex_);
  return devices_[device].used;
}

void SimulatedDriver::set_memory_limit(int device, std::size_t nbytes) {
  check_index(device);
  Lock lock(mutex_);
  devices_[device].limit = nbytes;
}

void* SimulatedDriver::allocate_relaxed(int device, std::size_t nbytes) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("allocate");
  if (enter("allocate")) return nullptr;
  DeviceState& d = devices_[device];
  const std::size_t size = whole_pages(nbytes);
  if (size < nbytes || size > d.limit || d.used > d.limit - size) return nullptr;
  uint64_t offset = 0;
  char* p = map_shared(size, offset);
  if (p == nullptr) return nullptr;
  if (options_.poison) std::memset(p, kPoison, size);
  d.used += size;
  allocations_[p] = {size, device, offset};
  if (protected_) mprotect(p, size, PROT_NONE);
  return p;
}

void SimulatedDriver::free_relaxed(int device, void* p) {
  check_index(device);
  if (p == nullptr) return;
  Lock lock(mutex_);
  refuse_in_any_capture("free");
  check("free");
  auto it = allocations_.find(static_cast<char*>(p));
  TG_CHECK(it != allocations_.end() && it->second.device == device, Runtime,
           "cuda: free: invalid argument: not memory of cuda:{}", device);
  run_all(device);
  devices_[device].used -= it->second.nbytes;
  unmap_shared(it->first, it->second);
  allocations_.erase(it);
}

std::size_t SimulatedDriver::granularity(int device) {
  check_index(device);
  return options_.virtual_memory ? options_.granularity : 0;
}

void* SimulatedDriver::reserve_addresses_relaxed(int device, std::size_t nbytes) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("reserve_addresses");
  check("reserve_addresses");
  TG_CHECK(nbytes > 0 && nbytes % options_.granularity == 0, Runtime,
           "cuda: reserve_addresses: the size is no multiple of {}: {}", options_.granularity, nbytes);
  char* p = map_addresses(nbytes, huge_);
  TG_CHECK(p != nullptr, Runtime, "cuda: reserve_addresses: out of addresses");
  reserved_[p] = {nbytes, device};
  return p;
}

void SimulatedDriver::release_addresses_relaxed(int device, void* p, std::size_t nbytes) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("release_addresses");
  check("release_addresses");
  auto it = reserved_.find(static_cast<char*>(p));
  TG_CHECK(it != reserved_.end() && it->second.nbytes == nbytes, Runtime,
           "cuda: release_addresses: not what reserve_addresses gave");
  auto inside = mapped_.lower_bound(it->first);
  TG_CHECK(inside == mapped_.end() || inside->first >= it->first + nbytes, Runtime,
           "cuda: release_addresses: memory is mapped there");
  munmap(p, nbytes);
  reserved_.erase(it);
}

PhysicalHandle SimulatedDriver::create_memory_relaxed(int device, std::size_t nbytes) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("create_memory");
  if (enter("create_memory")) return 0;
  TG_CHECK(nbytes > 0 && nbytes % options_.granularity == 0, Runtime,
           "cuda: create_memory: the size is no multiple of {}: {}", options_.granularity, nbytes);
  DeviceState& d = devices_[device];
  if (nbytes > d.limit || d.used > d.limit - nbytes) return 0;
  d.used += nbytes;
  const PhysicalHandle handle = next_handle_++;
  physical_[handle] = {nbytes, device};
  return handle;
}

void SimulatedDriver::release_memory_relaxed(int device, PhysicalHandle memory, std::size_t nbytes) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("release_memory");
  check("release_memory");
  auto it = physical_.find(memory);
  TG_CHECK(it != physical_.end() && it->second.nbytes == nbytes && it->second.device == device, Runtime,
           "cuda: release_memory: no such memory");
  devices_[device].used -= nbytes;
  physical_.erase(it);
}

// Here the bytes belong to the address, not to the physical memory: memory that is mapped again has new contents.
void SimulatedDriver::map_relaxed(int device, void* at, PhysicalHandle memory, std::size_t nbytes) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("map");
  check("map");
  auto it = physical_.find(memory);
  TG_CHECK(it != physical_.end() && it->second.nbytes == nbytes, Runtime, "cuda: map: no such memory");
  auto range = containing(reserved_, at);
  TG_CHECK(range != reserved_.end() && static_cast<char*>(at) + nbytes <= range->first + range->second.nbytes, Runtime,
           "cuda: map: these addresses are not reserved");
  auto next = mapped_.lower_bound(static_cast<char*>(at));
  TG_CHECK(next == mapped_.end() || next->first >= static_cast<char*>(at) + nbytes, Runtime,
           "cuda: map: something is mapped there");
  TG_CHECK(mprotect(at, nbytes, PROT_READ | PROT_WRITE) == 0, Runtime, "cuda: map: out of memory");
  if (options_.poison) std::memset(at, kPoison, nbytes);
  if (protected_) mprotect(at, nbytes, PROT_NONE);
  mapped_[static_cast<char*>(at)] = {nbytes, device};
}

void SimulatedDriver::unmap_relaxed(int device, void* at, std::size_t nbytes) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("unmap");
  check("unmap");
  auto it = mapped_.find(static_cast<char*>(at));
  TG_CHECK(it != mapped_.end() && it->second.nbytes == nbytes, Runtime, "cuda: unmap: nothing is mapped there");
  mapped_.erase(it);
  madvise(at, nbytes, MADV_DONTNEED);
  mprotect(at, nbytes, PROT_NONE);
}

// --- pinned memory ---

void* SimulatedDriver::allocate_pinned_relaxed(std::size_t nbytes) {
  Lock lock(mutex_);
  refuse_in_any_capture("allocate_pinned");
  if (enter("allocate_pinned")) return nullptr;
  const std::size_t size = whole_pages(nbytes == 0 ? 1 : nbytes);
  char* p = map_pages(size, PROT_READ | PROT_WRITE);
  if (p != nullptr) pinned_[p] = size;
  return p;
}

void SimulatedDriver::free_pinned_relaxed(void* p) {
  Lock lock(mutex_);
  refuse_in_any_capture("free_pinned");
  check("free_pinned");
  auto it = pinned_.find(static_cast<char*>(p));
  TG_CHECK(it != pinned_.end(), Runtime, "cuda: free_pinned: not pinned memory");
  run_all(-1);
  munmap(p, it->second);
  pinned_.erase(it);
}

void SimulatedDriver::register_pinned_relaxed(void* p, std::size_t nbytes) {
  Lock lock(mutex_);
  refuse_in_any_capture("register_pinned");
  check("register_pinned");
  TG_CHECK(!pinned_range(p), Runtime, "cuda: register_pinned: this memory is pinned already");
  registered_[static_cast<char*>(p)] = nbytes;
}

void SimulatedDriver::unregister_pinned_relaxed(void* p) {
  Lock lock(mutex_);
  refuse_in_any_capture("unregister_pinned");
  check("unregister_pinned");
  TG_CHECK(registered_.erase(static_cast<char*>(p)) == 1, Runtime, "cuda: unregister_pinned: not registered");
}

bool SimulatedDriver::pinned_range(const void* p) const {
  for (const auto* map : {&pinned_, &registered_}) {
    auto it = containing(*map, p);
    if (it != map->end() && static_cast<const char*>(p) < it->first + it->second) return true;
  }
  return false;
}

void* SimulatedDriver::device_address(void* pinned) { return pinned; }

bool SimulatedDriver::is_pinned_relaxed(const void* p) {
  Lock lock(mutex_);
  refuse_in_any_capture("is_pinned");
  return pinned_range(p);
}

int SimulatedDriver::device_of(const void* p) {
  Lock lock(mutex_);
  for (const auto* map : {&allocations_, &opened_, &mapped_}) {
    auto it = containing(*map, p);
    if (it != map->end() && static_cast<const char*>(p) < it->first + it->second.nbytes) return it->second.device;
  }
  return -1;
}

// --- copies ---

// Memory of a device, all of it: one allocation, or mapped pieces one after another.
void SimulatedDriver::check_device_range(const void* p, std::size_t nbytes, const char* call) {
  const char* at = static_cast<const char*>(p);
  const char* end = at + nbytes;
  for (const auto* map : {&allocations_, &opened_}) {
    auto whole = containing(*map, p);
    if (whole != map->end() && end <= whole->first + whole->second.nbytes) return;
  }
  while (at < end) {
    auto it = containing(mapped_, at);
    const bool inside = it != mapped_.end() && at < it->first + it->second.nbytes;
    TG_CHECK(inside || pinned_range(p), Runtime, "cuda: {}: invalid argument: {} is not memory of a device", call, p);
    if (!inside) return;
    at = it->first + it->second.nbytes;
  }
}

void SimulatedDriver::copy(void* to, const void* from, std::size_t nbytes, CopyKind kind, StreamHandle handle) {
  if (nbytes == 0) return;
  std::shared_ptr<std::vector<char>> staged;
  bool wait = false;
  {
    Lock lock(mutex_);
    check("copy");
    if (kind != CopyKind::HostToDevice) check_device_range(from, nbytes, "copy");
    if (kind != CopyKind::DeviceToHost) check_device_range(to, nbytes, "copy");
    if (kind == CopyKind::HostToDevice && !pinned_range(from)) {
      const char* bytes = static_cast<const char*>(from);
      staged = std::make_shared<std::vector<char>>(bytes, bytes + nbytes);
    }
    wait = kind == CopyKind::DeviceToHost && !pinned_range(to);
    if (wait) refuse_in_capture(stream_of(handle), "copy to memory that is not pinned");
  }
  enqueue(handle, "copy", [=] { std::memmove(to, staged ? static_cast<const void*>(staged->data()) : from, nbytes); });
  if (wait) {
    Lock lock(mutex_);
    run_until(stream_of(handle), UINT64_MAX);
  }
}

void SimulatedDriver::copy_peer(void* to, int to_device, const void* from, int from_device, std::size_t nbytes,
                                StreamHandle handle) {
  check_index(to_device);
  check_index(from_device);
  copy(to, from, nbytes, CopyKind::DeviceToDevice, handle);
}

void SimulatedDriver::fill(void* p, int byte, std::size_t nbytes, StreamHandle handle) {
  if (nbytes == 0) return;
  {
    Lock lock(mutex_);
    check("fill");
    check_device_range(p, nbytes, "fill");
  }
  enqueue(handle, "fill", [=] { std::memset(p, byte, nbytes); });
}

}  // namespace tapegrad::cuda::simulated
