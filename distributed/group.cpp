#include "tapegrad/distributed/group.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <deque>
#include <map>
#include <new>
#include <thread>

#include "tapegrad/autograd/call_site.h"
#include "tapegrad/autograd/node.h"
#include "tapegrad/c10/fork.h"
#include "tapegrad/c10/modes.h"
#include "tapegrad/c10/parallel.h"
#include "tapegrad/distributed/call.h"

namespace tapegrad::distributed {

namespace {

// Jobs in order, on a thread of their own or, where nothing is under way, on the thread that brings one.
class Queue {
 public:
  using Job = std::function<void(bool own_thread)>;

  ~Queue() { drain(); }
  bool idle() {
    const std::lock_guard lock(mutex_);
    return jobs_.empty() && !busy_;
  }
  bool on_own_thread() const noexcept { return thread_.get_id() == std::this_thread::get_id(); }
  void run(Job job, bool may_run_here) {
    std::unique_lock lock(mutex_);
    if (may_run_here && !busy_ && jobs_.empty()) {
      busy_ = true;
      lock.unlock();
      job(false);
      lock.lock();
      busy_ = false;
      changed_.notify_all();
      return;
    }
    jobs_.push_back(std::move(job));
    if (!thread_.joinable()) thread_ = std::thread([this] { loop(); });
    changed_.notify_all();
  }
  // Waits so long for nothing to be under way; whether it is so.
  bool idle_within(Milliseconds limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [this] { return jobs_.empty() && !busy_; });
  }
  // Waits until nothing is under way; the thread has ended then.
  void drain() {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return jobs_.empty() && !busy_; });
      ends_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }

 private:
  void loop() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return !busy_ && (ends_ || !jobs_.empty()); });
      if (jobs_.empty()) return;
      Job job = std::move(jobs_.front());
      jobs_.pop_front();
      busy_ = true;
      lock.unlock();
      job(true);
      job = nullptr;
      lock.lock();
      busy_ = false;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> jobs_;
  bool busy_ = false, ends_ = false;
  std::thread thread_;
};

// Messages to or from one rank. Small ones that are sent are copied and wait here for their receiver, not in the call.
struct Lane : Queue {
  static constexpr size_t kMostOfOne = size_t{256} << 10, kMostKept = size_t{1} << 20;
  std::atomic<size_t> kept{0};  // bytes
};

// Receives of one tag happen in the order in which they were asked for where one of them takes from any rank: it is a
// receive from every peer. Other receives of different peers do not wait for each other.
class ReceiveOrder {
 public:
  uint64_t enter(int peer, uint64_t tag) {
    const std::lock_guard lock(mutex_);
    under_way_.push_back({++newest_, tag, peer});
    return newest_;
  }
  void leave(uint64_t ticket) {
    const std::lock_guard lock(mutex_);
    std::erase_if(under_way_, [ticket](const Entry& e) { return e.ticket == ticket; });
    changed_.notify_all();
  }
  void await_turn(uint64_t ticket, const Wait& wait) {
    const auto since = Clock::now();
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, Milliseconds(20), [&] { return first(ticket) == kNobody; })) {
      const int peer = first(ticket);
      lock.unlock();
      wait.poll(since, [peer] { return peer < 0 ? std::vector<int>{} : std::vector<int>{peer}; });
      lock.lock();
    }
  }

 private:
  struct Entry {
    uint64_t ticket, tag;
    int peer;  // -1: any
  };
  static constexpr int kNobody = -2;
  // Of the earlier receives that this one must let go first, the peer of the first.
  int first(uint64_t ticket) const {
    const auto own =
        std::find_if(under_way_.begin(), under_way_.end(), [&](const Entry& e) { return e.ticket == ticket; });
    const auto it = std::find_if(under_way_.begin(), own, [&](const Entry& e) {
      return e.tag == own->tag && (e.peer < 0 || own->peer < 0 || e.peer == own->peer);
    });
    return it == own ? kNobody : it->peer;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Entry> under_way_;
  uint64_t newest_ = 0;
};

// Cache-aligned bytes, so that numbers in a payload are aligned.
class Block {
 public:
  explicit Block(size_t n) : data_(static_cast<char*>(::operator new(n, std::align_val_t(64)))) {
    std::memset(data_, 0, n);
  }
  ~Block() { ::operator delete(data_, std::align_val_t(64)); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  char* data() const noexcept { return data_; }

 private:
  char* data_;
};

// Ahead of a message from one rank to another.
struct MessageHeader {
  static constexpr size_t kInline = 768;
  uint32_t magic = Header::kMagic;
  DType dtype = DType::uint8;
  uint8_t on_device = 0;  // the message itself goes by the devices' engine
  uint8_t pad[2] = {};
  int64_t numel = 0;
  char line[112] = {};
  char payload[kInline];  // the whole message where it fits
};

// What raises on all ranks alike and leaves the group as it was.
struct Disagreement {
  std::exception_ptr error;
};

// Bytes of each rank that travel with the header: one round for small tensors, as long as all ranks' bytes together
// stay small.
size_t inline_bytes(int size) { return size <= 8 ? 4096 : size <= 32 ? 1024 : 256; }

}  // namespace

struct Group::State {
  BackendPlace place;
  std::unique_ptr<Backend> backend;
  GroupOptions options;
  std::unique_ptr<DeviceBackend> device;  // made by the first call that needs it
  uint64_t listener = 0;
  uint32_t generation = fork_generation();
  uint64_t number = 0;  // of the newest collective, by whoever runs it
  size_t most_inline, block;
  Block mine, all;
  std::mutex mutex;  // guards lanes and closed
  bool closed = false;
  Queue collectives;
  struct Way {
    int peer;
    bool sends;
    uint64_t tag;  // of receives: those of other tags do not wait for each other, except where there are many
    auto operator<=>(const Way&) const = default;
  };
  static constexpr uint64_t kMostLanes = 16;  // of a peer: each may have a thread
  std::map<Way, Lane> lanes;
  ReceiveOrder receives;

  State(BackendPlace p, std::unique_ptr<Backend> b, GroupOptions o)
      : place(std::move(p)),
        backend(std::move(b)),
        options(std::move(o)),
        most_inline(inline_bytes(place.size)),
        block(sizeof(Header) + most_inline),
        mine(block),
        all(block * static_cast<size_t>(place.size)) {}

  int world_rank(int r) const { return options.world_ranks.empty() ? r : options.world_ranks[static_cast<size_t>(r)]; }

  Wait wait_of(const Call& call, const std::string& what, bool interruptible) const {
    Wait w;
    w.deadline = Clock::now() + call.timeout.value_or(options.timeout);
    w.failure = place.failure.get();
    w.may_be_interrupted = interruptible;
    w.patience = options.patience;
    w.what = what;
    w.describe = [this](const std::vector<int>& missing) {
      std::string text = rank_list(missing);
      if (options.watch && !missing.empty()) {
        const std::string line = options.watch->where(world_rank(missing[0]), Milliseconds(500));
        text += line.empty() ? fmt::format(" (rank {} does not say where it is)", missing[0])
                             : fmt::format(" (rank {} is at {})", missing[0], line);
      }
      return text;
    };
    return w;
  }

  std::string title(const char* op, uint64_t n, const std::string& line) const {
    return fmt::format("{}{}{}{}", op, n ? fmt::format(" #{}", n) : "",
                       options.name.empty() ? "" : " of " + options.name, line.empty() ? "" : " (" + line + ")");
  }

  // Everybody learns of it, here and elsewhere, and leaves.
  void give_up(const std::string& why) noexcept {
    try {
      const std::string text = fmt::format("rank {} failed: {}", world_rank(place.rank), why);
      place.failure->set(text);
      backend->abort(text);
      abort_device(text);
      if (options.watch) options.watch->failed(text);
    } catch (const std::bad_alloc&) {
      place.failure->set("");
      backend->abort("");
      abort_device("");
    }
  }

  DeviceBackend* device_or_null() {
    const std::lock_guard lock(mutex);
    return device.get();
  }
  void abort_device(const std::string& why) noexcept {
    if (DeviceBackend* const engine = device_or_null()) engine->abort(why);
  }
  // Where the data of a call lies for its engine: on the device where there is an engine for it.
  Device place_of(const Call& call) {
    const std::vector<Tensor>& any = call.outputs.empty() ? call.inputs : call.outputs;
    if (!options.device_engine || any.empty() || !any[0].defined() || !any[0].is_cuda()) return {};
    const Device where = any[0].device();
    for (const auto* tensors : {&call.inputs, &call.outputs})
      for (const Tensor& t : *tensors)
        TG_CHECK(t.defined() && t.device() == where, Value, "{}: all tensors must be on one GPU: got {} and {}",
                 name_of(call.kind), where, t.defined() ? fmt::format("{}", t.device()) : "none");
    const std::lock_guard lock(mutex);
    if (!device) device = make_device_backend({place.failure, [this](const std::string& why) { give_up(why); }});
    return where;
  }

  template <class F>
  void carry_out(Work& work, F&& f) noexcept {
    std::exception_ptr failed;
    int source = -1;
    try {
      place.failure->raise_if_set();
      source = f();
    } catch (const Disagreement& d) {
      failed = d.error;
    } catch (const std::exception& e) {
      failed = std::current_exception();
      if (!place.failure->is_set()) give_up(e.what());
    } catch (...) {
      failed = std::current_exception();
      give_up("an unknown exception");
    }
    work.finish(failed, source);
  }

  void collective(Prepared& p, Work& work, bool interruptible);
  void check_pairs(const Prepared& p, const Wait& wait);
  void small(Prepared& p);
  void large(Collectives& engine, Prepared& p, const Wait& wait);
  void on_device(Prepared& p, Work& work, const Wait& wait);
  std::shared_ptr<Work> message(Call call, bool here);
  void flush(Milliseconds limit);
  void send(const Call& call, const Tensor& t, Work& work, const std::shared_ptr<DeviceMark>& after, const Wait& wait);
  int recv(const Call& call, const Tensor& t, const Tensor& target, Work& work,
           const std::shared_ptr<DeviceMark>& after, const Wait& wait);
  const char* payload_of(int r) const { return all.data() + static_cast<size_t>(r) * block + sizeof(Header); }
};

void Group::State::collective(Prepared& p, Work& work, bool interruptible) {
  const ModeGuard plain(kModeNoGrad, ~static_cast<uint32_t>(kModeNoGrad));
  Header& h = p.header;
  h.number = ++number;
  const Wait wait = wait_of(p.call, title(name_of(h.kind), h.number, p.call.line), interruptible);
  char* to = mine.data() + sizeof(Header);
  if (h.payload <= most_inline && !h.on_device) {
    if (h.kind == Kind::AllReduce || h.kind == Kind::Reduce || h.kind == Kind::Broadcast) {
      if (h.payload) std::memcpy(to, p.out_bytes[0].data, h.payload);
    } else {
      for (const ConstBytes& b : p.in_bytes) {
        if (b.data == nullptr || b.nbytes == 0) continue;
        std::memcpy(to, b.data, b.nbytes);
        to += b.nbytes;
      }
    }
  }
  std::memcpy(mine.data(), &h, sizeof(Header));
  backend->exchange(mine.data(), block, all.data(), wait);
  bool fits = !h.on_device;
  try {
    check_agreement(all.data(), block, place.size);
    for (int r = 0; r < place.size; ++r) {
      Header other;
      std::memcpy(&other, all.data() + static_cast<size_t>(r) * block, sizeof(other));
      fits = fits && other.payload <= most_inline;
      if (h.kind != Kind::AllGather && h.kind != Kind::Gather) continue;
      // Each rank says how much it gives; who does not have the room for it says so before anything is written.
      const Bytes& room = p.out_bytes[p.out_bytes.size() == 1 ? 0 : static_cast<size_t>(r)];
      if (room.data != nullptr || room.nbytes != 0)
        TG_CHECK(room.nbytes == other.payload || !h.varying, Runtime, "{}: rank {} gives {} bytes, its output has {}",
                 wait.what, r, other.payload, room.nbytes);
    }
  } catch (const Error&) {
    throw Disagreement{std::current_exception()};
  }
  if (h.kind == Kind::AllToAll) check_pairs(p, wait);
  if (h.on_device) return on_device(p, work, wait);
  if (h.kind != Kind::Barrier) fits&& h.kind != Kind::AllToAll ? small(p) : large(*backend, p, wait);
  p.finish(place.size);
}

// Queues the call: nobody waits for data. The first one makes the communicator, with an id that rank 0 hands around.
void Group::State::on_device(Prepared& p, Work& work, const Wait& wait) {
  DeviceJob job;
  job.device = p.place;
  job.rank = place.rank;
  job.size = place.size;
  for (int r = 0; r < place.size; ++r)
    if (r != place.rank) job.others.push_back(r);
  job.share = [&](void* bytes, size_t n) {
    std::vector<char> everyone(n * static_cast<size_t>(place.size));
    backend->exchange(bytes, n, everyone.data(), wait);
    std::memcpy(bytes, everyone.data(), n);
  };
  job.after = p.after;
  for (const auto* tensors : {&p.in, &p.out, &p.call.inputs, &p.call.outputs})
    for (const Tensor& t : *tensors) job.storages.push_back(t.impl()->storage());
  work.set_end(device_or_null()->run(job, wait, [&](DeviceQueue& queue) {
    large(queue, p, wait);
    p.finish(place.size);
  }));
}

// What each rank has for each other must be what that one takes. All ranks see all sizes, so that all raise.
void Group::State::check_pairs(const Prepared& p, const Wait& wait) {
  const auto n = static_cast<size_t>(place.size);
  constexpr size_t kAtOnce = Backend::kMostExchanged / (2 * sizeof(uint64_t));
  std::vector<uint64_t> gives(n * n), takes(n * n);  // [from * n + to], [to * n + from], in bytes
  for (size_t begin = 0; begin < n; begin += kAtOnce) {
    const size_t count = std::min(kAtOnce, n - begin);
    std::vector<uint64_t> sizes(2 * count), everyone(2 * count * n);
    for (size_t i = 0; i < count; ++i) {
      sizes[2 * i] = p.in_bytes[begin + i].nbytes;
      sizes[2 * i + 1] = p.out_bytes[begin + i].nbytes;
    }
    backend->exchange(sizes.data(), sizes.size() * sizeof(uint64_t), everyone.data(), wait);
    for (size_t r = 0; r < n; ++r)
      for (size_t i = 0; i < count; ++i) {
        gives[r * n + begin + i] = everyone[2 * (r * count + i)];
        takes[r * n + begin + i] = everyone[2 * (r * count + i) + 1];
      }
  }
  const size_t itemsize = element_size(p.header.dtype);
  for (size_t from = 0; from < n; ++from)
    for (size_t to = 0; to < n; ++to)
      if (gives[from * n + to] != takes[to * n + from])
        throw Disagreement{std::make_exception_ptr(Error(
            ErrorKind::Runtime, fmt::format("{}: rank {} has {} elements for rank {}, which takes {}", wait.what, from,
                                            gives[from * n + to] / itemsize, to, takes[to * n + from] / itemsize)))};
}

// All that is needed has come with the headers.
void Group::State::small(Prepared& p) {
  const Header& h = p.header;
  const auto rank = static_cast<size_t>(place.rank);
  const auto reduce_from = [&](size_t offset, Bytes out) {
    std::vector<const void*> parts;
    for (int r = 0; r < place.size; ++r) parts.push_back(payload_of(r) + offset);
    reduce_bytes(out.data, parts, static_cast<int64_t>(out.nbytes / element_size(h.dtype)), h.dtype, h.reduce);
  };
  const auto take = [&](Bytes out, int r, size_t offset) {
    if (out.nbytes && out.data) std::memcpy(out.data, payload_of(r) + offset, out.nbytes);
  };
  switch (h.kind) {
    case Kind::AllReduce:
      return reduce_from(0, p.out_bytes[0]);
    case Kind::Reduce:
      if (place.rank == h.root) reduce_from(0, p.out_bytes[0]);
      return;
    case Kind::Broadcast:
      if (place.rank != h.root) take(p.out_bytes[0], h.root, 0);
      return;
    case Kind::AllGather:
    case Kind::Gather:
      if (h.kind == Kind::AllGather || place.rank == h.root)
        for (int r = 0; r < place.size; ++r) take(p.out_bytes[static_cast<size_t>(r)], r, 0);
      return;
    case Kind::Scatter:
      return take(p.out_bytes[0], h.root, rank * p.out_bytes[0].nbytes);
    case Kind::ReduceScatter: {
      size_t offset = 0;
      for (size_t r = 0; r < rank; ++r) offset += p.in_bytes[r].nbytes;
      return reduce_from(offset, p.out_bytes[0]);
    }
    default:
      TG_ASSERT(false);
  }
}

void Group::State::large(Collectives& engine, Prepared& p, const Wait& wait) {
  const Header& h = p.header;
  const int64_t numel = p.out_bytes.empty() ? 0 : static_cast<int64_t>(p.out_bytes[0].nbytes / element_size(h.dtype));
  switch (h.kind) {
    case Kind::AllReduce:
      return engine.all_reduce(p.out_bytes[0].data, numel, h.dtype, h.reduce, wait);
    case Kind::Reduce:
      return engine.reduce(p.out_bytes[0].data, numel, h.dtype, h.reduce, h.root, wait);
    case Kind::Broadcast:
      return engine.broadcast(p.out_bytes[0], h.root, wait);
    case Kind::AllGather:
      return engine.all_gather(p.in_bytes[0], p.out_bytes, wait);
    case Kind::Gather:
      return engine.gather(p.in_bytes[0], p.out_bytes, h.root, wait);
    case Kind::Scatter:
      return engine.scatter(p.in_bytes, p.out_bytes[0], h.root, wait);
    case Kind::ReduceScatter: {
      std::vector<const void*> in;
      std::vector<int64_t> counts;
      for (const ConstBytes& b : p.in_bytes) {
        in.push_back(b.data);
        counts.push_back(static_cast<int64_t>(b.nbytes / element_size(h.dtype)));
      }
      return engine.reduce_scatter(in, counts, p.out_bytes[0].data, h.dtype, h.reduce, wait);
    }
    case Kind::AllToAll:
      return engine.all_to_all(p.in_bytes, p.out_bytes, wait);
    default:
      TG_ASSERT(false);
  }
}

// A communicator for each way between two ranks and each tag: what is sent arrives in order, and two ranks may both
// send first. A send waits on the group's thread for its receive, so that messages are to be received in the order in
// which they were sent, whatever their tags.
namespace {
DeviceJob job_of_message(const Tensor& t, int from, int to, uint64_t tag, bool sends,
                         const std::shared_ptr<DeviceMark>& after) {
  DeviceJob job;
  job.device = t.device();
  job.members = fmt::format("{} to {}, {}", from, to, tag);
  job.rank = sends ? 0 : 1;
  job.size = 2;
  job.others = {sends ? to : from};
  job.after = after;
  job.storages = {t.impl()->storage()};
  return job;
}
}  // namespace

void Group::State::send(const Call& call, const Tensor& t, Work& work, const std::shared_ptr<DeviceMark>& after,
                        const Wait& wait) {
  MessageHeader m;
  m.on_device = after != nullptr;
  m.dtype = t.dtype();
  m.numel = t.numel();
  std::memcpy(m.line, call.line.data(), std::min(call.line.size(), sizeof(m.line) - 1));
  const auto n = static_cast<size_t>(t.nbytes());
  if (n <= MessageHeader::kInline && n != 0 && !after) std::memcpy(m.payload, t.data_ptr(), n);
  backend->send({&m, sizeof(m)}, call.root, 2 * call.tag, wait);
  if (after) {
    if (n == 0) return;
    DeviceJob job = job_of_message(t, place.rank, call.root, call.tag, true, after);
    job.share = [&](void* id, size_t size) { backend->send({id, size}, call.root, 2 * call.tag + 1, wait); };
    work.set_end(device_or_null()->run(job, wait, [&](DeviceQueue& queue) { queue.send({t.data_ptr(), n}, 1, wait); }));
    return;
  }
  if (n > MessageHeader::kInline) backend->send({t.data_ptr(), n}, call.root, 2 * call.tag + 1, wait);
}

int Group::State::recv(const Call& call, const Tensor& t, const Tensor& target, Work& work,
                       const std::shared_ptr<DeviceMark>& after, const Wait& wait) {
  const auto take = [&] {
    if (t.is_same(target))
      autograd::bump_version(target, "recv");
    else
      copy_(target, t);
  };
  MessageHeader m;
  int source = call.root;
  if (source < 0)
    source = backend->recv_any({&m, sizeof(m)}, 2 * call.tag, wait);
  else
    backend->recv({&m, sizeof(m)}, source, 2 * call.tag, wait);
  TG_CHECK(m.magic == Header::kMagic && m.dtype == t.dtype() && m.numel == t.numel(), Runtime,
           "{}: rank {} sends {} elements of {}{}, the tensor here has {} of {}", wait.what, source, m.numel,
           m.magic == Header::kMagic ? dtype_name(m.dtype) : "an unknown dtype",
           m.line[0] ? fmt::format(" at {}", std::string_view(m.line, strnlen(m.line, sizeof(m.line)))) : "", t.numel(),
           t.dtype());
  TG_CHECK(m.on_device == (after != nullptr), Runtime,
           "{}: rank {} sends from {}, the tensor here is on {}\nboth sides of a message must go the same way",
           wait.what, source, m.on_device ? "a GPU" : "the host", target.device());
  const auto n = static_cast<size_t>(t.nbytes());
  if (after && n != 0) {
    DeviceJob job = job_of_message(t, source, place.rank, call.tag, false, after);
    job.storages.push_back(target.impl()->storage());
    job.share = [&](void* id, size_t size) { backend->recv({id, size}, source, 2 * call.tag + 1, wait); };
    work.set_end(device_or_null()->run(job, wait, [&](DeviceQueue& queue) {
      queue.recv({t.data_ptr(), n}, 0, wait);
      take();
    }));
    return source;
  }
  if (n > MessageHeader::kInline)
    backend->recv({t.data_ptr(), n}, source, 2 * call.tag + 1, wait);
  else if (n != 0)
    std::memcpy(t.data_ptr(), m.payload, n);
  take();
  return source;
}

std::shared_ptr<Work> Group::State::message(Call call, bool here) {
  const bool sends = call.kind == Kind::Send;
  const char* op = name_of(call.kind);
  std::vector<Tensor>& tensors = sends ? call.inputs : call.outputs;
  TG_CHECK(tensors.size() == 1 && tensors[0].defined(), Type, "{}: one tensor is sent at a time", op);
  TG_CHECK(call.root < place.size && call.root >= (sends ? 0 : -1) && call.root != place.rank, Value,
           "{}: rank {} cannot be the other side for rank {} of {}", op, call.root, place.rank, place.size);
  TG_CHECK(tensors[0].is_cpu() || tensors[0].is_cuda(), Runtime,
           "{}: only dense tensors on the CPU and CUDA devices can be sent: got one on {}", op, tensors[0].device());
  if (!sends) autograd::check_inplace(tensors[0], op, false);
  const Device at = place_of(call);
  Lane* lane;
  {
    const std::lock_guard lock(mutex);
    lane = &lanes[{call.root, sends, sends ? 0 : call.tag % kMostLanes}];
  }
  const Tensor target = tensors[0];
  const auto n = static_cast<size_t>(target.nbytes());
  // The caller goes on where the copy of what it sends can wait for the receiver: two ranks may both send first.
  const bool leaves = sends && n <= Lane::kMostOfOne && lane->kept.load() + n <= Lane::kMostKept;
  Tensor piece = target;
  if (leaves || target.device() != at || !target.is_contiguous()) {
    const NoGradGuard no_grad;
    piece = empty_tensor(target.sizes(), target.dtype(), at);
    if (sends) copy_(piece, target);
  }
  const std::shared_ptr<DeviceMark> after = at.is_cuda() ? device_or_null()->mark(op, at) : nullptr;
  auto work = std::make_shared<Work>(std::vector<Tensor>{target});
  std::shared_ptr<Work> rest = work;
  if (leaves) {
    if (place.failure->is_set()) {
      carry_out(*work, [] { return -1; });  // raises why
      return work;
    }
    rest = std::make_shared<Work>(std::vector<Tensor>{});
    lane->kept += n;
  }
  const uint64_t ticket = sends ? 0 : receives.enter(call.root, call.tag);
  lane->run(
      [this, rest, call = std::move(call), piece, target, after, sends, leaves, lane, n, ticket](bool own_thread) {
        carry_out(*rest, [&] {
          struct End {
            const std::function<void()> f;
            ~End() { f(); }
          } end{[&] {
            if (leaves) lane->kept -= n;
            if (!sends) receives.leave(ticket);
          }};
          const ModeGuard plain(kModeNoGrad, ~static_cast<uint32_t>(kModeNoGrad));
          const std::string text = fmt::format("{} {} rank {}", name_of(call.kind), sends ? "to" : "from", call.root);
          Wait w = wait_of(call, title(call.root < 0 ? "recv" : text.c_str(), 0, call.line), !own_thread);
          if (leaves) w.patience = {};  // nobody waits
          if (sends) {
            send(call, piece, *rest, after, w);
            return -1;
          }
          receives.await_turn(ticket, w);
          return recv(call, piece, target, *rest, after, w);
        });
      },
      here && !leaves);
  if (leaves) work->finish(nullptr);
  return work;
}

// Waits until all that was sent has been received. A rank that flushes, too, and asks for nothing more takes nothing
// more: what lies here for it then is told of and lost.
void Group::State::flush(Milliseconds limit) {
  std::vector<std::pair<int, Lane*>> left;
  bool used;
  {
    const std::lock_guard lock(mutex);
    used = !lanes.empty();
    for (auto& [where, lane] : lanes)
      if (where.sends) left.emplace_back(where.peer, &lane);
  }
  const auto ends = [this](int r) { return fmt::format("ends/{}", world_rank(r)); };
  const auto since = Clock::now();
  constexpr auto kGrace = Milliseconds(500);  // between a receive and its sender's hearing of it
  std::map<int, Clock::time_point> ending;
  const auto drop_idle = [&] { std::erase_if(left, [](auto& l) { return l.second->idle(); }); };
  drop_idle();
  const bool late = place.failure->is_set();
  const auto tell = [&](const std::vector<int>& ranks, const std::string& why) {
    std::fputs(fmt::format("tapegrad: messages to {} were sent and not received{}\n", rank_list(ranks), why).c_str(),
               stderr);
  };
  std::vector<int> ranks;
  try {
    if (used) place.store->set(ends(place.rank), "1");
    double told = 0;
    while (!left.empty()) {
      if (ranks.empty())
        for (auto& [r, lane] : left) ranks.push_back(world_rank(r));
      left[0].second->idle_within(Milliseconds(20));
      drop_idle();
      check_interrupt();
      bool nobody = !left.empty();
      for (auto& [r, lane] : left) {
        if (!ending.contains(r) && place.store->check({ends(r)})) ending.emplace(r, Clock::now());
        nobody = nobody && ending.contains(r) && Clock::now() - ending[r] > kGrace;
      }
      if (place.failure->is_set() && !late) return tell(ranks, ": " + place.failure->why());
      ranks.clear();
      for (auto& [r, lane] : left) ranks.push_back(world_rank(r));
      const double seconds = std::chrono::duration<double>(Clock::now() - since).count();
      if (nobody || (!left.empty() && Clock::now() - since >= limit)) {
        tell(ranks, "");
        place.failure->set(fmt::format("messages to {} were not received", rank_list(ranks)));
        return;
      }
      if (const double patient = std::chrono::duration<double>(options.patience).count();
          patient > 0 && !left.empty() && seconds >= told + patient) {
        told = seconds;
        std::fputs(fmt::format("tapegrad: the end of the group has waited {:.0f} s for {} to receive what was sent\n",
                               seconds, rank_list(ranks))
                       .c_str(),
                   stderr);
      }
    }
  } catch (const DistError&) {  // the store has gone: so has the job
    place.failure->set("the store of the job has gone");
  }
}

Group::Group(BackendPlace place, std::unique_ptr<Backend> backend, GroupOptions options)
    : state_(std::make_unique<State>(std::move(place), std::move(backend), std::move(options))) {
  State& s = *state_;
  if (s.options.watch)
    s.listener = s.options.watch->add(
        [failure = s.place.failure](const std::string& why, Milliseconds grace) { failure->set(why, grace); });
}

Group::~Group() {
  State& s = *state_;
  if (s.generation != fork_generation()) {  // a forked child has none of the threads, and locks may be held for ever
    static_cast<void>(state_.release());
    return;
  }
  if (s.options.watch) s.options.watch->forget(s.listener);
  if (!s.closed) {
    s.place.failure->set("the group was destroyed");
    // Where nothing is under way here, others may still be reading what this rank gave them.
    bool idle = s.collectives.idle();
    for (auto& [where, lane] : s.lanes) idle = idle && lane.idle();
    if (!idle) s.backend->abort("the group was destroyed");
    if (s.device) s.device->abort("the group was destroyed");
  }
  // A callback of one of its calls let the last owner go: a thread cannot wait for its own end.
  bool own_thread = s.collectives.on_own_thread();
  for (const auto& [where, lane] : s.lanes) own_thread = own_thread || lane.on_own_thread();
  if (own_thread) static_cast<void>(state_.release());
}

int Group::rank() const noexcept { return state_->place.rank; }
int Group::size() const noexcept { return state_->place.size; }
const Backend& Group::backend() const noexcept { return *state_->backend; }
bool Group::has_device_engine() const noexcept { return state_->options.device_engine; }

std::shared_ptr<Work> Group::run(Call call, bool wait) {
  State& s = *state_;
  TG_CHECK(s.generation == fork_generation(), Runtime,
           "{}: the group belongs to the process that made it; a child made by fork needs one of its own",
           name_of(call.kind));
  TG_CHECK(!s.closed, Runtime, "{}: the group was destroyed", name_of(call.kind));
  if (call.line.empty()) call.line = autograd::describe_site(autograd::current_site());
  const bool here = wait && s.backend->polls();
  std::shared_ptr<Work> work;
  const BlockingRegion others_run;
  if (call.kind == Kind::Send || call.kind == Kind::Recv) {
    work = s.message(std::move(call), here);
  } else {
    std::vector<Tensor> result = call.outputs;
    const Device at = s.place_of(call);
    if (at.is_cuda() && (call.kind == Kind::AllReduce || call.kind == Kind::Reduce || call.kind == Kind::ReduceScatter))
      s.device->check_reduce(name_of(call.kind), (call.outputs.empty() ? call.inputs : call.outputs)[0].dtype(),
                             call.reduce);
    auto prepared = std::make_shared<Prepared>(prepare(std::move(call), s.place.rank, s.place.size, at));
    if (at.is_cuda()) prepared->after = s.device->mark(name_of(prepared->header.kind), at);
    work = std::make_shared<Work>(std::move(result));
    s.collectives.run(
        [&s, work, prepared](bool own_thread) {
          s.carry_out(*work, [&] {
            s.collective(*prepared, *work, !own_thread);
            return -1;
          });
        },
        here);
  }
  if (wait) work->wait();
  return work;
}

void Group::abort(const std::string& why) noexcept {
  if (state_->generation == fork_generation()) state_->give_up(why);
}

void Group::close() {
  State& s = *state_;
  if (s.generation != fork_generation() || s.closed) return;
  for (; !s.collectives.idle_within(Milliseconds(20)); check_interrupt()) continue;
  for (auto& [where, lane] : s.lanes)
    if (!where.sends)
      for (; !lane.idle_within(Milliseconds(20)); check_interrupt()) continue;
  s.flush(s.options.timeout);
  s.collectives.drain();
  for (auto& [where, lane] : s.lanes) lane.drain();
  if (s.device)  // its watchdog ends this at the deadline
    for (; !s.device->idle(); check_interrupt()) std::this_thread::sleep_for(Milliseconds(2));
  s.closed = true;
}

void Group::flush(Milliseconds limit) {
  State& s = *state_;
  if (s.generation == fork_generation() && !s.closed) s.flush(std::min(limit, s.options.timeout));
}

}  // namespace tapegrad::distributed
