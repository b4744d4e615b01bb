#include "tapegrad/cuda/memory/shared.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/memory/device_allocator.h"

namespace tapegrad::cuda {

namespace {

// The number of interprocess events is limited: beyond this many, a sender waits for the stream instead.
constexpr int kMostEvents = 1000;

using Key = std::array<unsigned char, 64>;

struct OpenedSegment {
  void* base = nullptr;
  int device = 0;
  uint32_t refs = 0;
};
struct Opened {
  Key segment;
  uint32_t refs = 0;
  std::vector<Stream> uses;
};
struct Table {
  std::mutex mutex;
  std::map<Key, OpenedSegment> segments;
  std::map<const void*, Opened> opened;
  std::atomic<int> events{0};
};
Table& table() {
  static auto* one = new Table;
  return *one;
}

IpcHandle as_handle(const unsigned char* bytes) {
  IpcHandle h;
  std::memcpy(h.bytes, bytes, sizeof(h.bytes));
  return h;
}

void add_use(Opened& opened, Stream stream) {
  if (std::find(opened.uses.begin(), opened.uses.end(), stream) == opened.uses.end()) opened.uses.push_back(stream);
}

class Sharing final : public DeviceSharing {
 public:
  void* allocate(int device, std::size_t nbytes) override {
    check_device(device);
    auto* site = host_hooks().site;
    return device_allocator(device)
        .allocate(std::max<std::size_t>(nbytes, 1), current_stream(device).handle, site ? site() : 0, true)
        ->address;
  }

  void free(int device, void* p, int64_t event) noexcept override {
    try {
      device_allocator(device).free_at(p);
      if (event != 0) {
        driver().destroy_event(reinterpret_cast<EventHandle>(event));
        table().events.fetch_sub(1);
      }
    } catch (...) {  // the driver is gone at the end of the process
    }
  }

  void copy_to(void* to, const StorageImpl& from) override {
    const int device = from.device().index;
    if (from.nbytes() == 0) return;
    TG_CHECK(
        !device_allocator(device).in_capture_pool(from.data()), Runtime,
        "multiprocessing: the tensor lies in memory of a CUDA graph, which cannot be moved to where other processes "
        "see it\nsend tensor.clone()");
    DeviceGuard guard(device);
    const Stream stream = current_stream(device);
    note_wait("sending a tensor to another process");
    driver().synchronize_device(device);
    driver().copy(to, from.data(), from.nbytes(), CopyKind::DeviceToDevice, stream.handle);
    driver().synchronize_stream(stream.handle);
  }

  uint64_t export_handle(int device, const void* p, unsigned char* handle) override {
    void* base = device_allocator(device).segment_of(p);
    TG_CHECK(base != nullptr, Internal, "multiprocessing: the memory lies in no fixed segment");
    DeviceGuard guard(device);
    const IpcHandle h = driver().memory_ipc_handle(base);
    std::memcpy(handle, h.bytes, sizeof(h.bytes));
    return static_cast<uint64_t>(static_cast<const char*>(p) - static_cast<const char*>(base));
  }

  int64_t mark_sent(int device, int64_t marked, unsigned char* handle) override {
    check_device(device);
    auto event = reinterpret_cast<EventHandle>(marked);
    DeviceGuard guard(device);
    const Stream stream = current_stream(device);
    if (event == nullptr) {
      if (table().events.fetch_add(1) >= kMostEvents) {
        table().events.fetch_sub(1);
        note_wait("sending a tensor to another process");
        driver().synchronize_stream(stream.handle);
        return 0;
      }
      try {
        event = driver().create_event(device, kEventInterprocess);
      } catch (...) {
        table().events.fetch_sub(1);
        throw;
      }
    } else {
      driver().stream_wait_event(stream.handle, event);
    }
    driver().record_event(event, stream.handle);
    const IpcHandle h = driver().event_ipc_handle(event);
    std::memcpy(handle, h.bytes, sizeof(h.bytes));
    return reinterpret_cast<int64_t>(event);
  }

  void* open(int device, const unsigned char* handle, uint64_t offset) override {
    check_device(device);
    Table& t = table();
    Key key;
    std::memcpy(key.data(), handle, key.size());
    std::lock_guard lock(t.mutex);
    auto it = t.segments.find(key);
    if (it == t.segments.end())
      it = t.segments.emplace(key, OpenedSegment{driver().open_memory(device, as_handle(handle)), device, 0}).first;
    ++it->second.refs;
    void* p = static_cast<char*>(it->second.base) + offset;
    Opened& opened = t.opened[p];
    opened.segment = key;
    ++opened.refs;
    add_use(opened, current_stream(device));
    return p;
  }

  void await_sent(int device, const unsigned char* bytes) override {
    check_device(device);
    DeviceGuard guard(device);
    const EventHandle event = driver().open_event(device, as_handle(bytes));
    try {
      driver().stream_wait_event(current_stream(device).handle, event);
    } catch (...) {
      driver().destroy_event(event);
      throw;
    }
    driver().destroy_event(event);
  }

  void await_sent(int device, int64_t event) override {
    check_device(device);
    DeviceGuard guard(device);
    driver().stream_wait_event(current_stream(device).handle, reinterpret_cast<EventHandle>(event));
  }

  bool settle(const void* p) noexcept override try {
    std::vector<Stream> uses;
    {
      std::lock_guard lock(table().mutex);
      auto it = table().opened.find(p);
      if (it == table().opened.end()) return true;
      uses = it->second.uses;
    }
    for (const Stream& s : uses) {
      DeviceGuard guard(s.device);
      driver().synchronize_stream(s.handle);
    }
    return true;
  } catch (...) {  // the driver is gone at the end of the process, or a stream is being captured
    return false;
  }

  void close(const void* p) noexcept override try {
    Table& t = table();
    std::lock_guard lock(t.mutex);
    auto it = t.opened.find(p);
    if (it == t.opened.end()) return;
    auto segment = t.segments.find(it->second.segment);
    if (--it->second.refs == 0) t.opened.erase(it);
    if (--segment->second.refs > 0) return;
    const OpenedSegment gone = segment->second;
    t.segments.erase(segment);
    driver().close_memory(gone.device, gone.base);
  } catch (...) {
  }
};

}  // namespace

DeviceSharing& sharing() {
  static auto& instance = *new Sharing;
  return instance;
}

bool note_use_of_opened(const void* p, Stream stream) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  auto it = t.opened.find(p);
  if (it == t.opened.end()) return false;
  add_use(it->second, stream);
  return true;
}

}  // namespace tapegrad::cuda
