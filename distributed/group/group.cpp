#include "tapegrad/distributed/group/group.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <thread>

#include "tapegrad/aten/record/recording.h"
#include "tapegrad/autograd/profiler/call_site.h"
#include "tapegrad/c10/dispatch/modes.h"
#include "tapegrad/c10/threads/fork.h"
#include "tapegrad/c10/threads/parallel.h"
#include "tapegrad/distributed/group/call.h"
#include "tapegrad/distributed/group/messages.h"

namespace tapegrad::distributed {

namespace {

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

// Bytes of each rank that travel with the header: one round for small tensors, as long as all ranks' bytes together
// stay small.
size_t inline_bytes(int size) { return size <= 8 ? 4096 : size <= 32 ? 1024 : 256; }

}  // namespace

struct Group::State : GroupCore {
  static constexpr Milliseconds kEndGracePeriod{
      2000};  // data of an ended rank's last collective may still be in transit
  uint64_t listener = 0;
  uint32_t generation = fork_generation();
  uint64_t number = 0;  // of the newest collective; used by the thread that runs it
  size_t most_inline, block;
  Block mine, all;
  bool closed = false;
  JobQueue collectives;
  Messages messages{*this};

  State(BackendPlace p, std::unique_ptr<Backend> b, GroupOptions o)
      : GroupCore(std::move(p), std::move(b), std::move(o)),
        most_inline(inline_bytes(place.size)),
        block(sizeof(Header) + most_inline),
        mine(block),
        all(block * static_cast<size_t>(place.size)) {}

  void collective(Prepared& p, Work& work, bool interruptible);
  void check_pairs(const Prepared& p, const Wait& wait);
  void small(Prepared& p);
  void large(Collectives& engine, Prepared& p, const Wait& wait);
  void on_device(Prepared& p, Work& work, const Wait& wait);
  const char* payload_of(int r) const { return all.data() + static_cast<size_t>(r) * block + sizeof(Header); }
};

void Group::State::collective(Prepared& p, Work& work, bool interruptible) {
  const ModeGuard plain(kModeNoGrad, ~static_cast<uint32_t>(kModeNoGrad));
  Header& h = p.header;
  h.number = ++number;
  Wait wait = wait_of(p.call, title(name_of(h.kind), h.number, p.call.line), interruptible);
  wait.ask = [this](const Wait& w, const std::vector<int>& missing) { check_ended_ranks(w, missing, kEndGracePeriod); };
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
      // Each rank announces how much it sends; a rank whose output has another size reports so before anything is
      // written.
      const Bytes& output = p.out_bytes[p.out_bytes.size() == 1 ? 0 : static_cast<size_t>(r)];
      if (output.data != nullptr || output.nbytes != 0)
        TG_CHECK(output.nbytes == other.payload || !h.varying, Runtime, "{}: rank {} gives {} bytes, its output has {}",
                 wait.what, r, other.payload, output.nbytes);
    }
  } catch (const Error&) {
    throw CollectiveMismatch{std::current_exception()};
  }
  if (h.kind == Kind::AllToAll) check_pairs(p, wait);
  if (h.on_device) return on_device(p, work, wait);
  if (h.kind != Kind::Barrier) fits&& h.kind != Kind::AllToAll ? small(p) : large(*backend, p, wait);
  p.finish(place.size);
}

// Queues the call; the host does not wait for data. The first call creates the communicator, with an id from rank 0.
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
        throw CollectiveMismatch{std::make_exception_ptr(Error(
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

Group::Group(BackendPlace place, std::unique_ptr<Backend> backend, GroupOptions options)
    : state_(std::make_unique<State>(std::move(place), std::move(backend), std::move(options))) {
  State& s = *state_;
  if (s.options.watch)
    s.listener = s.options.watch->add(
        [failure = s.place.failure](const std::string& why, Milliseconds grace) { failure->set(why, grace); });
}

Group::~Group() {
  State& s = *state_;
  if (s.generation != fork_generation()) {  // a forked child has none of the threads, and locks may stay held forever
    static_cast<void>(state_.release());
    return;
  }
  if (s.options.watch) s.options.watch->forget(s.listener);
  if (!s.closed) {
    s.place.failure->set("the group was destroyed");
    // Even if no call is in progress here, others may still be reading this rank's data.
    if (!s.collectives.idle() || !s.messages.idle()) s.backend->abort("the group was destroyed");
    if (s.device) s.device->abort("the group was destroyed");
  }
  // A callback of one of its calls let the last owner go: a thread cannot wait for its own end.
  if (s.collectives.on_own_thread() || s.messages.on_own_thread()) static_cast<void>(state_.release());
}

int Group::rank() const noexcept { return state_->place.rank; }
int Group::size() const noexcept { return state_->place.size; }
const Backend& Group::backend() const noexcept { return *state_->backend; }

std::shared_ptr<Work> Group::run(Call call, bool wait) {
  record::refuse("it calls a collective");
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
    work = s.messages.start(std::move(call), here);
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
  s.messages.await_receives();
  s.messages.flush(s.options.timeout);
  s.collectives.drain();
  s.messages.drain();
  if (s.device)  // its watchdog ends this at the deadline
    for (; !s.device->idle(); check_interrupt()) std::this_thread::sleep_for(Milliseconds(2));
  s.closed = true;
}

void Group::flush(Milliseconds limit) {
  State& s = *state_;
  if (s.generation == fork_generation() && !s.closed) s.messages.flush(std::min(limit, s.options.timeout));
}

}  // namespace tapegrad::distributed
