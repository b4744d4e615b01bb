// The part of a simulated device that is shared with other processes: a file that holds the memory of `allocate` and
// the counts of events. A handle names a process and an offset in its file, which is opened through /proc.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <new>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/simulated/simulated_state.h"

namespace tapegrad::cuda::simulated {

namespace {

constexpr std::size_t kPage = 4096;
constexpr uint64_t kFileBytes = uint64_t{1} << 46;  // of addresses, not of memory
constexpr auto kLate = std::chrono::milliseconds(2);

struct Packed {
  uint64_t magic;
  uint64_t inode;
  uint64_t offset, nbytes;
  int pid, fd;
};
static_assert(sizeof(Packed) <= sizeof(IpcHandle));
constexpr uint64_t kMagic = 0x6475632d6d697367;

void path_of(int pid, int fd, char (&path)[64]) { std::snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd); }

}  // namespace

char* SimulatedDriver::map_shared(std::size_t nbytes, uint64_t& offset) {
  if (file_.pid != getpid()) {  // none yet, or that of the process that this one was forked from
    const int fd = memfd_create("tapegrad-simulated-cuda", MFD_CLOEXEC);
    if (fd < 0) return nullptr;
    struct stat info;
    if (ftruncate(fd, static_cast<off_t>(kFileBytes)) != 0 || fstat(fd, &info) != 0) {
      ::close(fd);
      return nullptr;
    }
    file_ = {fd, getpid(), static_cast<uint64_t>(info.st_ino), kPage};
  }
  void* p = mmap(nullptr, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.fd, static_cast<off_t>(file_.end));
  if (p == MAP_FAILED) return nullptr;
  offset = file_.end;
  file_.end += nbytes;
  return static_cast<char*>(p);
}

void SimulatedDriver::unmap_shared(char* p, const Range& range) {
  munmap(p, range.nbytes);
  if (file_.pid == getpid())
    (void)fallocate(file_.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(range.offset),
                    static_cast<off_t>(range.nbytes));
}

IpcHandle SimulatedDriver::pack(uint64_t offset, std::size_t nbytes) const {
  TG_CHECK(file_.pid == getpid(), Runtime, "cuda: what was made before a fork is not shared with other processes");
  const Packed packed{kMagic, file_.inode, offset, nbytes, file_.pid, file_.fd};
  IpcHandle h;
  std::memcpy(h.bytes, &packed, sizeof(packed));
  return h;
}

// Maps what a handle of another process names.
char* SimulatedDriver::open_shared(const IpcHandle& handle, const char* call, int& pid, uint64_t& offset,
                                   std::size_t& nbytes) {
  Packed packed;
  std::memcpy(&packed, handle.bytes, sizeof(packed));
  TG_CHECK(packed.magic == kMagic && packed.nbytes > 0 && packed.nbytes < kFileBytes && packed.offset % kPage == 0,
           Runtime, "cuda: {}: invalid argument: not a handle of a simulated device", call);
  TG_CHECK(packed.pid != getpid(), Runtime, "cuda: {}: the handle was made by this process", call);
  char path[64];
  path_of(packed.pid, packed.fd, path);
  const int fd = open(path, O_RDWR | O_CLOEXEC);
  struct stat info;
  const bool same = fd >= 0 && fstat(fd, &info) == 0 && info.st_ino == packed.inode;
  void* p = MAP_FAILED;
  if (same) p = mmap(nullptr, packed.nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, static_cast<off_t>(packed.offset));
  if (fd >= 0) ::close(fd);
  TG_CHECK(p != MAP_FAILED, Runtime, "cuda: {}: the process that made the handle has ended", call);
  pid = packed.pid;
  offset = packed.offset;
  nbytes = packed.nbytes;
  return static_cast<char*>(p);
}

// --- memory ---

IpcHandle SimulatedDriver::memory_ipc_handle_relaxed(void* p) {
  Lock lock(mutex_);
  refuse_in_any_capture("memory_ipc_handle");
  check("memory_ipc_handle");
  auto it = allocations_.find(static_cast<char*>(p));
  TG_CHECK(it != allocations_.end(), Runtime, "cuda: memory_ipc_handle: not memory of `allocate`");
  return pack(it->second.offset, it->second.nbytes);
}

void* SimulatedDriver::open_memory_relaxed(int device, const IpcHandle& handle) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("open_memory");
  check("open_memory");
  int pid = 0;
  uint64_t offset = 0;
  std::size_t nbytes = 0;
  char* p = open_shared(handle, "open_memory", pid, offset, nbytes);
  opened_[p] = {nbytes, device, offset};
  return p;
}

void SimulatedDriver::close_memory_relaxed(int device, void* p) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("close_memory");
  check("close_memory");
  auto it = opened_.find(static_cast<char*>(p));
  TG_CHECK(it != opened_.end(), Runtime, "cuda: close_memory: not what open_memory gave");
  run_all(device);
  munmap(p, it->second.nbytes);
  opened_.erase(it);
}

// --- events ---

void SimulatedDriver::share_event(SimulatedEvent& event) {
  char* p = map_shared(kPage, event.offset);
  TG_CHECK(p != nullptr, Runtime, "cuda: create_event: out of memory for events of other processes");
  event.shared = new (p) SharedCounts;
}

void SimulatedDriver::erase_event(EventHandle handle) {
  auto it = events_.find(handle);
  if (SimulatedEvent& e = *it->second; e.shared != nullptr) {
    if (e.owner != 0)
      munmap(e.shared, kPage);
    else
      unmap_shared(reinterpret_cast<char*>(e.shared), {kPage, e.device, e.offset});
  }
  events_.erase(it);
}

IpcHandle SimulatedDriver::event_ipc_handle_relaxed(EventHandle handle) {
  Lock lock(mutex_);
  refuse_in_any_capture("event_ipc_handle");
  check("event_ipc_handle");
  SimulatedEvent& event = event_of(handle);
  TG_CHECK(event.flags & kEventInterprocess && event.owner == 0, Runtime,
           "cuda: event_ipc_handle: the event was not made for other processes");
  start_thread();
  return pack(event.offset, kPage);
}

EventHandle SimulatedDriver::open_event_relaxed(int device, const IpcHandle& given) {
  check_index(device);
  Lock lock(mutex_);
  refuse_in_any_capture("open_event");
  check("open_event");
  auto event = std::make_unique<SimulatedEvent>();
  std::size_t nbytes = 0;
  char* p = open_shared(given, "open_event", event->owner, event->offset, nbytes);
  event->device = device;
  event->flags = kEventInterprocess;
  event->shared = reinterpret_cast<SharedCounts*>(p);
  Packed packed;
  std::memcpy(&packed, given.bytes, sizeof(packed));
  event->owner_file = packed.fd;
  const auto handle = reinterpret_cast<EventHandle>(event.get());
  events_[handle] = std::move(event);
  return handle;
}

// Lets the other process run, without the lock.
bool SimulatedDriver::sleep_for(int owner, int file) {
  char path[64];
  path_of(owner, file, path);
  mutex_.unlock();
  const bool there = access(path, F_OK) == 0;
  std::this_thread::sleep_for(std::chrono::microseconds(100));
  mutex_.lock();
  return there;
}

void SimulatedDriver::await_other_process(SimulatedStream& stream) {
  const SimulatedEvent* event = stream.queue.front().event;
  if (sleep_for(event->owner, event->owner_file)) return;
  // Another thread may have gone on meanwhile.
  if (runnable(stream) || stream.queue.empty() || stream.queue.front().event != event) return;
  if (error_.empty()) error_ = "the process whose event a stream waits for has ended";
  run_front(stream);
}

void SimulatedDriver::await_other_process(EventHandle handle) {
  for (;;) {
    const SimulatedEvent& event = event_of(handle);
    if (event.all_done() >= event.all_records()) return;
    TG_CHECK(sleep_for(event.owner, event.owner_file), Runtime,
             "cuda: synchronize_event: the process that made the event has ended");
  }
}

// --- the thread ---

void SimulatedDriver::start_thread() {
  if (thread_pid_ == getpid()) return;
  if (thread_.joinable()) thread_.detach();  // the parent's
  sigset_t all, before;
  sigfillset(&all);  // signals are the program's
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { go_on(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  thread_pid_ = getpid();
}

void SimulatedDriver::stop_thread() {
  if (!thread_.joinable()) return;
  if (thread_pid_ != getpid()) return thread_.detach();
  {
    Lock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void SimulatedDriver::go_on() {
  auto undone = [this] {
    std::vector<EventHandle> found;
    for (auto& [handle, e] : events_)
      if (e->shared != nullptr && e->owner == 0 && e->done < e->records) found.push_back(handle);
    return found;
  };
  Lock lock(mutex_);
  while (!ending_) {
    wake_.wait(lock, [&] { return ending_ || !undone().empty(); });
    if (ending_) return;
    lock.unlock();
    std::this_thread::sleep_for(kLate);
    lock.lock();
    for (EventHandle handle : undone()) {
      auto it = events_.find(handle);
      if (it != events_.end() && it->second->done < it->second->records)
        run_until(*it->second->stream, it->second->sequence);
    }
  }
}

}  // namespace tapegrad::cuda::simulated
