#include "tapegrad/cuda/runtime/stream.h"

#include <algorithm>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tapegrad/c10/device/device_interface.h"
#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/runtime/event.h"
#include "tapegrad/cuda/runtime/wait.h"

namespace tapegrad::cuda {

namespace detail {
std::atomic<bool> several_streams{false};
}

std::atomic<void (*)()> after_wait{nullptr};

namespace {

constexpr int kMostDevices = 64;
constexpr int kPoolSize = 32;
constexpr int kPriorities = 6;  // 0 to -5

thread_local StreamHandle current[kMostDevices] = {};

struct Pool {
  std::mutex mutex;
  std::vector<StreamHandle> streams[kPriorities];
  unsigned next[kPriorities] = {};
};

Pool& pool_of(int device) {
  static auto* pools = new Pool[kMostDevices];
  return pools[device];
}

std::atomic<int> mode{0};

struct AbortedWork {
  std::atomic<bool> any{false};
  std::mutex mutex;
  std::string why;
};
AbortedWork& aborted_work() {
  static auto& it = *new AbortedWork;
  return it;
}

}  // namespace

Stream current_stream(int device) {
  if (device < 0) device = driver().current_device();
  TG_CHECK(device < kMostDevices, Runtime, "cuda: device index out of range: {}", device);
  return {current[device], device};
}

void set_current_stream(Stream stream) {
  check_device(stream.device);
  if (stream.handle != nullptr) detail::several_streams.store(true, std::memory_order_relaxed);
  current[stream.device] = stream.handle;
}

Stream stream_from_pool(int device, int priority) {
  check_device(device);
  int least, greatest;
  driver().priority_range(least, greatest);
  priority = std::clamp(priority, std::max(greatest, 1 - kPriorities), std::min(least, 0));
  const int level = -priority;
  Pool& pool = pool_of(device);
  std::lock_guard lock(pool.mutex);
  std::vector<StreamHandle>& streams = pool.streams[level];
  const unsigned i = pool.next[level]++ % kPoolSize;
  if (i >= streams.size()) {
    DeviceGuard guard(device);
    streams.push_back(driver().create_stream(device, priority));
  }
  return {streams[i % streams.size()], device};
}

int stream_priority(Stream stream) {
  Pool& pool = pool_of(stream.device);
  std::lock_guard lock(pool.mutex);
  for (int level = 0; level < kPriorities; ++level)
    if (std::find(pool.streams[level].begin(), pool.streams[level].end(), stream.handle) != pool.streams[level].end())
      return -level;
  return 0;
}

void wait_stream(Stream waiter, Stream on) {
  if (waiter == on) return;
  Event event;
  event.record(on);
  event.wait(waiter);
}

void set_wait_mode(int value) { mode.store(value, std::memory_order_relaxed); }
int wait_mode() noexcept { return mode.load(std::memory_order_relaxed); }

void note_wait(const char* op) {
  const int value = mode.load(std::memory_order_relaxed);
  if (TG_LIKELY(value == 0)) return;
  const HostHooks& hooks = host_hooks();
  const uint32_t site = hooks.site ? hooks.site() : 0;
  const std::string where = site != 0 && hooks.describe_site ? " at " + hooks.describe_site(site) : "";
  const std::string text = fmt::format("{}: the host waits for the device{}", op, where);
  TG_CHECK(value == 1, Runtime, "{}\nkeep the value on the device, or mute the check 'sync'", text);
  if (hooks.warn) hooks.warn(text);
}

void wait_for_value(Stream stream, const char* op) {
  note_wait(op);
  DeviceGuard guard(stream.device);
  driver().synchronize_stream(stream.handle);
  call_after_wait();
}

void note_lost_work(std::string why) {
  AbortedWork& lost = aborted_work();
  const std::lock_guard lock(lost.mutex);
  if (lost.any.load()) return;
  lost.why = std::move(why);
  lost.any.store(true);
}

void call_after_wait() {
  if (AbortedWork& lost = aborted_work(); TG_UNLIKELY(lost.any.load(std::memory_order_relaxed))) {
    const std::lock_guard lock(lost.mutex);
    if (lost.any.exchange(false)) TG_THROW(Runtime, "cuda: values that the host waits for were lost: {}", lost.why);
  }
  if (auto* hook = after_wait.load(std::memory_order_acquire)) hook();
}

}  // namespace tapegrad::cuda
