// The engine of process groups for CUDA tensors (distributed/device_backend.h).
#include <algorithm>
#include <map>

#include "tapegrad/c10/error.h"
#include "tapegrad/cuda/memory/storage.h"
#include "tapegrad/cuda/nccl/communicator.h"
#include "tapegrad/cuda/nccl/local.h"
#include "tapegrad/cuda/nccl/types.h"
#include "tapegrad/cuda/nccl/watchdog.h"
#include "tapegrad/cuda/runtime/event.h"

namespace tapegrad::cuda::nccl_api {

namespace {

using distributed::Bytes;
using distributed::ConstBytes;
using distributed::DeviceBackend;
using distributed::DeviceJob;
using distributed::DeviceMark;
using distributed::DevicePlace;
using distributed::DeviceQueue;
using distributed::Failure;
using distributed::Reduce;
using distributed::Wait;

class Mark final : public DeviceMark {
 public:
  Mark(Stream stream, std::shared_ptr<Failure> failure) : device_(stream.device), failure_(std::move(failure)) {
    event_.record(stream);
  }
  void wait() override {
    failure_->raise_if_set();
    const std::lock_guard lock(mutex_);
    event_.wait(current_stream(device_));
  }
  bool reached() override {
    const std::lock_guard lock(mutex_);
    return event_.query();
  }

 private:
  const int device_;
  const std::shared_ptr<Failure> failure_;
  std::mutex mutex_;
  Event event_;
};

// Work of one job on a communicator. Bytes are moved as such; only reductions know of dtypes. Sizes of 0 are skipped,
// which all ranks do alike.
class Queue final : public DeviceQueue {
 public:
  Queue(Communicator& c, Communicator::Missing missing)
      : c_(c), api_(c.api()), stream_(c.stream().handle), missing_(std::move(missing)) {}

  void all_reduce(void* data, int64_t numel, DType dtype, Reduce op, const Wait& wait) override {
    const Numbers n = numbers_of("all_reduce", dtype, op);
    if (numel == 0) return;
    call("ncclAllReduce", wait,
         [&](Handle h) { return api_.all_reduce(data, data, count(numel, n), n.type, n.op, h, stream_); });
  }
  void broadcast(Bytes data, int root, const Wait& wait) override {
    if (data.nbytes == 0) return;
    call("ncclBroadcast", wait,
         [&](Handle h) { return api_.broadcast(data.data, data.data, data.nbytes, kUint8, root, h, stream_); });
  }
  void reduce(void* data, int64_t numel, DType dtype, Reduce op, int root, const Wait& wait) override {
    const Numbers n = numbers_of("reduce", dtype, op);
    if (numel == 0) return;
    call("ncclReduce", wait,
         [&](Handle h) { return api_.reduce(data, data, count(numel, n), n.type, n.op, root, h, stream_); });
  }
  void all_gather(ConstBytes in, std::span<const Bytes> out, const Wait& wait) override {
    bool one_piece = in.nbytes != 0;  // the ranks' parts are contiguous
    for (size_t r = 0; r < out.size(); ++r)
      one_piece =
          one_piece && out[r].nbytes == in.nbytes && out[r].data == static_cast<char*>(out[0].data) + r * in.nbytes;
    if (one_piece)
      return call("ncclAllGather", wait,
                  [&](Handle h) { return api_.all_gather(in.data, out[0].data, in.nbytes, kUint8, h, stream_); });
    group("ncclBroadcast", wait, [&](Handle h, auto&& also) {
      for (size_t r = 0; r < out.size(); ++r) {
        const void* from = static_cast<int>(r) == c_.rank() ? in.data : out[r].data;
        if (out[r].nbytes != 0)
          also(api_.broadcast(from, out[r].data, out[r].nbytes, kUint8, static_cast<int>(r), h, stream_));
      }
    });
  }
  void gather(ConstBytes in, std::span<const Bytes> out, int root, const Wait& wait) override {
    if (c_.rank() == root) own(in, out[static_cast<size_t>(root)]);
    group("ncclSend", wait, [&](Handle h, auto&& also) {
      if (c_.rank() != root) {
        if (in.nbytes != 0) also(api_.send(in.data, in.nbytes, kUint8, root, h, stream_));
        return;
      }
      for (int r = 0; r < c_.size(); ++r)
        if (const Bytes& b = out[static_cast<size_t>(r)]; r != root && b.nbytes != 0)
          also(api_.recv(b.data, b.nbytes, kUint8, r, h, stream_));
    });
  }
  void scatter(std::span<const ConstBytes> in, Bytes out, int root, const Wait& wait) override {
    if (c_.rank() == root) own(in[static_cast<size_t>(root)], out);
    group("ncclRecv", wait, [&](Handle h, auto&& also) {
      if (c_.rank() != root) {
        if (out.nbytes != 0) also(api_.recv(out.data, out.nbytes, kUint8, root, h, stream_));
        return;
      }
      for (int r = 0; r < c_.size(); ++r)
        if (const ConstBytes& b = in[static_cast<size_t>(r)]; r != root && b.nbytes != 0)
          also(api_.send(b.data, b.nbytes, kUint8, r, h, stream_));
    });
  }
  void reduce_scatter(std::span<const void* const> in, std::span<const int64_t> numel, void* out, DType dtype,
                      Reduce op, const Wait& wait) override {
    const Numbers n = numbers_of("reduce_scatter", dtype, op);
    bool one_piece = numel[0] != 0;
    for (size_t r = 0; r < in.size(); ++r)
      one_piece = one_piece && numel[r] == numel[0] &&
                  in[r] == static_cast<const char*>(in[0]) + r * static_cast<size_t>(numel[0]) * element_size(dtype);
    if (one_piece)
      return call("ncclReduceScatter", wait, [&](Handle h) {
        return api_.reduce_scatter(in[0], out, count(numel[0], n), n.type, n.op, h, stream_);
      });
    group("ncclReduce", wait, [&](Handle h, auto&& also) {
      for (size_t r = 0; r < in.size(); ++r)
        if (numel[r] != 0)
          also(api_.reduce(in[r], out, count(numel[r], n), n.type, n.op, static_cast<int>(r), h, stream_));
    });
  }
  void all_to_all(std::span<const ConstBytes> in, std::span<const Bytes> out, const Wait& wait) override {
    const auto me = static_cast<size_t>(c_.rank());
    own(in[me], out[me]);
    group("ncclSend", wait, [&](Handle h, auto&& also) {
      for (size_t r = 0; r < in.size(); ++r) {
        if (r == me) continue;
        if (in[r].nbytes != 0) also(api_.send(in[r].data, in[r].nbytes, kUint8, static_cast<int>(r), h, stream_));
        if (out[r].nbytes != 0) also(api_.recv(out[r].data, out[r].nbytes, kUint8, static_cast<int>(r), h, stream_));
      }
    });
  }
  void send(ConstBytes data, int peer, const Wait& wait) override {
    if (data.nbytes == 0) return;
    call("ncclSend", wait, [&](Handle h) { return api_.send(data.data, data.nbytes, kUint8, peer, h, stream_); });
  }
  void recv(Bytes data, int peer, const Wait& wait) override {
    if (data.nbytes == 0) return;
    call("ncclRecv", wait, [&](Handle h) { return api_.recv(data.data, data.nbytes, kUint8, peer, h, stream_); });
  }

 private:
  static size_t count(int64_t numel, const Numbers& n) { return static_cast<size_t>(numel) * n.parts; }
  void call(const char* name, const Wait& wait, const std::function<Result(Handle)>& f) {
    c_.call(name, wait, missing_, f);
  }
  // f(handle, also): `also` takes the result of each function.
  template <class F>
  void group(const char* name, const Wait& wait, F&& f) {
    call(name, wait, [&](Handle h) {
      return grouped(api_, [&] {
        Result first = kSuccess;
        f(h, [&first](Result r) {
          if (!is_failure(first)) first = r;
        });
        return first;
      });
    });
  }
  void own(ConstBytes from, Bytes to) {
    if (to.nbytes != 0 && to.data != from.data)
      driver().copy(to.data, from.data, to.nbytes, CopyKind::DeviceToDevice, stream_);
  }

  Communicator& c_;
  const Functions& api_;
  const StreamHandle stream_;
  const Communicator::Missing missing_;
};

class Engine final : public DeviceBackend {
 public:
  Engine(const Functions& api, DevicePlace place) : api_(api), place_(std::move(place)), watchdog_(place_) {}
  ~Engine() override { abort_all(); }

  const char* name() const noexcept override { return "nccl"; }
  void check_reduce(const char* op, DType dtype, Reduce reduce) const override { numbers_of(op, dtype, reduce); }

  std::shared_ptr<DeviceMark> mark(const char* op, Device device) override {
    const Stream stream = current_stream(device.index);
    const DeviceGuard guard(device.index);
    TG_CHECK(driver().capture_state(stream.handle) == CaptureState::None, Runtime,
             "{}: collectives cannot be recorded into a graph", op);
    return std::make_shared<Mark>(stream, place_.failure);
  }

  std::shared_ptr<DeviceMark> run(const DeviceJob& job, const Wait& wait,
                                  const std::function<void(DeviceQueue&)>& body) override {
    const std::shared_ptr<Communicator> c = communicator(job, wait);
    const StreamGuard stream(c->stream());
    job.after->wait();
    for (const Storage& s : job.storages) note_use(*s, c->stream());
    Queue queue(*c, [&job] { return job.others; });
    const auto since = distributed::Clock::now();
    body(queue);
    auto end = std::make_shared<Mark>(c->stream(), place_.failure);
    watchdog_.add({c, end, job.storages, since, wait.deadline, wait.what});
    return end;
  }

  bool idle() override { return watchdog_.idle(); }
  void abort(const std::string& why) noexcept override {
    watchdog_.give_up(why);
    abort_all();
  }

 private:
  void abort_all() noexcept {
    const std::lock_guard lock(mutex_);
    aborted_ = true;
    for (auto& [members, c] : communicators_) c->abort();
  }

  std::shared_ptr<Communicator> communicator(const DeviceJob& job, const Wait& wait) {
    {
      const std::lock_guard lock(mutex_);
      const auto it = communicators_.find(job.members);
      if (it != communicators_.end()) {
        TG_CHECK(it->second->device() == job.device.index, Value,
                 "{}: this rank's tensors are on cuda:{}, those of its earlier calls were on cuda:{}\na group has one "
                 "GPU on each rank",
                 wait.what, job.device.index, it->second->device());
        return it->second;
      }
    }
    UniqueId id;
    if (job.rank == 0) id = new_id(api_);
    job.share(&id, sizeof(id));
    auto c = std::make_shared<Communicator>(api_, job.device.index, job.size, id, job.rank);
    {
      const std::lock_guard lock(mutex_);
      if (aborted_) c->abort();
      communicators_.emplace(job.members, c);
    }
    c->await("ncclCommInitRankConfig", wait, [&job] { return job.others; });
    return c;
  }

  const Functions& api_;
  const DevicePlace place_;
  std::mutex mutex_;
  bool aborted_ = false;
  std::map<std::string, std::shared_ptr<Communicator>> communicators_;
  Watchdog watchdog_;  // goes first
};

std::atomic<Finder> finder{nullptr};

const Functions* find(std::string& why_not) {
  const Finder f = finder.load(std::memory_order_acquire);
  if (f == nullptr) {
    why_not = "this build has no way to open it";
    return nullptr;
  }
  if (device_count() == 0) {
    why_not = driver().why_no_device();
    return nullptr;
  }
  return f(why_not);
}

std::string why_not() {
  std::string why;
  return find(why) != nullptr ? "" : why;
}

std::unique_ptr<DeviceBackend> make(DevicePlace place) {
  return std::make_unique<Engine>(functions("nccl"), std::move(place));
}

}  // namespace

void use_nccl(Finder f) {
  static constexpr distributed::DeviceEngine engine{why_not, make, among_devices};
  finder.store(f, std::memory_order_release);
  distributed::set_device_engine(f == nullptr ? nullptr : &engine);
}

const Functions& functions(const char* op) {
  std::string why;
  const Functions* found = find(why);
  TG_CHECK(found != nullptr, Runtime, "{}: NCCL cannot be used: {}", op, why);
  return *found;
}

}  // namespace tapegrad::cuda::nccl_api
