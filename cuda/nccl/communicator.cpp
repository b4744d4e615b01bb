#include "tapegrad/cuda/nccl/communicator.h"

#include <algorithm>
#include <map>
#include <thread>

namespace tapegrad::cuda::nccl_api {

namespace {

using distributed::DistError;
using distributed::fail;

// Streams are never destroyed: the allocator may query their work long after a communicator was destroyed.
struct Streams {
  std::mutex mutex;
  std::map<int, std::vector<StreamHandle>> idle;
};
Streams& streams() {
  static auto& it = *new Streams;
  return it;
}

Stream take_stream(int device) {
  {
    const std::lock_guard lock(streams().mutex);
    std::vector<StreamHandle>& idle = streams().idle[device];
    if (!idle.empty()) {
      const StreamHandle handle = idle.back();
      idle.pop_back();
      return {handle, device};
    }
  }
  return {driver().create_stream(device, 0), device};
}

}  // namespace

Communicator::Communicator(const Functions& api, int device, int size, const UniqueId& id, int rank)
    : api_(api), device_(device), size_(size), rank_(rank), stream_(take_stream(device)) {
  const DeviceGuard guard(device);
  Config config;
  const Result result = api_.init(&handle_, size, id, rank, &config);
  if (!is_failure(result)) return;
  const std::string text = describe("ncclCommInitRankConfig", result);
  abort();
  fail(DistError::Part::Backend, "{}", text);
}

Communicator::~Communicator() {
  abort();
  const std::lock_guard lock(streams().mutex);
  streams().idle[device_].push_back(stream_.handle);
}

std::string Communicator::describe(const char* name, Result result) const {
  const char* more = handle_ != nullptr ? api_.last_error(handle_) : "";
  return fmt::format("{}: NCCL: {}{}{}", name, api_.error_string(result), more != nullptr && *more ? ": " : "",
                     more != nullptr ? more : "");
}

void Communicator::call(const char* name, const distributed::Wait& wait, const Missing& missing,
                        const std::function<Result(Handle)>& f) {
  {
    const std::lock_guard lock(mutex_);
    if (handle_ == nullptr) {
      if (wait.failure != nullptr) wait.failure->raise_if_set();
      fail(DistError::Part::Backend, "{}: the communicator was aborted", wait.what);
    }
    const Result result = f(handle_);
    if (is_failure(result)) fail(DistError::Part::Backend, "{}: {}", wait.what, describe(name, result));
    if (result == kSuccess) return;
  }
  await(name, wait, missing);
}

Result Communicator::give(const std::function<Result(Handle)>& f) {
  const std::lock_guard lock(mutex_);
  return handle_ == nullptr ? kInvalidUsage : f(handle_);
}

void Communicator::await(const char* name, const distributed::Wait& wait, const Missing& missing) {
  const auto since = distributed::Clock::now();
  for (int64_t pause = 50;; pause = std::min<int64_t>(pause * 2, 2000)) {
    {
      const std::lock_guard lock(mutex_);
      if (handle_ != nullptr) {
        Result state = kSuccess;
        const Result asked = api_.async_error(handle_, &state);
        if (is_failure(asked)) state = asked;
        if (is_failure(state)) fail(DistError::Part::Backend, "{}: {}", wait.what, describe(name, state));
        if (state == kSuccess) return;
      } else if (wait.failure == nullptr || !wait.failure->is_set()) {
        fail(DistError::Part::Backend, "{}: the communicator was aborted", wait.what);
      }
    }
    wait.poll(since, missing);
    std::this_thread::sleep_for(std::chrono::microseconds(pause));
  }
}

std::string Communicator::failure() {
  const std::lock_guard lock(mutex_);
  if (handle_ == nullptr) return "";
  Result state = kSuccess;
  const Result asked = api_.async_error(handle_, &state);
  if (is_failure(asked)) state = asked;
  return is_failure(state) ? describe("on the device", state) : "";
}

void Communicator::abort() noexcept {
  const std::lock_guard lock(mutex_);
  if (handle_ == nullptr) return;
  try {
    const DeviceGuard guard(device_);
    (void)api_.abort(std::exchange(handle_, nullptr));
  } catch (const std::exception&) {  // the driver is gone at the end of the process
  }
}

UniqueId new_id(const Functions& api) {
  UniqueId id;
  const Result result = api.get_unique_id(&id);
  if (is_failure(result)) fail(DistError::Part::Backend, "ncclGetUniqueId: NCCL: {}", api.error_string(result));
  return id;
}

}  // namespace tapegrad::cuda::nccl_api
